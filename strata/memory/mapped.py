"""Advice to the system about memory that a file is mapped into.

Advice only: the bytes stay the same and readable, and where it is not understood nothing happens.
"""

from __future__ import annotations

import ctypes
import mmap

from torch import Tensor

# Of <linux/mman.h>. PAGEOUT, unlike DONTNEED, also leaves memory without a file as it is, and it
# takes clean pages out of the page cache too.
_WILLNEED, _PAGEOUT = 3, 21


def will_need(data: Tensor) -> None:
    """These bytes are going to be read: the system may fetch them meanwhile."""
    _advise(data, _WILLNEED)


def done_with(data: Tensor) -> None:
    """These bytes are not going to be read soon: their memory serves others better."""
    _advise(data, _PAGEOUT)


def _advise(data: Tensor, advice: int) -> None:
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is not None:
        start = data.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
        size = data.data_ptr() + data.nbytes - start
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), advice)
