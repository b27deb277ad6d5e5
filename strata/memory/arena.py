"""SlotArena: n equal slots of bytes on one device.

Owns the bytes. Does not know what a slot holds, nor which are in use: their numbers
belong to the prefix cache. The bytes never move, so kernels may keep raw pointers
into them; they begin as zeros. On the CPU they lie in huge pages where the system
grants them, because a step touches a few kilobytes in each of many slots.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from math import prod

import torch

from strata.types import ConfigError

_HUGE = 2 << 20


def _mapped_zeros(nbytes: int) -> torch.Tensor:
    """Zeroed private memory, aligned to 2 MiB; the system fills it page by page on first use."""
    try:
        # One huge page more than asked for, to be able to begin on a border.
        area = mmap.mmap(-1, nbytes + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the system refuses {nbytes / 2**30:.2f} GiB of memory ({error});"
            " choose a smaller --cache-size"
        ) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages: slower, nothing else
            area.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(area, dtype=torch.uint8)  # the tensor keeps the mapping alive
    start = -whole.data_ptr() % _HUGE
    return whole[start : start + nbytes]


class SlotArena:
    """`slots` records of `nbytes` bytes each.

    `data` is uint8 [slots, nbytes], contiguous.
    """

    def __init__(self, slots: int, nbytes: int, device: str = "cpu") -> None:
        """`nbytes` must be a multiple of 64, so that every record is aligned like the first."""
        assert slots >= 0 and nbytes % 64 == 0
        self.slots = slots
        self.nbytes = nbytes
        if device == "cpu":
            flat = _mapped_zeros(slots * nbytes)
        else:
            flat = torch.zeros(slots * nbytes, dtype=torch.uint8, device=device)
        self.data = flat.view(slots, nbytes)

    def field(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """The array at byte `offset` of every record: a strided view [slots, *shape]."""
        size = dtype.itemsize
        assert offset % size == 0 and offset + prod(shape) * size <= self.nbytes
        strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
        flat = self.data.view(-1).view(dtype)
        return flat.as_strided(
            (self.slots, *shape),
            (self.nbytes // size, *strides),
            flat.storage_offset() + offset // size,
        )
