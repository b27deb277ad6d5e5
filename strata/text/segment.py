"""An answer's text, as it streams, into deltas: reasoning, content, calls of tools.

Reasoning stands at the start only; a later think tag is content. A line break that templates put
around reasoning is left out, and so are blanks around calls. Markup that is no call of a known
function is content. A call is told while it is written, so one that breaks in its middle stays
without END, and what follows is content. Owns the answer's state; belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import regex

from strata.text.delta import Delta, Kind
from strata.text.dialects import Dialect
from strata.text.dialects.reader import Reader, Steps, marker

_LINE = regex.compile(r"\n")


class Segmenter:
    """Splits one answer."""

    def __init__(
        self,
        dialect: Dialect,
        tools: Mapping[str, Any],
        *,
        thinking: bool,
        calls: bool = True,
        announced: Collection[str] = (),
    ) -> None:
        """tools: a function's name -> the schema of its parameters. thinking: the answer begins
        inside reasoning. calls: without, markup of calls is content. announced: the markers
        that `feed` is told the places of (`Dialect.markers`); spelled otherwise they are text.
        """
        self._tools = tools
        self._reader = Reader()
        self._form = dialect.form(announced) if calls and tools else None
        self._blank = ""  # of the content, not told yet
        self._content = False  # some was told
        self._called = False  # a call was the last that was told
        self._steps = self._answer(dialect, thinking, announced)
        next(self._steps)

    def feed(self, text: str, marks: Sequence[int] = ()) -> list[Delta]:
        """What more text makes certain. marks: offsets of announced markers in it."""
        self._reader.feed(text, marks)
        next(self._steps)
        return self._reader.told()

    def finish(self) -> list[Delta]:
        """The rest, when no more text comes."""
        self._reader.ended = True
        for _ in self._steps:
            raise AssertionError("a step waits for text after the end")
        return self._reader.told()

    # ---------------------------------------------------------------- steps

    def _answer(self, dialect: Dialect, thinking: bool, announced: Collection[str]) -> Steps[None]:
        yield
        if dialect.think_open is not None and dialect.think_close is not None:
            begin = regex.compile(rf"\s{{0,32}}{marker(dialect.think_open, announced)}")
            end = regex.compile(rf"(\n?{marker(dialect.think_close, announced)})")
            opened = yield from self._reader.match(begin)
            self._reader.take(len(opened[0]) if opened else 0)
            if opened or thinking:
                yield from self._reasoning(end)
        yield from self._rest()
        if not self._called:
            self._reader.tell(Kind.CONTENT, self._blank)

    def _reasoning(self, end: regex.Pattern[str]) -> Steps[None]:
        """Up to the closing tag, and the line breaks that templates write around it."""
        yield from self._reader.skip(_LINE)
        if (
            yield from self._reader.until(end, lambda text: self._reader.tell(Kind.REASONING, text))
        ):
            for _ in range(2):
                yield from self._reader.skip(_LINE)

    def _rest(self) -> Steps[None]:
        """Content and calls."""
        if self._form is None:
            while True:
                self._reader.tell(Kind.CONTENT, self._reader.rest())
                if self._reader.ended:
                    return
                yield
        opener = regex.compile(f"()(?:{self._form.opener})")
        while (yield from self._reader.until(opener, self._say)):
            first = self._called or not self._content
            if (yield from self._form.call(self._reader, self._tools, first)):
                self._called, self._blank = True, ""
            else:
                self._say(self._reader.take(1))

    def _say(self, text: str) -> None:
        """Tell content, without the blanks at its end, which a call may follow."""
        solid = text.rstrip()
        if not solid:
            self._blank += text
            return
        told = self._blank + solid
        self._reader.tell(
            Kind.CONTENT, told if self._content or not self._called else told.lstrip()
        )
        self._blank = text[len(solid) :]
        self._content, self._called = True, False
