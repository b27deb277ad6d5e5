"""Advice to the system about memory that a file is mapped into.

Advice only: the bytes stay the same and readable, and where it is not understood nothing happens.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable

from torch import Tensor

# Of <linux/mman.h>. PAGEOUT, unlike DONTNEED, also leaves memory without a file as it is, and it
# takes clean pages out of the page cache too.
_WILLNEED, _PAGEOUT = 3, 21


def will_need(pieces: Iterable[Tensor]) -> None:
    """These bytes are going to be read: the system may fetch them meanwhile."""
    for one in pieces:
        _advise(one.data_ptr(), one.data_ptr() + one.nbytes, _WILLNEED)


def done_with(pieces: Iterable[Tensor]) -> None:
    """These bytes are not going to be read soon: their memory serves others better.

    Pieces that lie side by side go as one, since the system keeps what it holds only a part of: up
    to 2 MiB at each end.
    """
    start = end = 0
    for first, last in sorted((one.data_ptr(), one.data_ptr() + one.nbytes) for one in pieces):
        if first > end + mmap.PAGESIZE:
            _advise(start, end, _PAGEOUT)
            start = first
        end = last
    _advise(start, end, _PAGEOUT)


def _advise(start: int, end: int, advice: int) -> None:
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is not None and end > start:
        start = start // mmap.PAGESIZE * mmap.PAGESIZE
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), advice)
