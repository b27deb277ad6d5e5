"""What no policy can beat: Belady's choice, for which the future is known; and the best fixed set.

A lookup wants all its keys at once. With bypass a key that is read need not stay, and by the
exchange argument for intervals keeping whatever is wanted soonest is optimal. Without, all keys of
a lookup stay until the next one, which may push out what is wanted sooner.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from strata.types import IntArray

Hits = list[npt.NDArray[np.bool_]]


def next_uses(lookups: Sequence[IntArray], keys: int) -> list[IntArray]:
    """For each key of each lookup the next lookup that wants it; len(lookups) when none does."""
    upcoming = np.full(keys, len(lookups), np.int32)
    found = []
    for at in range(len(lookups) - 1, -1, -1):
        found.append(upcoming[lookups[at]])
        upcoming[lookups[at]] = at
    return found[::-1]


def belady(lookups: Sequence[IntArray], keys: int, slots: int, bypass: bool) -> Hits:
    """Which keys of each lookup have a slot already, at best. A lookup of more keys than `slots`
    keeps as many of them as it can.
    """
    held: dict[int, int] = {}  # key -> the lookup that wants it next
    latest: list[tuple[int, int]] = []  # a heap of (-next, key), some of them outdated
    hits: Hits = []
    for wanted, following in zip(lookups, next_uses(lookups, keys), strict=True):
        names = wanted.tolist()
        hits.append(np.array([held.pop(key, None) is not None for key in names], bool))
        if not bypass:
            _drop(held, latest, max(0, slots - len(names)))
        for key, following_use in zip(names, following.tolist(), strict=True):
            held[key] = following_use
            heapq.heappush(latest, (-following_use, key))
        _drop(held, latest, slots)
    return hits


def _drop(held: dict[int, int], latest: list[tuple[int, int]], slots: int) -> None:
    """Those wanted latest leave until `slots` are left."""
    while len(held) > slots:
        following, key = heapq.heappop(latest)
        if held.get(key) == -following:
            del held[key]


def static(lookups: Sequence[IntArray], keys: int, slots: int) -> Hits:
    """Hits of the keys that are wanted most often, each read once and kept for good."""
    counts = np.zeros(keys, np.int64)
    for wanted in lookups:
        counts[wanted] += 1
    kept = np.zeros(keys, bool)
    kept[np.argsort(-counts, kind="stable")[:slots]] = True
    seen, hits = np.zeros(keys, bool), list[npt.NDArray[np.bool_]]()
    for wanted in lookups:
        hits.append(kept[wanted] & seen[wanted])
        seen[wanted] = True
    return hits
