"""The rows of a step as ops with a state per sequence see them.

Knows slots, row bounds and captures of a plan; not what a state holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from strata.types import Capture


@dataclass(frozen=True, slots=True)
class StateRow:
    """Tokens [first, end) of the step belong to the sequence whose state is in `slot`."""

    first: int
    end: int
    slot: int
    captures: tuple[Capture, ...]

    def captures_after(self, count: int) -> list[int]:
        """Slots that want the state after the row's first `count` tokens."""
        return [capture.slot for capture in self.captures if capture.offset == count]


@dataclass(frozen=True, slots=True)
class StateStep:
    """row_starts and state_slots as in ForwardPlan, as lists."""

    row_starts: list[int]
    state_slots: list[int]
    captures: tuple[Capture, ...]

    def rows(self) -> Iterator[StateRow]:
        """Every row with tokens."""
        bounds = zip(self.row_starts, self.row_starts[1:], strict=False)
        for row, (first, end) in enumerate(bounds):
            if first < end:
                own = tuple(capture for capture in self.captures if capture.row == row)
                yield StateRow(first, end, self.state_slots[row], own)
