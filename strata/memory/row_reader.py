"""RowReader: scattered rows of a table, read from its files past the page cache.

Knows where rows lie and that a disk gives whole blocks: rows near each other come with one read,
and several reads are under way at a time. Not what the rows are for, nor which are worth keeping.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

from strata.memory.disk import ALIGN, Descriptor
from strata.types import IntArray, StorageError

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
_NEAR = 2  # blocks (of ALIGN bytes) that are read for nothing rather than with a read more
_WINDOW = 16  # a read begins and ends in one window of so many blocks, but for its last row
_PIECE = 64  # blocks that a thread reads before it hands out the rows
_DEPTH = 8


@dataclass(frozen=True, slots=True)
class TablePart:
    """`rows` rows that follow each other in a file from byte `offset` on."""

    path: Path
    offset: int
    rows: int


class _File:
    """A file that is read in whole blocks, by any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.blocks = -(-path.stat().st_size // ALIGN)
            self._file = Descriptor(path, os.O_RDONLY)
        except OSError as error:
            raise StorageError(f"cannot open {path}: {error.strerror}") from error
        weakref.finalize(self, self._file.close)

    def read(self, block: int, into: Bytes, least: int) -> None:
        """Fills `into` from that block on; at least `least` bytes. StorageError."""
        if trouble := self._file.fill(into.data, block * ALIGN, least):
            raise StorageError(
                f"{self._path} cannot be read at byte {block * ALIGN} ({trouble}): see whether"
                " the file is whole and the disk well"
            )


@dataclass(frozen=True, slots=True, eq=False)
class _Reads:
    """Rows in the order of their places `at` (bytes), and the reads that bring them: read i the
    rows [rows[i], rows[i + 1]) with the blocks [first[i], first[i] + ends[i + 1] - ends[i]).
    """

    at: Numbers
    slots: IntArray
    rows: Numbers
    first: Numbers
    ends: Numbers

    @classmethod
    def plan(cls, at: Numbers, slots: IntArray, row_bytes: int) -> _Reads:
        """The reads that bring the rows at `at` into `slots`."""
        order = np.argsort(at)
        at, slots = at[order], slots[order]
        first, last = at // ALIGN, (at + row_bytes - 1) // ALIGN
        apart = np.ones(len(at), dtype=bool)
        apart[1:] = first[1:] - last[:-1] > _NEAR
        apart[1:] |= first[1:] // _WINDOW != first[:-1] // _WINDOW
        rows = np.append(np.flatnonzero(apart), len(at))
        first = first[rows[:-1]]
        ends = np.append(0, np.cumsum(last[rows[1:] - 1] - first + 1))
        return cls(at, slots, rows, first, ends)

    def pieces(self) -> list[tuple[int, int]]:
        """Ranges of reads, for a thread each."""
        size = min(_PIECE, -(-int(self.ends[-1]) // _DEPTH))
        number = self.ends[:-1] // size
        bounds = np.flatnonzero(np.diff(number, prepend=-1, append=number[-1] + 1))
        return list(zip(bounds.tolist(), bounds[1:].tolist(), strict=False))


class RowReader:
    """Reads rows of `row_bytes` of a table in parts; row numbers run through all of them."""

    def __init__(self, parts: Sequence[TablePart], row_bytes: int) -> None:
        """Raises StorageError when a file cannot be opened."""
        self.rows = sum(part.rows for part in parts)
        self._row_bytes = row_bytes
        self._firsts = np.array([0, *accumulate(part.rows for part in parts)])[:-1]
        # All files lie on one line of blocks, so far apart that no read spans two of them.
        paths = list(dict.fromkeys(part.path for part in parts))
        self._files = [_File(path) for path in paths]
        spans = [(file.blocks // _WINDOW + 2) * _WINDOW for file in self._files]
        self._starts = np.array([0, *accumulate(spans)])[:-1]
        files = [paths.index(part.path) for part in parts]
        self._places = self._starts[files] * ALIGN + [part.offset for part in parts]
        self._pool = ThreadPoolExecutor(_DEPTH, "strata-rows")
        self._buffers: SimpleQueue[Bytes] = SimpleQueue()
        blocks = _PIECE + _WINDOW + row_bytes // ALIGN + 1
        for _ in range(_DEPTH):
            self._buffers.put(np.frombuffer(mmap.mmap(-1, blocks * ALIGN), dtype=np.uint8))

    def read(self, rows: Numbers, table: Bytes, slots: IntArray) -> int:
        """Reads rows [n], each once, into slots [n] of table [slots, row_bytes]. The bytes that
        were read. Raises StorageError once no slot is written any more.
        """
        part = np.searchsorted(self._firsts, rows, side="right") - 1
        at = self._places[part] + (rows - self._firsts[part]) * self._row_bytes
        reads = _Reads.plan(at, slots, self._row_bytes)
        jobs = [self._pool.submit(self._piece, reads, *p, table) for p in reads.pieces()]
        wait(jobs)
        for job in jobs:
            job.result()
        return int(reads.ends[-1]) * ALIGN

    def _piece(self, reads: _Reads, begin: int, end: int, table: Bytes) -> None:
        """Carries out the reads [begin, end)."""
        buffer = self._buffers.get()
        try:
            starts, first = reads.ends[begin : end + 1] - reads.ends[begin], reads.first[begin:end]
            rows = slice(reads.rows[begin], reads.rows[end])
            shift = (starts[:-1] - first) * ALIGN  # from places to the buffer
            at = reads.at[rows] + np.repeat(shift, np.diff(reads.rows[begin : end + 1]))
            lasts = at[reads.rows[begin + 1 : end + 1] - reads.rows[begin] - 1] + self._row_bytes
            files = np.searchsorted(self._starts, first, side="right") - 1
            bounds = (starts * ALIGN).tolist()
            blocks = (first - self._starts[files]).tolist()
            least = (lasts - starts[:-1] * ALIGN).tolist()
            for i, file in enumerate(files.tolist()):
                into = buffer[bounds[i] : bounds[i + 1]]
                self._files[file].read(blocks[i], into, least[i])
            windows = np.lib.stride_tricks.sliding_window_view(buffer, self._row_bytes)
            table[reads.slots[rows]] = windows[at]
        finally:
            self._buffers.put(buffer)
