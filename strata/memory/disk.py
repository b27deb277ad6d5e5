"""RecordFile: numbered records on a disk, read past the page cache; and how they are written.

Direct I/O moves bytes between the device and our own memory. The page cache in between would cost
a copy, would double the memory that a record takes, and is several times slower once the file is
larger than it. Where a file system refuses direct I/O, the page cache is used and emptied behind
us. Knows a record by its place, its size and its checksum, not what it holds.

Addresses, offsets and sizes are multiples of `ALIGN`.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from strata.memory.arena import SlotArena
from strata.types import StorageError

ALIGN = 4096
DEPTHS = (1, 2, 4, 8)
_RETRIES = 3
_PAUSE_S = 0.01
_DIRECT = getattr(os, "O_DIRECT", 0)
# Read into by turns when measuring: what lies in the processor's cache is faster to write to.
_SPREAD = 64 << 20
_ENOUGH = 0.95  # of the best rate: a deeper queue only makes each read wait longer
_log = logging.getLogger(__name__)


class Descriptor:
    """An open file that gives up direct I/O when it is refused. Used by many threads at once."""

    def __init__(self, path: Path, flags: int) -> None:
        """Raises OSError."""
        self._path, self._flags = path, flags | os.O_CLOEXEC
        self._lock = threading.Lock()
        self._open: list[int] = []
        # Descriptor and whether it is direct, replaced as one by `give_up`.
        self.current = (-1, bool(_DIRECT))
        if _DIRECT:
            try:
                self._replace(_DIRECT)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
        if self.current[0] < 0:
            self.give_up()

    def give_up(self) -> None:
        """From now on through the page cache. Others may still be using the old descriptor."""
        with self._lock:
            if self.current[1]:
                _log.warning("%s: direct I/O is refused; the page cache is used", self._path)
                self._replace(0)

    def read(self, view: memoryview, offset: int) -> int:
        """Bytes that one read gave; from a place, of a length and to an address that are multiples
        of `ALIGN`. Raises OSError.
        """
        fd, direct = self.current
        try:
            count = os.preadv(fd, [view], offset)
        except OSError as error:
            if not _refused(error, direct):
                raise
            self.give_up()
            return self.read(view, offset)
        if not direct:
            _forget(fd, offset, len(view))
        return count

    def fill(self, view: memoryview, offset: int, least: int, pause_s: float = 0.0) -> str:
        """Reads at least `least` bytes; "", or what is wrong, even after retries. `pause_s` goes
        before the first of them; the next ones wait longer.
        """
        trouble = ""
        for attempt in range(1 + _RETRIES):
            if attempt:
                time.sleep(attempt * pause_s)
            try:
                count = self.read(view, offset)
            except OSError as error:
                trouble = error.strerror or str(error)
            else:
                if count >= least:
                    return ""
                trouble = f"only {count} of {least} bytes came"
        return trouble

    def _replace(self, direct: int) -> None:
        fd = os.open(self._path, self._flags | direct, 0o644)
        self._open.append(fd)
        self.current = (fd, bool(direct))

    def close(self) -> None:
        """Once nobody uses it any more."""
        while self._open:
            os.close(self._open.pop())


def _refused(error: OSError, direct: bool) -> bool:
    return direct and error.errno == errno.EINVAL


def _forget(fd: int, offset: int, size: int) -> None:
    """Empties the page cache of these bytes."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, offset, size, os.POSIX_FADV_DONTNEED)


# ------------------------------------------------------------------ reading


