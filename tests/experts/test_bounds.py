"""Belady's choice and the fixed set against trying everything on tiny traces."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.experts import bounds

KEYS = 6
LOOKUP = st.sets(st.integers(0, KEYS - 1), min_size=1, max_size=3)
TRACES = st.lists(LOOKUP, min_size=1, max_size=9)


def arrays(trace: list[set[int]]) -> list[np.ndarray]:
    return [np.array(sorted(one), np.int32) for one in trace]


def total(hits: bounds.Hits) -> int:
    return sum(int(one.sum()) for one in hits)


def subsets(keys: set[int], most: int) -> list[frozenset[int]]:
    sizes = range(min(len(keys), most) + 1)
    return [
        frozenset(one) for one in chain.from_iterable(combinations(sorted(keys), n) for n in sizes)
    ]


def most_hits(trace: list[set[int]], slots: int, bypass: bool) -> int:
    """Tries whatever may be kept after each lookup."""
    best = {frozenset[int](): 0}
    for wanted in trace:
        after: dict[frozenset[int], int] = {}
        for held, hits in best.items():
            for kept in subsets(held | wanted, slots):
                if not bypass and not (wanted <= kept or (len(wanted) > slots and kept <= wanted)):
                    continue
                after[kept] = max(after.get(kept, 0), hits + len(held & wanted))
        best = after
    return max(best.values())


@settings(deadline=None)
@given(TRACES, st.integers(1, 4), st.booleans())
def test_belady_is_the_best_of_all_choices(trace: list[set[int]], slots: int, bypass: bool) -> None:
    hits = bounds.belady(arrays(trace), KEYS, slots, bypass)
    assert total(hits) == most_hits(trace, slots, bypass)
    assert [len(one) for one in hits] == [len(one) for one in trace]


def test_bypass_is_worth_something() -> None:
    trace = arrays([{0}, {1}, {0}, {2}, {0}])
    assert total(bounds.belady(trace, KEYS, 1, bypass=True)) == 2
    assert total(bounds.belady(trace, KEYS, 1, bypass=False)) == 0


@given(TRACES, st.integers(1, 4))
def test_static_is_a_best_fixed_set(trace: list[set[int]], slots: int) -> None:
    def score(kept: frozenset[int]) -> int:
        wanted = list(chain.from_iterable(trace))
        return sum(wanted.count(key) for key in kept)

    hits = bounds.static(arrays(trace), KEYS, slots)
    best = max(score(kept) for kept in subsets(set(range(KEYS)), slots))
    kept = {key for one, hit in zip(arrays(trace), hits, strict=True) for key in one[hit].tolist()}
    assert len(kept) <= slots
    # Each key is read once, at its first lookup.
    loads = min(slots, len(set(chain.from_iterable(trace))))
    assert total(hits) == best - loads


@given(TRACES)
def test_next_uses(trace: list[set[int]]) -> None:
    found = bounds.next_uses(arrays(trace), KEYS)
    for at, one in enumerate(arrays(trace)):
        for key, following in zip(one.tolist(), found[at].tolist(), strict=True):
            later = [i for i in range(at + 1, len(trace)) if key in trace[i]]
            assert following == (later[0] if later else len(trace))
