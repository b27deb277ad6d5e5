"""Advice to the system about memory that a file is mapped into.

Advice only: the bytes stay the same and readable, and where it is not understood nothing happens.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from strata.files import ModelFile
from strata.memory.machine import available_memory

if TYPE_CHECKING:  # reading ahead begins before torch is there
    from torch import Tensor

# Of <linux/mman.h>. PAGEOUT, unlike DONTNEED, also leaves memory without a file as it is, and it
# takes clean pages out of the page cache too.
_WILLNEED, _DONTNEED, _PAGEOUT = 3, 4, 21
_AHEAD = 16 << 20
"""What is asked for at once: the system blocks when the disk has more to do than it can note."""

Span = tuple[int, int]  # addresses: the first, and the one behind the last


def will_need(pieces: Iterable[Tensor]) -> None:
    """These bytes are going to be read: the system may fetch them meanwhile."""
    for start, end in _spans(pieces):
        _advise(start, end, _WILLNEED)


def done_with(pieces: Iterable[Tensor]) -> None:
    """These bytes are not going to be read soon: their memory serves others better.

    Pieces that lie side by side go as one, since the system keeps what it holds only a part of: up
    to 2 MiB at each end.
    """
    for start, end in _joined(_spans(pieces)):
        _advise(start, end, _PAGEOUT)


class Mapped:
    """A file's tensors where they are mapped; those that lie in memory of their own are left
    alone.
    """

    def __init__(self, file: ModelFile) -> None:
        mapped = {
            name: entry.data for name, entry in file.tensors.items() if _is_mapped(entry.data)
        }
        self._all = list(_joined(map(_span, mapped.values())))
        # Embeddings are read by the row.
        self._ahead = list(
            _joined(_span(data) for name, data in mapped.items() if "emb" not in name)
        )

    def fits(self) -> bool:
        """Whether there is memory for the weights twice: in the system's cache and packed."""
        return 2 * sum(end - start for start, end in self._ahead) < available_memory()

    def read_ahead(self) -> threading.Thread:
        """Has the system read the weights from front to back, on a thread that this starts."""
        thread = threading.Thread(target=self._read, name="strata-ahead", daemon=True)
        thread.start()
        return thread

    def let_go(self) -> None:
        """The pages no longer count as this process's; the system keeps what they hold as long as
        it has no better use for them.
        """
        for start, end in self._all:
            _advise(start, end, _DONTNEED)

    def _read(self) -> None:
        for start, end in self._ahead:
            for at in range(start, end, _AHEAD):
                _advise(at, min(at + _AHEAD, end), _WILLNEED)


def _is_mapped(data: object) -> bool:
    """Whether an array is a view of a file that nobody writes to."""
    while isinstance(data, np.ndarray):
        if isinstance(data, np.memmap):
            return data.mode == "r"
        data = data.base
    return False


def _span(data: npt.NDArray[np.uint8]) -> Span:
    return data.ctypes.data, data.ctypes.data + data.nbytes


def _spans(pieces: Iterable[Tensor]) -> Iterator[Span]:
    for one in pieces:
        yield one.data_ptr(), one.data_ptr() + one.nbytes


def _joined(spans: Iterable[Span]) -> Iterator[Span]:
    """In ascending order, with what lies side by side as one."""
    start = end = 0
    for first, last in sorted(spans):
        if first > end + mmap.PAGESIZE:
            yield start, end
            start = first
        end = last
    yield start, end


def _advise(start: int, end: int, advice: int) -> None:
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is not None and end > start:
        start = start // mmap.PAGESIZE * mmap.PAGESIZE
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), advice)
