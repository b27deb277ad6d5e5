"""A policy in which no layer is starved: each keeps some of its experts while others can leave."""

from __future__ import annotations

import numpy as np

from strata.experts.policy import Floats, Policy
from strata.types import IntArray


class Floors(Policy):
    """Another policy's choice, but the last `floor` experts of a layer leave after all others."""

    def __init__(self, inner: Policy, places: int, experts: int, floor: int) -> None:
        self.name = inner.name
        self._inner, self._floor = inner, floor
        self._place_of = np.arange(places * experts, dtype=np.int32) // experts
        self._held = np.zeros(places * experts, bool)
        self._kept = np.zeros(places, np.int64)  # experts of each place that have slots

    def touch(self, keys: IntArray, counts: IntArray) -> None:
        """Passed on."""
        self._inner.touch(keys, counts)

    def enter(self, key: int) -> None:
        """Counted, and passed on."""
        assert not self._held[key]
        self._held[key] = True
        self._kept[self._place_of[key]] += 1
        self._inner.enter(key)

    def leave(self, key: int) -> None:
        """Counted, and passed on."""
        assert self._held[key]
        self._held[key] = False
        self._kept[self._place_of[key]] -= 1
        self._inner.leave(key)

    def victims(self, candidates: IntArray, number: int) -> IntArray:
        """In the policy's order, but for those that a floor holds, who come last."""
        spare = self._kept - self._floor
        chosen, rest = candidates[:0], candidates
        while len(chosen) < number:
            free = rest[~self._held[rest] | (spare > 0)[self._place_of[rest]]]
            if not len(free):
                break
            asked = self._inner.victims(free, min(number - len(chosen), len(free)))
            places = self._place_of[asked]
            taken = asked[~self._held[asked] | (_earlier(places) < spare[places])]
            spare -= np.bincount(self._place_of[taken], minlength=len(spare))
            chosen = np.append(chosen, taken)
            if len(chosen) < number:
                rest = rest[~np.isin(rest, taken)]
        if len(chosen) < number:
            chosen = np.append(chosen, self._inner.victims(rest, number - len(chosen)))
        return chosen

    def admits(self, key: int, victim: int) -> bool:
        """The policy's word: floors say who leaves, not who enters."""
        return self._inner.admits(key, victim)

    def popularity(self) -> Floats:
        """The policy's."""
        return self._inner.popularity()

    def learn(self, popularity: Floats) -> None:
        """Passed on."""
        self._inner.learn(popularity)


def _earlier(places: IntArray) -> IntArray:
    """How many times each place has come before in the list."""
    order = places.argsort(kind="stable")
    ranked = places[order]
    earlier = np.empty(len(places), np.int32)
    earlier[order] = np.arange(len(places)) - np.searchsorted(ranked, ranked)
    return earlier
