"""SlotArena: n equal slots of bytes on one device.

Owns the bytes and a free list of slot numbers. Does not know what a slot holds.
The bytes never move, so kernels may keep raw pointers into them; they begin as
zeros. On the CPU they lie in huge pages where the system grants them, because a
step touches a few kilobytes in each of many slots.
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

    `data` is uint8 [slots, nbytes], contiguous. Free slots are handed out by
    `take` and come back by `give`; users with a numbering of their own (the
    prefix cache) use the bytes only.
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
        self._free = list(range(slots - 1, -1, -1))
        self._taken = bytearray(slots)

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

    def take(self) -> int | None:
        """A free slot, now taken; None when there is none."""
        if not self._free:
            return None
        slot = self._free.pop()
        self._taken[slot] = 1
        return slot

    def give(self, slot: int) -> None:
        """Return a slot that `take` handed out. Its bytes stay as they are."""
        assert self._taken[slot], f"slot {slot} is free already"
        self._taken[slot] = 0
        self._free.append(slot)

    @property
    def free(self) -> int:
        """How many slots can be taken."""
        return len(self._free)
