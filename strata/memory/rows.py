"""RowCache: rows of a table too large for memory, the last used of them kept in slots.

Owns the slots. A step's rows are asked for at once and stay where they are until the next are;
what is missing is read before `fetch` returns. The longest unused rows give way, many at a time,
so that finding a row needs no more than one table of slots in the order of a hash. One thread
fetches; any may read `figures`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from strata.figures import RowFigures
from strata.memory.arena import SlotArena
from strata.memory.budget import show_bytes
from strata.memory.row_reader import Numbers, RowReader, TablePart
from strata.types import ConfigError, IntArray

_OWN = 36  # bytes that a slot takes beside its row, at most
_SHARE = 8  # this part of the slots gives way at a time
_FREE = -1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class RowCache:
    """`table` uint8 [slots, row bytes], which does not move. Begins empty."""

    def __init__(
        self, parts: Sequence[TablePart], row_bytes: int, *, nbytes: int, at_once: int
    ) -> None:
        """In at most `nbytes`, for fetches of up to `at_once` rows. ConfigError when they do not
        fit, StorageError when a file cannot be opened.
        """
        self._reader = RowReader(parts, row_bytes)
        slots = min(nbytes // (row_bytes + _OWN), self._reader.rows)
        if slots < min(at_once, self._reader.rows):
            least = -(-min(at_once, self._reader.rows) * (row_bytes + _OWN) // 2**20)
            raise ConfigError(
                f"{show_bytes(nbytes)} for an n-gram table hold {slots} rows of {row_bytes} bytes,"
                f" but a step may need {at_once}: set --ngram-cache to at least {least}MiB for each"
                " table, or a smaller --prefill-chunk"
            )
        self.nbytes, size = slots * (row_bytes + _OWN), slots * row_bytes
        self.table = SlotArena(-(-size // 64), 64).data.view(-1)[:size].view(slots, row_bytes)
        self._counted, self._slot = RowFigures(), row_bytes + _OWN
        self._now = 0
        self._used = np.full(slots, _FREE, dtype=np.int64)  # when each slot last was
        self._rows = np.zeros(slots, dtype=np.int64)  # which row is in each slot
        self._unused = np.arange(slots, dtype=np.int32)
        # A row's slot is at its hash or behind it, before the next free place.
        self._bits = (2 * slots).bit_length()
        self._slots = np.full(1 << self._bits, _FREE, dtype=np.int32)

    def fetch(self, rows: Numbers) -> IntArray:
        """The slots of `rows` [n], good until the next call. StorageError when one cannot be read;
        what was known stays known.
        """
        self._now += 1
        slots = self._find(rows)
        missing = slots < 0
        self._used[slots[~missing]] = self._now
        wanted, place = np.unique(rows[missing], return_inverse=True)
        nbytes, begun = 0, perf_counter()
        if len(wanted):
            new = self._take(len(wanted))
            try:
                nbytes = self._reader.read(wanted, self.table.numpy(), new)
            except BaseException:
                self._unused = np.concatenate((self._unused, new))
                raise
            self._used[new] = self._now
            self._rows[new] = wanted
            self._add(new)
            slots[missing] = new[place]
        seconds = perf_counter() - begun if nbytes else 0.0
        self._counted += RowFigures(len(rows), len(rows) - len(wanted), nbytes, seconds)
        return slots

    @property
    def figures(self) -> RowFigures:
        """Counts since start, and how full it is."""
        held = (len(self._used) - len(self._unused)) * self._slot
        return replace(self._counted, held=held, room=self.nbytes)

    def _home(self, rows: Numbers) -> Numbers:
        mixed = rows.view(np.uint64) * _GOLDEN >> np.uint64(64 - self._bits)
        return mixed.view(np.int64)

    def _find(self, rows: Numbers) -> IntArray:
        """Slots of rows, or -1."""
        found = np.full(len(rows), _FREE, dtype=np.int32)
        at, todo = self._home(rows), np.arange(len(rows))
        while len(todo):
            slots = self._slots[at[todo]]
            same = (slots >= 0) & (self._rows[slots] == rows[todo])
            found[todo[same]] = slots[same]
            todo = todo[(slots >= 0) & ~same]
            at[todo] = at[todo] + 1 & len(self._slots) - 1
        return found

    def _add(self, slots: IntArray) -> None:
        """Makes the rows in these slots, none of them known, to be found."""
        at, todo = self._home(self._rows[slots]), np.arange(len(slots))
        while len(todo):
            free = todo[self._slots[at[todo]] < 0]
            self._slots[at[free]] = slots[free]  # where several meet, one of them stays
            todo = todo[self._slots[at[todo]] != slots[todo]]
            at[todo] = at[todo] + 1 & len(self._slots) - 1

    def _take(self, count: int) -> IntArray:
        """Slots for `count` rows, none of them used by this step."""
        if count > len(self._unused):
            old = np.flatnonzero((self._used >= 0) & (self._used < self._now))
            short = count - len(self._unused)
            assert short <= len(old), "more rows at once than there are slots"
            leave = min(len(old), max(short, len(self._used) // _SHARE))
            gone = old[np.argpartition(self._used[old], leave - 1)[:leave]].astype(np.int32)
            self._used[gone] = _FREE
            self._unused = np.concatenate((self._unused, gone))
            self._slots.fill(_FREE)
            self._add(np.flatnonzero(self._used >= 0).astype(np.int32))
        taken, self._unused = np.split(self._unused, [count])
        return taken
