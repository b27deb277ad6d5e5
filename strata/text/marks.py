"""Keeping a user's text plain: special-token text in a message is no special token.

Before a template is rendered, a mark (one private-use character that occurs nowhere in the
request) goes inside of each added token's text in every string that a client sent; after
rendering, whatever carries the mark is tokenised as plain text and the mark is dropped.

Control tokens are marked everywhere; others (`</think>`, `<tool_call>`) in all but the assistant's
messages, where they are the model's own words and templates look for them. A string that could
become part of a token together with the template's text around it (`<|im_` before `end|>`) is
marked too. Blank runs and single characters listed as added tokens stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from strata.text.added import any_of
from strata.text.pieces import BLANK, valid
from strata.types import RequestError

_PRIVATE = range(0xE000, 0xF900)
_PRIVATE_TEXT = re.compile(r"[\ue000-\uf8ff]|\\u[ef][0-9a-fA-F]{3}")
_DEPTH = 48  # nesting of a client's JSON inside of one message or tool


class Guard:
    """Knows where some tokens' texts begin, end and hide in a string."""

    def __init__(self, tokens: Mapping[str, bool], control_only: bool) -> None:
        texts = [text for text, control in tokens.items() if control or not control_only]
        self._inner = "\n".join(text[1:-1] for text, control in tokens.items() if control)
        texts = [text for text in texts if len(text) > 1 and text.strip(BLANK).strip()]
        self._found = re.compile(f"(?={any_of(texts)})")
        self._quick = re.compile(any_of(texts))
        self._heads = {text[:size] for text in texts for size in range(1, len(text))}
        self._tails = {text[-size:] for text in texts for size in range(1, len(text))}
        self._longest = max(map(len, texts), default=0)

    def places(self, text: str, whole: bool) -> list[int]:
        """Offsets where a mark must stand so that no token survives; mostly none.

        whole: also where the string can only be the middle of a control token (`im_end`
        between a template's `<|` and `|>`).
        """
        places = set()
        if self._quick.search(text):
            places = {match.start() + 1 for match in self._found.finditer(text)}
        for size in range(1, min(self._longest, len(text) + 1)):
            if text[-size:] in self._heads and not text[-size:].isspace():
                places.add(len(text) - size + 1)
            if text[:size] in self._tails and not text[:size].isspace():
                places.add(size - 1)
        if whole and 0 < len(text) < self._longest and text in self._inner:
            places.add(1)
        return sorted(places)


_WORDED = ("role", "type")  # keys whose values templates compare with words of their own

_Change = Callable[[str, Guard, bool], str]


@dataclass(frozen=True, slots=True)
class Marked:
    """Values safe to render, and the mark in them (None when nothing needed one)."""

    messages: list[dict[str, Any]]
    tools: list[Any] | None
    variables: dict[str, Any]
    mark: str | None

    @property
    def tail(self) -> str:
        """A run of marks that is found nowhere else; empty without a mark."""
        return (self.mark or "") * 3

    def unmarked(self, text: str) -> str:
        """Rendered text as the client and the template wrote it."""
        return text if self.mark is None else text.replace(self.mark, "")


class Marks:
    """Marks what a client sent, for one vocabulary and template."""

    def __init__(self, added_tokens: Mapping[str, bool], source: str) -> None:
        """added_tokens: text -> is it a control token. source: the template's text."""
        self._control = Guard(added_tokens, control_only=True)
        self._all = Guard(added_tokens, control_only=False)
        self._reserved = set(_private("".join((source, *added_tokens))))

    def apply(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None,
        variables: Mapping[str, Any],
        always: bool = False,
    ) -> Marked:
        """Copies of a request's values with marks. RequestError where they nest too deeply.

        always: choose a mark even if nothing needs one.
        """
        seen: list[str] = []
        needed = always

        def look(text: str, guard: Guard, whole: bool) -> str:
            nonlocal needed
            text = valid(text)
            seen.append(text)
            needed = needed or bool(guard.places(text, whole))
            return text

        plain = self._changed(look, messages, tools, variables)
        if not needed:
            return Marked(*plain, None)
        taken = self._reserved.union(*map(_private, seen))
        mark = next((chr(code) for code in _PRIVATE if code not in taken), None)
        if mark is None:
            raise RequestError("the messages use every private-use character", field="messages")

        def put(text: str, guard: Guard, whole: bool) -> str:
            edges = [0, *guard.places(text, whole), len(text)]
            return mark.join(text[a:b] for a, b in pairwise(edges))

        return Marked(*self._changed(put, *plain), mark)

    def _changed(
        self,
        change: _Change,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None,
        variables: Mapping[str, Any],
    ) -> tuple[list[dict[str, Any]], list[Any] | None, dict[str, Any]]:
        """Copies of messages, tools and variables with every string changed."""
        copies = []
        for message in messages:
            guard = self._control if message["role"] == "assistant" else self._all
            changed = _copy(dict(message), guard, change, whole=True)
            copies.append({**changed, "role": message["role"]})
        return (
            copies,
            None if tools is None else _copy(list(tools), self._all, change, whole=False),
            _copy(dict(variables), self._all, change, whole=False),
        )


def _copy(value: Any, guard: Guard, change: _Change, whole: bool, depth: int = 0) -> Any:
    """A copy of plain JSON data with every string changed.

    Keys that are plain words stay: templates ask for them, and no control token is a word.
    """
    if isinstance(value, str):
        return change(value, guard, whole)
    if depth > _DEPTH:
        raise RequestError(f"the request nests values deeper than {_DEPTH}", field="messages")
    if isinstance(value, Mapping):
        copied = {}
        for key, inner in value.items():
            plain = not isinstance(key, str) or key.isidentifier()
            inner = _copy(inner, guard, change, whole and key not in _WORDED, depth + 1)
            copied[key if plain else change(key, guard, False)] = inner
        return copied
    if isinstance(value, (list, tuple)):
        return [_copy(inner, guard, change, whole, depth + 1) for inner in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    raise RequestError(f"a {type(value).__name__} is no JSON value", field="messages")


def _private(text: str) -> Iterator[int]:
    """The private-use characters of a text, written out or escaped."""
    for found in _PRIVATE_TEXT.findall(text):
        yield ord(found) if len(found) == 1 else int(found[2:], 16)
