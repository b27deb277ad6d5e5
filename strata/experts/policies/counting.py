"""Policies that look at when a key was last wanted, or count how often."""

from __future__ import annotations

import numpy as np

from strata.experts.policy import Floats, Policy
from strata.types import IntArray

_HALF_LIFE = 256  # steps after which a lookup counts half
_LARGEST = 1e100


class Lru(Policy):
    """The least recently used leaves first."""

    name = "lru"

    def __init__(self, places: int, experts: int) -> None:
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


class Tally:
    """Counts of keys that age: instead of the old shrinking, the new weigh more and more."""

    def __init__(self, keys: int) -> None:
        self.counts: Floats = np.zeros(keys)
        self.weight, self.step = 1.0, 0

    def add(self, keys: IntArray, step: int) -> None:
        """The keys are wanted once more at `step`, which never falls."""
        self.weight *= 2.0 ** ((step - self.step) / _HALF_LIFE)
        self.step = step
        self.counts[keys] += self.weight
        if self.weight > _LARGEST:
            self.counts /= self.weight
            self.weight = 1.0

    def learn(self, popularity: Floats) -> None:
        """Goes on from another run's counts, which together soon weigh less than the new ones."""
        self.counts[:] = popularity * (_HALF_LIFE / max(1.0, float(popularity.max())))


class Lfu(Policy):
    """The least often wanted leaves first, and a key enters only past one that is wanted less."""

    name = "lfu"

    def __init__(self, places: int, experts: int) -> None:
        super().__init__(places, experts)
        self.tally = Tally(places * experts)

    def note(self, keys: IntArray, counts: IntArray) -> None:
        """One more for each key."""
        self.tally.add(keys, self.step)

    def worth(self, keys: IntArray) -> Floats:
        """Its count."""
        return self.tally.counts[keys]

    def learn(self, popularity: Floats) -> None:
        """Goes on counting from there."""
        super().learn(popularity)
        self.tally.learn(popularity)


class TinyLfu(Lru):
    """The least recently used leaves first, but only for a key that is wanted more often. The
    window of W-TinyLFU is the passing slots: what is refused has been used already.
    """

    name = "tinylfu"

    def __init__(self, places: int, experts: int) -> None:
        super().__init__(places, experts)
        self.tally = Tally(places * experts)

    def note(self, keys: IntArray, counts: IntArray) -> None:
        """Used now, and once more."""
        super().note(keys, counts)
        self.tally.add(keys, self.step)

    def admits(self, key: int, victim: int) -> bool:
        """Whether it is wanted more often."""
        return bool(self.tally.counts[key] > self.tally.counts[victim])

    def learn(self, popularity: Floats) -> None:
        """Goes on counting from there."""
        super().learn(popularity)
        self.tally.learn(popularity)
