"""The memory plan's part for routed experts: bytes into slots, or the finding that all fit anyway.

Pure arithmetic. Experts come in records; those of one size share slots of that size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil

from strata.memory.budget import SlotShare, parse_size, show_bytes
from strata.types import ConfigError

AUTO = "auto"
HOST, DEVICE = "RAM", "device"
_FLAGS = {HOST: "--expert-ram", DEVICE: "--expert-cache"}
_MIB = 2**20
_RESERVE, _RESERVE_PART = 512 * _MIB, 16


def reserve(available: int) -> int:
    """Bytes of `available` ones that `auto` leaves alone: for a step's own numbers, for texts on
    their way, for the rows of tables that are read where they lie, and for other programs.
    """
    return max(min(_RESERVE, available // 4), available // _RESERVE_PART)


def automatic(experts: int, others: int, available: int) -> int | None:
    """Bytes for experts of `experts` bytes in all beside `others`; None when all of it fits into
    what is available, less the reserve. ConfigError when nothing is left for experts.
    """
    kept = reserve(available)
    spare = available - kept - others
    if experts > spare and spare <= 0:
        raise ConfigError(
            f"nothing of the {show_bytes(available)} of available memory is left for experts:"
            f" other weights and the cache take {show_bytes(others)}, {show_bytes(kept)} are in"
            " reserve; set a smaller --cache-size, or --expert-ram"
        )
    return None if experts <= spare else spare


def size_or_auto(text: str, memory: int) -> int | None:
    """The bytes that a setting asks for; None for `auto`. Raises ConfigError."""
    return None if text == AUTO else parse_size(text, memory)


def share(tier: str, nbytes: int, records: Sequence[int], least: int) -> tuple[SlotShare, ...]:
    """Shares `nbytes` of a tier out to slots for records of these sizes, in proportion, but at
    least `least` slots of each size: a wave needs them. Raises ConfigError.
    """
    counts = Counter(records)
    floors = {size: min(least, count) for size, count in counts.items()}
    floor = sum(size * count for size, count in floors.items())
    total = sum(records)
    if nbytes < floor:
        raise ConfigError(
            f"{show_bytes(nbytes)} for experts is too little: one wave takes {least} of"
            f" {show_bytes(max(records))}; set {_FLAGS[tier]} to at least {ceil(floor / _MIB)}MiB"
            f" (all experts take {ceil(total / _MIB)}MiB)"
        )
    spare, wanted = min(nbytes, total) - floor, max(1, total - floor)
    return tuple(
        SlotShare(tier, size, floors[size] + (count - floors[size]) * spare // wanted, count)
        for size, count in sorted(counts.items())
    )
