"""Log probabilities in OpenAI's two shapes, and the names that tokens have there.

A token's name is its text when its bytes are valid UTF-8, else "bytes:\\xe2\\x82", as
OpenAI writes it: equal names always mean equal bytes. JSON has no infinity: LEAST
stands for "impossible".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from strata.text.tokenizer import Tokenizer
from strata.types import Logprob

LEAST = -9999.0


class TokenNames(dict[int, tuple[str, bytes]]):
    """(name, bytes) by token, looked up once each; a control token's are of its written form."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __missing__(self, token: int) -> tuple[str, bytes]:
        raw = self._tokenizer.token_bytes(token, special=True)
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            name = "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
        self[token] = found = (name, raw)
        return found


def chat_logprobs(names: TokenNames, entries: Iterable[Logprob]) -> dict[str, Any]:
    """`choices[].logprobs` of a chat completion."""

    def named(token: int, value: float) -> dict[str, Any]:
        name, raw = names[token]
        return {"token": name, "logprob": _finite(value), "bytes": list(raw)}

    content = [
        {**named(entry.token, entry.logprob), "top_logprobs": [named(*pair) for pair in entry.top]}
        for entry in entries
    ]
    return {"content": content, "refusal": None}


@dataclass(slots=True)
class CompletionLogprobs:
    """`choices[].logprobs` of text completions; `offset` counts characters told so far."""

    names: TokenNames
    offset: int = 0

    def take(self, tokens: Sequence[int], entries: Sequence[Logprob | None]) -> dict[str, Any]:
        """The next tokens' part. An entry of None (a first token) has no probability."""
        assert len(tokens) == len(entries)
        told = [self.names[token] for token in tokens]
        # A character counts at its first byte, so parts of one do not add up to more.
        lengths = (sum(byte & 0xC0 != 0x80 for byte in raw) for _, raw in told)
        *offsets, self.offset = accumulate(lengths, initial=self.offset)
        return {
            "tokens": [name for name, _ in told],
            "token_logprobs": [None if e is None else _finite(e.logprob) for e in entries],
            "top_logprobs": [None if e is None else self._top(e) for e in entries],
            "text_offset": offsets,
        }

    def _top(self, entry: Logprob) -> dict[str, float]:
        """The most likely tokens and the chosen one, which may be none of them."""
        top = {self.names[token][0]: _finite(value) for token, value in entry.top}
        top.setdefault(self.names[entry.token][0], _finite(entry.logprob))
        return top


def _finite(value: float) -> float:
    return value if math.isfinite(value) else LEAST
