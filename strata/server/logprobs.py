"""Log probabilities in OpenAI's two shapes, and the names that tokens have there.

A token's name is its text when its bytes are valid UTF-8, else "bytes:\\xe2\\x82", as
OpenAI writes it: equal names always mean equal bytes. JSON has no infinity: LEAST
stands for "impossible".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from strata.text.tokenizer import Tokenizer
from strata.types import Logprob

LEAST = -9999.0


class TokenNames:
    """Names and bytes of tokens, looked up once each."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, tuple[str, bytes]] = {}

    def of(self, token: int) -> tuple[str, bytes]:
        """(name, bytes); a control token's bytes are those of its written form."""
        found = self._known.get(token)
        if found is None:
            raw = self._tokenizer.token_bytes(token, special=True)
            try:
                name = raw.decode("utf-8")
            except UnicodeDecodeError:
                name = "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
            found = self._known[token] = (name, raw)
        return found


def chat_logprobs(names: TokenNames, entries: Iterable[Logprob]) -> dict[str, Any]:
    """`choices[].logprobs` of a chat completion."""
    return {"content": [_chat_entry(names, entry) for entry in entries], "refusal": None}


def _chat_entry(names: TokenNames, entry: Logprob) -> dict[str, Any]:
    return {
        **_named(names, entry.token, entry.logprob),
        "top_logprobs": [_named(names, token, value) for token, value in entry.top],
    }


def _named(names: TokenNames, token: int, value: float) -> dict[str, Any]:
    name, raw = names.of(token)
    return {"token": name, "logprob": _finite(value), "bytes": list(raw)}


@dataclass(slots=True)
class CompletionLogprobs:
    """`choices[].logprobs` of text completions; `offset` counts characters told so far."""

    names: TokenNames
    offset: int = 0

    def take(self, tokens: Sequence[int], entries: Sequence[Logprob | None]) -> dict[str, Any]:
        """The next tokens' part. An entry of None (a first token) has no probability."""
        texts: list[str] = []
        values: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        offsets: list[int] = []
        for token, entry in zip(tokens, entries, strict=True):
            name, raw = self.names.of(token)
            texts.append(name)
            offsets.append(self.offset)
            # A character counts at its first byte, so parts of one do not add up to more.
            self.offset += sum(byte & 0xC0 != 0x80 for byte in raw)
            values.append(None if entry is None else _finite(entry.logprob))
            tops.append(None if entry is None else self._top(entry))
        return {
            "tokens": texts,
            "token_logprobs": values,
            "top_logprobs": tops,
            "text_offset": offsets,
        }

    def _top(self, entry: Logprob) -> dict[str, float]:
        """The most likely tokens and the chosen one, which may be none of them."""
        top = {self.names.of(token)[0]: _finite(value) for token, value in entry.top}
        top.setdefault(self.names.of(entry.token)[0], _finite(entry.logprob))
        return top


def _finite(value: float) -> float:
    return value if math.isfinite(value) else LEAST
