"""What a cached thing is worth, and who is the least worth.

Knows numbers only: neither nodes nor pages. `value` is GreedyDual-Size-Frequency: the clock rises
to the value of each victim, so what is not used grows old without any timestamp.

Invariant of `Ranking`: it holds exactly the items that were set and not discarded; what `pop`
returns was the lowest by the values set. Values that have risen since are the caller's to see:
set the item again and pop once more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


def value(age: float, hits: int, saved: int, size: int) -> float:
    """Worth per byte of something last used when the clock was `age`.

    `saved` tokens need not be computed again at each use; it was used `hits` times and takes
    `size` bytes.
    """
    return age + (1 + hits) * saved / size


class Ranking(Generic[T]):
    """Items by value, the lowest first; a heap whose entries are checked when they surface."""

    def __init__(self) -> None:
        self._values: dict[T, float] = {}
        self._heap: list[tuple[float, int, T]] = []
        self._ties = count()

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[T]:
        return iter(self._values)

    def set(self, item: T, worth: float) -> None:
        """Add an item, or change its value."""
        if self._values.get(item) == worth:
            return
        self._values[item] = worth
        if len(self._heap) > 64 + 2 * len(self._values):
            self._rebuild()
        else:
            heappush(self._heap, (worth, next(self._ties), item))

    def discard(self, item: T) -> None:
        """Take an item out, if it is there."""
        self._values.pop(item, None)

    def lowest(self, worth: Callable[[T], float]) -> tuple[T, float] | None:
        """The item of the lowest value and that value, as `worth` says now. It stays in."""
        while self._heap:
            known, _, item = self._heap[0]
            if self._values.get(item) != known:  # changed or discarded since
                heappop(self._heap)
                continue
            now = worth(item)
            if now <= known:
                return item, now
            heappop(self._heap)
            self.set(item, now)
        return None

    def _rebuild(self) -> None:
        """Leave out the entries of the past, which would else pile up."""
        self._heap = [(worth, next(self._ties), item) for item, worth in self._values.items()]
        heapify(self._heap)
