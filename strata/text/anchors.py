"""Where prompts part: places in a rendered conversation that other requests will share.

Knows one Rendering, its tokens and the tokenizer. Each place is found by rendering again, the
beginning of the conversation or with a probe in it, and comparing tokens: so it holds for whatever
a template does, and where it cannot be found there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from strata.text.source import Chat, Rendering
from strata.text.tokenizer import Tokenizer
from strata.types import RequestError

FIELD = "cache_anchor"  # A message with this field true has an anchor at its end.
MOST = 4  # So many anchors that a client asks for are kept, the last ones.
_STRIDE = 1024  # tokens compared at once
_NEAR = 8  # tokens before a border in which its control token is looked for


def asked_for(messages: Iterable[Any]) -> list[int]:
    """The messages, by number, whose ends a client wants anchors at."""
    return [i for i, message in enumerate(messages) if message.get(FIELD) is True][-MOST:]


class Anchors:
    """The places of one rendering; all are counts of tokens from the start."""

    def __init__(self, done: Rendering, tokens: Sequence[int], tokenizer: Tokenizer) -> None:
        self._done, self._tokens, self._tokenizer = done, tokens, tokenizer

    def stable(self) -> int:
        """How many tokens the next turn repeats, whatever the answer is."""
        if self._done.header and not self._done.continued:
            return self._common(self._done.values.messages)
        return len(self._tokens)

    def _common(self, messages: Chat) -> int:
        """How many tokens another, unfinished rendering shares; 0 where it is refused."""
        try:
            return self._shared(self._done.again(messages), self._done.values.mark)
        except RequestError:
            return 0

    def _shared(self, text: str, mark: str | None) -> int:
        return shared(self._tokens, self._tokenizer.encode_rendered(text, mark))

    def system(self) -> Iterator[int]:
        """The end of the system and tools block, wherever a next message may begin.

        Found by a probe: the block with another message after it. What follows the last
        control token before the border (a role, a line break) may merge with that message's
        first characters, so one anchor is at that token, or one token before the border, where it
        holds for any message; and one at the border, where it holds for most.
        """
        done, tokens = self._done, self._tokens
        chat = done.values.messages
        leading = next((i for i, m in enumerate(chat) if m["role"] != "system"), len(chat))
        if not (leading or done.values.tools) or leading == len(chat):
            return
        probe = "y" if str(chat[leading]["content"]).lstrip().startswith("x") else "x"
        others = [*chat[:leading], {"role": "user", "content": probe}]
        border = self._common(others)
        yield border
        for at in range(border, max(0, border - _NEAR), -1):
            if tokens[at - 1] in self._tokenizer.special_ids:
                yield at
                return
        yield border - 1

    def user(self, stable: int) -> Iterator[int]:
        """The end of the last user message, where agents' turns part from it."""
        chat = self._done.values.messages
        last = max((i for i, m in enumerate(chat) if m["role"] == "user"), default=None)
        if last == len(chat) - 1:
            yield stable
        elif last is not None:
            yield self._common(chat[: last + 1])

    def ends(self, numbers: Iterable[int]) -> Iterator[int]:
        """The ends of messages as they were asked for, by number.

        The beginning of the conversation up to there, rendered alone, is mostly a beginning of
        the whole. Where a template writes a message otherwise when it is the last one (an
        answer's thinking, say), a mark after its content shows what follows it.
        """
        done, values = self._done, self._done.values
        for number in numbers:
            part = done.part(number + 1)
            try:
                text = done.source.text(part, part.messages, False)
                if not done.plain.startswith(part.unmarked(text)):
                    end = self._marked_end(number)
                    if end is not None:
                        text, part = done.text[:end], values
            except RequestError:
                continue
            yield self._shared(text, part.mark)

    def _marked_end(self, number: int) -> int | None:
        """Offset in the text where a message ends that stands in it as it was asked for."""
        done, tail = self._done, self._done.values.tail
        messages = list(done.values.messages)
        if len(messages) != len(done.chat) or not tail:
            return None
        content = messages[number]["content"] or ""
        messages[number] = {**messages[number], "content": f"{content}{tail}"}
        whole = done.again(messages, done.header, done.continued).partition(tail)[2]
        after = done.again(messages[: number + 1]).partition(tail)[2]
        if not (whole and done.text.endswith(whole) and whole.startswith(after)):
            return None
        return len(done.text) - len(whole) + len(after)


def shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many items two sequences have in common at their beginning."""
    start, end = 0, min(len(a), len(b))
    while start < end and a[start : start + _STRIDE] == b[start : start + _STRIDE]:
        start += _STRIDE
    return next((i for i in range(start, end) if a[i] != b[i]), end)
