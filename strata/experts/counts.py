"""Counts: where routed entries were served from, by row of the step and by place since start.

What a lookup moved and waited is shared among its rows, so that rows add up to places: bytes to the
last one. Knows no slots and no policy.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strata.figures import ExpertUse
from strata.types import IntArray

DEVICE, BUS, HOST, DISK = range(4)
_MOVING = (BUS, DISK)

Longs = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]


class Counts:
    """entries int64 [n, 4] by lane, nbytes int64 [n, 2] and stalled float64 [n, 2] over the bus and
    from the disk: of the rows of this step, and of all places.
    """

    def __init__(self, places: int) -> None:
        self.by_place = Table(places)
        self._by_row = Table(0)
        self._row_of: Longs = np.zeros(0, np.int64)
        self._tokens: Longs = np.zeros(0, np.int64)

    def begin(self, row_starts: IntArray) -> None:
        """A step of rows begins; `row_starts` as in a ForwardPlan."""
        rows = len(row_starts) - 1
        self._by_row = Table(rows)
        self._tokens = np.diff(row_starts).astype(np.int64)
        # Numbered by lanes, so that adding an entry's lane gives its cell of the table.
        self._row_of = np.repeat(np.arange(rows) * 4, self._tokens)[:, None]

    @property
    def rows(self) -> int:
        """Rows of this step."""
        return len(self._by_row.entries)

    def lookup(self, place: int, chosen: IntArray, lane: int | npt.NDArray[np.uint8]) -> Longs:
        """A lookup of `chosen` [tokens, k], all in one lane or `lane` [experts]. Its entries
        [rows, 4].
        """
        if isinstance(lane, int):
            entries = np.zeros((self.rows, 4), np.int64)
            entries[:, lane] = self._tokens * chosen.shape[1]
        else:
            cells = self._row_of + lane[chosen]
            entries = np.bincount(cells.ravel(), minlength=4 * self.rows).reshape(-1, 4)
        self._by_row.entries += entries
        self.by_place.entries[place] += entries.sum(0)
        return entries

    def moved(self, place: int, lane: int, nbytes: int, weights: Longs) -> None:
        """A lookup moved bytes over BUS or DISK; rows bear them as `weights` [rows] are."""
        way = _MOVING.index(lane)
        self._by_row.nbytes[:, way] += share(nbytes, weights)
        self.by_place.nbytes[place, way] += nbytes

    def stalled(self, place: int, lane: int, seconds: float, weights: Longs) -> None:
        """A lookup waited for BUS or DISK, likewise."""
        way = _MOVING.index(lane)
        self._by_row.stalled[:, way] += seconds * (weights / weights.sum())
        self.by_place.stalled[place, way] += seconds

    def tally(self) -> list[ExpertUse]:
        """Each row's part of this step."""
        return self._by_row.uses()


class Table:
    """See Counts."""

    def __init__(self, n: int) -> None:
        self.entries = np.zeros((n, 4), np.int64)
        self.nbytes = np.zeros((n, 2), np.int64)
        self.stalled = np.zeros((n, 2), np.float64)

    def copy(self) -> Table:
        """As it is now."""
        other = Table(0)
        other.entries, other.nbytes = self.entries.copy(), self.nbytes.copy()
        other.stalled = self.stalled.copy()
        return other

    def uses(self) -> list[ExpertUse]:
        """One for each line."""
        sums = self.entries.sum(1).tolist()
        lines = zip(
            sums, self.entries.tolist(), self.nbytes.tolist(), self.stalled.tolist(), strict=True
        )
        return [ExpertUse(total, *lanes, *moved, *waited) for total, lanes, moved, waited in lines]


def share(total: int, weights: Longs) -> Longs:
    """`total` in whole parts as `weights` [n] are, the largest remainders rounded up."""
    exact, whole = total * weights, int(weights.sum())
    parts = exact // whole
    missing = total - int(parts.sum())
    if missing:
        parts[np.argsort(-(exact % whole), kind="stable")[:missing]] += 1
    return parts
