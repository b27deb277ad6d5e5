"""Policies that look at when a key was last wanted, and take every miss in."""

from __future__ import annotations

import numpy as np

from strata.experts.policy import Floats, Policy
from strata.types import IntArray


class Lru(Policy):
    """The least recently used leaves first."""

    name = "lru"

    def __init__(self, places: int, experts: int) -> None:
        """Nobody was used yet."""
        super().__init__(places, experts)
        self.time = 0
        self.last: Floats = np.full(places * experts, -1.0)

    def note(self, keys: IntArray, counts: IntArray) -> None:
        """All keys of a lookup are used at the same time."""
        self.time += 1
        self.last[keys] = self.time

    def worth(self, keys: IntArray) -> Floats:
        """When it was used."""
        return self.last[keys]

    def admits(self, key: int, victim: int) -> bool:
        """Always."""
        return True

    def learn(self, popularity: Floats) -> None:
        """What was wanted more often counts as used later, all of it before now."""
        super().learn(popularity)
        self.last[:] = popularity / (1.0 + popularity.max()) - 1.0


class LeastStale(Policy):
    """Layers come round in a fixed order: whoever was not wanted in this round leaves before those
    who were, and among equals the one whose layer comes up latest.
    """

    name = "least-stale"

    def __init__(self, places: int, experts: int) -> None:
        """Nobody was used yet."""
        super().__init__(places, experts)
        self.last = np.full(places * experts, -1, np.int64)

    def note(self, keys: IntArray, counts: IntArray) -> None:
        """They are wanted in this round."""
        self.last[keys] = self.step

    def worth(self, keys: IntArray) -> Floats:
        """Less the further ahead its layer is; more than anybody stale if it is fresh."""
        ahead = ((np.arange(self.places) - (self.place + 1)) % self.places)[keys // self.experts]
        fresh = self.last[keys] == self.step
        return np.asarray(fresh * self.places - ahead, np.float64)

    def admits(self, key: int, victim: int) -> bool:
        """Always."""
        return True