class RecordFile:
    """Record i is `sizes[i]` bytes at `offsets[i]` whose CRC-32 is `sums[i]`, checked on its first
    read. Reads may come from many threads at once.
    """

    def __init__(
        self,
        path: Path,
        offsets: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        sums: npt.NDArray[np.uint32],
    ) -> None:
        """StorageError when the file cannot be opened."""
        assert len(offsets) == len(sizes) == len(sums)
        assert not (offsets % ALIGN).any() and not (sizes % ALIGN).any()
        self.path = path
        self.sizes = sizes
        self._offsets, self._sums = offsets, sums
        self._verified = bytearray(len(sums))
        try:
            self._file = Descriptor(path, os.O_RDONLY)
        except OSError as error:
            raise StorageError(f"cannot open {path}: {error.strerror or error}") from error

    def read(self, number: int, into: Tensor) -> None:
        """Fills `into`, uint8 [sizes[number]] in main memory, with a record.

        StorageError when it cannot be read, even after retries, or is not what was written: then
        the bytes of `into` mean nothing.
        """
        view = _view(into)
        for _ in range(2):  # what a cable or the memory garbled may be right the next time
            self._fetch(number, view)
            if self._verified[number] or zlib.crc32(view) == self._sums[number]:
                self._verified[number] = 1
                return
        raise StorageError(
            f"record {number} of {self.path} is damaged (its checksum is wrong): pack the model"
            " again with `strata pack --force`, and look after the disk if it comes back"
        )

    def _fetch(self, number: int, view: memoryview) -> None:
        """Reads without a look at the checksum."""
        size, offset = int(self.sizes[number]), int(self._offsets[number])
        assert len(view) == size
        if trouble := self._file.fill(view, offset, size, _PAUSE_S):
            raise StorageError(
                f"record {number} of {self.path} cannot be read ({trouble}): check the disk; if it"
                " is sound, pack the model again with `strata pack --force`"
            )

    def close(self) -> None:
        """Once no read is under way."""
        self._file.close()

    def rates(self, depths: Sequence[int] = DEPTHS, seconds: float = 0.2) -> dict[int, float]:
        """Bytes/s of reading random records by that many threads at once, each depth for `seconds`
        seconds. Checksums are not looked at. Raises StorageError.
        """
        order = cycle(np.random.default_rng().permutation(len(self.sizes)).tolist())
        return {depth: self._rate(order, depth, seconds) for depth in depths}

    def _rate(self, order: Iterator[int], depth: int, seconds: float) -> float:
        size = int(self.sizes.max())
        arena = SlotArena(max(depth, _SPREAD // size // depth * depth), size)
        arena.data.fill_(1)  # so that no page of it is made while we measure
        began = time.perf_counter()

        def reader(first: int) -> int:
            count, slots = 0, cycle(arena.data[first::depth])
            while not count or time.perf_counter() - began < seconds:
                number = next(order)
                view = _view(next(slots)[: int(self.sizes[number])])
                self._fetch(number, view)
                count += len(view)
            return count

        with ThreadPoolExecutor(depth) as pool:
            total = sum(pool.map(reader, range(depth)))
        return total / (time.perf_counter() - began)


def best_depth(rates: Mapping[int, float]) -> int:
    """The smallest depth that is about as fast as the fastest."""
    return min(depth for depth, rate in rates.items() if rate >= _ENOUGH * max(rates.values()))


def _view(record: Tensor) -> memoryview:
    assert record.data_ptr() % ALIGN == 0, "direct I/O needs aligned memory"
    return record.numpy().data


# ------------------------------------------------------------------ writing


class RecordWriter:
    """Writes records one behind the other. A context manager: closes the file."""

    def __init__(self, path: Path, offset: int) -> None:
        """Goes on at `offset`; what lies behind it is cut off. Raises OSError, as all of this."""
        self._file = Descriptor(path, os.O_RDWR | os.O_CREAT)
        self._at = offset
        os.truncate(path, offset)

    def write(self, record: Tensor) -> None:
        """Appends uint8 [n] from main memory."""
        view = _view(record)
        while view:
            fd, direct = self._file.current
            try:
                count = os.pwrite(fd, view, self._at)
            except OSError as error:
                if not _refused(error, direct):
                    raise
                self._file.give_up()
                continue
            self._at += count
            view = view[count:]

    def sync(self) -> None:
        """Returns once everything written lies on the disk."""
        fd, direct = self._file.current
        os.fsync(fd)
        if not direct:
            _forget(fd, 0, self._at)

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *failure: object) -> None:
        self._file.close()
