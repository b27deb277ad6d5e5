"""A recorded trace against a policy, without a model, by the store's own rules.

A lookup wants all its experts; those without a slot are read, and `policy.settle` says which of
them stay. The others pass: slots to read into are beyond the `slots` counted here. Every record
that is read counts as moved, whether it stays or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from strata.experts import bounds
from strata.experts.policy import Policy, settle
from strata.experts.trace import Lookup, Trace
from strata.types import IntArray

Make = Callable[[int, int], Policy]  # of places and experts
BOUNDS = ("belady, bypass", "belady", "static")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `slots` slots came to. A lookup is of one distinct expert; entries are those of the
    tokens that chose it.
    """

    policy: str
    slots: int
    lookups: int
    hits: int
    entries: int
    hit_entries: int
    moved_bytes: int
    evicted: int = 0
    passed: int = 0

    @property
    def rate(self) -> float:
        """Part of the lookups that found their expert in a slot."""
        return self.hits / max(1, self.lookups)

    @property
    def entry_rate(self) -> float:
        """The same part, of entries."""
        return self.hit_entries / max(1, self.entries)

    def __add__(self, other: Outcome) -> Outcome:
        """Two shelves of one run."""
        mine = (getattr(self, name) for name in self.__slots__[1:])
        its = (getattr(other, name) for name in self.__slots__[1:])
        return Outcome(self.policy, *(a + b for a, b in zip(mine, its, strict=True)))


def replay(trace: Trace, make: Make, share: float) -> Outcome:
    """The policy's outcome with slots for `share` of the experts of each record size."""

    def run(lookups: Sequence[Lookup], slots: int) -> tuple[str, bounds.Hits, int, int]:
        policy = make(trace.head.places, trace.head.experts)
        return (policy.name, *_run(policy, lookups, trace.head.experts, trace.keys, slots))

    return _by_shelf(trace, share, run)


def bound(trace: Trace, name: str, share: float) -> Outcome:
    """One of BOUNDS with slots for `share` of the experts of each record size."""

    def run(lookups: Sequence[Lookup], slots: int) -> tuple[str, bounds.Hits, int, int]:
        wanted = [keys_of(one, trace.head.experts) for one in lookups]
        if name == "static":
            return name, bounds.static(wanted, trace.keys, slots), 0, 0
        return name, bounds.belady(wanted, trace.keys, slots, name != "belady"), 0, 0

    return _by_shelf(trace, share, run)


def keys_of(lookup: Lookup, experts: int) -> IntArray:
    """The keys that a lookup wants."""
    return lookup.place * experts + lookup.experts


def _by_shelf(
    trace: Trace,
    share: float,
    run: Callable[[Sequence[Lookup], int], tuple[str, bounds.Hits, int, int]],
) -> Outcome:
    """The sum over record sizes of what `run` makes of each one's lookups and slots."""
    total: Outcome | None = None
    for size, places in trace.shelves():
        lookups = [one for one in trace.lookups if one.place in places]
        slots = max(1, round(share * len(places) * trace.head.experts))
        name, hits, evicted, passed = run(lookups, slots)
        found = sum(int(one.sum()) for one in hits)
        number = sum(len(one.experts) for one in lookups)
        shelf = Outcome(
            policy=name,
            slots=slots,
            lookups=number,
            hits=found,
            entries=sum(int(one.counts.sum()) for one in lookups),
            hit_entries=sum(
                int(one.counts[hit].sum()) for one, hit in zip(lookups, hits, strict=True)
            ),
            moved_bytes=(number - found) * size,
            evicted=evicted,
            passed=passed,
        )
        total = shelf if total is None else total + shelf
    assert total is not None
    return total


def _run(
    policy: Policy, lookups: Sequence[Lookup], experts: int, keys: int, slots: int
) -> tuple[bounds.Hits, int, int]:
    """Hits of each lookup, how many keys lost their slot, and how many passed."""
    held, filled, evicted, passed = np.zeros(keys, bool), 0, 0, 0
    hits: bounds.Hits = []
    for lookup in lookups:
        wanted = keys_of(lookup, experts)
        policy.touch(wanted, lookup.counts)
        hit = held[wanted]
        hits.append(hit)
        if hit.all():
            continue
        missing = wanted[~hit]
        held[wanted] = False
        others = np.flatnonzero(held).astype(np.int32)
        held[wanted] = hit
        kept, taken = settle(policy, missing, others, slots - filled)
        for key in taken.tolist():
            policy.leave(key)
        for key in kept.tolist():
            policy.enter(key)
        held[taken], held[kept] = False, True
        filled += len(kept) - len(taken)
        evicted += len(taken)
        passed += len(missing) - len(kept)
    return hits, evicted, passed
