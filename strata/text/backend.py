"""One vocabulary of the `tokenizers` library under several readings.

The library keeps inside a Tokenizer object which added tokens are found and whether a text begins
the sequence, so each pair is an object of its own. They share the model (vocabulary and merges), so
a further one costs no memory worth naming. Padding, truncation and post processors that a
tokenizer.json may carry have no effect.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from threading import Lock
from typing import Any

from tokenizers import AddedToken, Tokenizer

from strata.types import ModelError


class Added(Enum):
    """Which added tokens are found in a text."""

    ALL = "all"
    USER_DEFINED = "user-defined"
    NONE = "none"


class Place(Enum):
    """Where a text stands: a blank may belong before it.

    START begins the sequence. AFTER_TOKEN follows an added token. INSIDE follows text.
    """

    START = "start"
    AFTER_TOKEN = "after a token"
    INSIDE = "inside"


class Backend:
    """Text to ids, without any token that the text does not name.

    Thread safe. `tokens` are the added tokens by id, control ones marked special.
    """

    def __init__(self, base: Tokenizer, tokens: Mapping[int, AddedToken]) -> None:
        self._tokens = tokens
        self._base = base
        self._readings: dict[tuple[Added, Place], Tokenizer] = {}
        self._lock = Lock()

    def encode(self, texts: Sequence[str], added: Added, place: Place) -> list[list[int]]:
        """Ids of each text. Texts must be encodable as UTF-8 (no lone surrogates)."""
        with self._lock:
            reading = self._readings.get((added, place)) or self._build(added, place)
            self._readings[added, place] = reading
        return [found.ids for found in reading.encode_batch_fast(texts, add_special_tokens=False)]

    def _build(self, added: Added, place: Place) -> Tokenizer:
        reading = Tokenizer(self._base.model)
        steps = Tokenizer.from_str(
            json.dumps(
                {
                    "model": {"type": "BPE", "vocab": {}, "merges": []},
                    "normalizer": _placed(_state(self._base.normalizer), place),
                    "pre_tokenizer": _placed(_state(self._base.pre_tokenizer), place),
                }
            )
        )
        reading.normalizer, reading.pre_tokenizer = steps.normalizer, steps.pre_tokenizer
        if added is not Added.NONE:
            for number, token in sorted(self._tokens.items()):
                (reading.add_special_tokens if token.special else reading.add_tokens)([token])
                if reading.token_to_id(token.content) != number:
                    raise ModelError(
                        f"the tokenizer's added token {token.content!r} has id {number}, which"
                        " leaves a hole in the vocabulary: its tokenizer.json is damaged"
                    )
        reading.encode_special_tokens = added is Added.USER_DEFINED
        return reading


def _state(step: Any) -> Any:
    """A pipeline step as tokenizer.json writes it."""
    return None if step is None else json.loads(step.__getstate__())


def _placed(step: Any, place: Place) -> Any:
    """A pipeline step without the rules that put a blank before a text at `place`."""
    if step is None or place is Place.START:
        return step
    if step["type"] == "Sequence":
        name = "normalizers" if "normalizers" in step else "pretokenizers"
        inner = [_placed(part, place) for part in step[name]]
        return {**step, name: [part for part in inner if part is not None]}
    if step["type"] == "Metaspace" and (
        place is Place.INSIDE or step.get("prepend_scheme") == "first"
    ):
        return {**step, "prepend_scheme": "never"}
    if place is Place.INSIDE and step["type"] == "Prepend":
        return None
    if place is Place.INSIDE and step["type"] == "ByteLevel":
        return {**step, "add_prefix_space": False}
    return step
