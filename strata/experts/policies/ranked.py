"""A policy that gives every key a worth: the least worthy lose their slots.

Knows the clock of steps and how often each key was wanted. What a slot is worth to a key is the
subclass's idea.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from strata.types import IntArray

Floats = npt.NDArray[np.float64]
_FEW = 16


class Ranked(ABC):
    """A policy by worth. `step` counts the rounds of layers, `place` is the layer at work."""

    name: str

    def __init__(self, places: int, experts: int) -> None:
        """Nothing was wanted yet."""
        self.places, self.experts = places, experts
        self.step, self.place = 0, -1
        self.wanted: Floats = np.zeros(places * experts)

    @abstractmethod
    def worth(self, keys: IntArray) -> Floats:
        """What a slot is worth to each key, in a new array; only the order counts."""

    @abstractmethod
    def note(self, keys: IntArray, counts: IntArray) -> None:
        """Takes in a lookup; the clock is set already."""

    def touch(self, keys: IntArray, counts: IntArray) -> None:
        """Sets the clock: a place that is not beyond the last one begins a step."""
        place = int(keys[0]) // self.experts
        self.step += place <= self.place
        self.place = place
        self.wanted[keys] += 1
        self.note(keys, counts)

    def enter(self, key: int) -> None:  # noqa: B027
        """A slot changes nothing of what it is worth."""

    def leave(self, key: int) -> None:  # noqa: B027
        """A slot changes nothing of what it was worth."""

    def victims(self, candidates: IntArray, number: int) -> IntArray:
        """The least worthy first."""
        worth = self.worth(candidates)
        if number > _FEW:
            return candidates[worth.argsort()[:number]]
        # Some ten passes over thousands cost a tenth of partitioning them, which ties slow further.
        least = []
        for _ in range(min(number, len(candidates))):
            least.append(int(worth.argmin()))
            worth[least[-1]] = np.inf
        return candidates[least]

    def admits(self, key: int, victim: int) -> bool:
        """Whoever is worth more has the slot."""
        mine, its = self.worth(np.array([key, victim], np.int32))
        return bool(mine > its)

    def popularity(self) -> Floats:
        """Lookups since the beginning of what was learned."""
        return self.wanted.copy()

    def learn(self, popularity: Floats) -> None:
        """Goes on counting from there."""
        self.wanted[:] = popularity
