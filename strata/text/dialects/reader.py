"""An answer's text as it arrives, read by steps that wait for what they need.

A step is a generator that yields where the text at hand does not decide, and is resumed when there
is more of it or none will come. So parsing reads as if the whole text were there, and how it is cut
means nothing. Owns the text not yet read and what was told of it. Knows no dialect.

A token that is a marker is announced by its offset. Inside, a character that no decoded text has
stands before it; patterns ask for it by `marker`, and `take` leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from itertools import pairwise
from typing import TypeVar

import regex

from strata.text.delta import Delta, Kind

_ANNOUNCED = "\ud800"
_T = TypeVar("_T")
Steps = Generator[None, None, _T]


def marker(text: str, announced: Collection[str]) -> str:
    """A pattern for a marker: as a token where tokens are announced, else as text."""
    return (_ANNOUNCED if text in announced else f"{_ANNOUNCED}?") + regex.escape(text)


class Reader:
    """The unread text of one answer, and the deltas of what was read."""

    def __init__(self) -> None:
        self.ended = False
        self._text = ""
        self._at = 0
        self._kept: list[str] | None = None
        self._told: list[Delta] = []
        self._call = -1

    def feed(self, text: str, marks: Sequence[int] = ()) -> None:
        """More text; at the offsets `marks` begin tokens that are markers."""
        edges = [0, *marks, len(text)]
        text = _ANNOUNCED.join(text[start:end] for start, end in pairwise(edges))
        self._text, self._at = self._text[self._at :] + text, 0

    def told(self) -> list[Delta]:
        """What was told since the last time."""
        told, self._told = self._told, []
        return told

    # ---------------------------------------------------------------- read

    def match(self, pattern: regex.Pattern[str], after: int = 0) -> Steps[regex.Match[str] | None]:
        """The pattern, `after` characters from here. None: it is not there, and cannot come.

        Of a match only lengths hold: offsets move while a step waits. No pattern may end in a
        repetition that could go on, since a match is taken as soon as there is one.
        """
        while True:
            found = pattern.match(self._text, self._at + after, partial=True)
            if found is None or not found.partial:
                return found
            if self.ended:
                return None
            yield

    def skip(self, pattern: regex.Pattern[str]) -> Steps[bool]:
        """Pass over the pattern where it comes next, and over its beginning before an end."""
        found = yield from self.match(pattern)
        if found is not None:
            self.take(len(found[0]))
        elif self.ended and pattern.match(self._text, self._at, partial=True):
            self.rest()
        return found is not None

    def until(self, pattern: regex.Pattern[str], put: Callable[[str], None]) -> Steps[bool]:
        """Put the text before the pattern piece by piece, and pass over the pattern's first group.

        False: the text ended before it came, and all of it was put.
        """
        while True:
            found = pattern.search(self._text, self._at, partial=True)
            before = (found.start() if found else len(self._text)) - self._at
            if found is not None and not found.partial:
                size = found.end(1) - found.start()
                put(self.take(before))
                self.take(size)
                return True
            put(self.take(before))
            if self.ended:
                put(self.rest())
                return False
            yield

    def take(self, size: int) -> str:
        """The next characters, without announcements."""
        raw = self._text[self._at : self._at + size]
        self._at += size
        if self._kept is not None:
            self._kept.append(raw)
        return raw.replace(_ANNOUNCED, "")

    def rest(self) -> str:
        """All that is at hand."""
        return self.take(len(self._text) - self._at)

    def keep(self) -> None:
        """Remember what is taken from here on, for `back`."""
        self._kept = []

    def back(self) -> None:
        """Return to where `keep` was called."""
        assert self._kept is not None
        self._text, self._at = "".join(self._kept) + self._text[self._at :], 0
        self._kept = None

    def go_on(self) -> None:
        """Forget where `keep` was called."""
        self._kept = None

    # ---------------------------------------------------------------- tell

    def tell(self, kind: Kind, text: str) -> None:
        """A piece of reasoning or content."""
        self._tell(kind, text, None)

    def begin_call(self, name: str) -> None:
        """A call begins; its arguments follow."""
        self._call += 1
        self._tell(Kind.CALL, name, self._call)

    def argue(self, text: str) -> None:
        """A piece of the arguments of the call that began last."""
        self._tell(Kind.ARGUMENTS, text, self._call)

    def end_call(self) -> None:
        """The call that began last is whole."""
        self._told.append(Delta(Kind.END, "", self._call))

    def _tell(self, kind: Kind, text: str, call: int | None) -> None:
        if not text:
            return
        if self._told and (self._told[-1].kind, self._told[-1].call) == (kind, call):
            text = self._told.pop().text + text
        self._told.append(Delta(kind, text, call))
