"""What a person watching sees: steps with how far they are, and settled facts.

Progress goes to standard error: on a terminal one line that is rewritten, elsewhere (a log, a
pipe) one line at the start and one at each quarter. May be called from any thread.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import TextIO

_REDRAW_S = 0.1
_BYTES = 1 << 20


class Progress:
    """A ProgressSink for people. Counts above a million are taken for bytes."""

    def __init__(self, out: TextIO | None = None) -> None:
        """`out` None is standard error, whatever it is at the time."""
        self._out = out
        self._lock = threading.Lock()
        self._what = ""
        self._shown = 0.0
        self._quarter = 0
        self._open = False

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Take note that `done` of `total` of `what` are through."""
        with self._lock:
            out = self._out or sys.stderr
            show = self._redraw if out.isatty() else self._report
            show(out, what, done, total)

    def close(self) -> None:
        """End the line that is being rewritten, before something else is printed."""
        with self._lock:
            if self._open:
                print(file=self._out or sys.stderr, flush=True)
                self._open = False

    def _redraw(self, out: TextIO, what: str, done: int, total: int | None) -> None:
        now, fresh, over = time.monotonic(), what != self._what, done == total
        if not fresh and not over and now - self._shown < _REDRAW_S:
            return
        start = "\n" if fresh and self._open else ""
        self._what, self._shown, self._open = "" if over else what, now, not over
        text = f"{start}\r\x1b[K{_line(what, done, total)}"
        print(text, end="\n" if over else "", file=out, flush=True)

    def _report(self, out: TextIO, what: str, done: int, total: int | None) -> None:
        quarter = 4 * done // total if total else 0
        if what == self._what and quarter <= self._quarter:
            return
        self._what, self._quarter = what, quarter
        print(_line(what, done, total), file=out, flush=True)


def _line(what: str, done: int, total: int | None) -> str:
    if not total:
        return f"  {what} ..."
    if total >= 1_000_000:
        amount = f"{done / _BYTES:.1f} of {total / _BYTES:.1f} MiB"
    else:
        amount = f"{done} of {total}"
    return f"  {what}: {amount} ({100 * done // total} %)"


def columns(rows: Sequence[Sequence[str]], left: int) -> list[list[str]]:
    """Cells as wide as their columns; those of the first `left` columns begin at the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        [
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    ]
