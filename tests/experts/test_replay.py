"""Replays against a plain simulation, what must add up, and what bounds are for."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.experts.policies import POLICIES
from strata.experts.policies.counting import Lru
from strata.experts.replay import BOUNDS, bound, replay
from strata.experts.trace import Lookup, Trace, TraceHead

PLACES, EXPERTS = 3, 4
SIZES = (4096, 8192, 4096)
ROUNDS = st.lists(
    st.dictionaries(st.integers(0, EXPERTS - 1), st.integers(1, 9), min_size=1),
    min_size=PLACES,
    max_size=30,
)
SHARES = st.sampled_from((0.1, 0.25, 0.5, 0.75, 1.0))


def made(rounds: list[dict[int, int]], sizes: tuple[int, ...] = SIZES) -> Trace:
    lookups = [
        Lookup(
            at // PLACES,
            at % PLACES,
            1,
            np.array(sorted(one), np.int32),
            np.array([one[key] for key in sorted(one)], np.int32),
        )
        for at, one in enumerate(rounds)
    ]
    return Trace(TraceHead("toy", EXPERTS, sizes), tuple(lookups))


@given(
    st.lists(st.tuples(st.integers(0, EXPERTS - 1), st.integers(1, 9)), min_size=1, max_size=40),
    st.integers(1, PLACES * EXPERTS),
)
def test_lru_is_a_list(wanted: list[tuple[int, int]], slots: int) -> None:
    order: list[int] = []
    hits = hit_entries = evicted = 0
    for at, (expert, count) in enumerate(wanted):
        key = at % PLACES * EXPERTS + expert
        if key in order:
            hits, hit_entries = hits + 1, hit_entries + count
            order.remove(key)
        elif len(order) == slots:
            evicted += 1
            order.pop(0)
        order.append(key)
    trace = made([{expert: count} for expert, count in wanted], (4096,) * PLACES)
    got = replay(trace, Lru, slots / (PLACES * EXPERTS))
    assert (got.slots, got.passed) == (slots, 0)
    assert (got.hits, got.hit_entries, got.evicted) == (hits, hit_entries, evicted)
    assert got.moved_bytes == 4096 * (len(wanted) - hits)


@pytest.mark.parametrize("name", POLICIES)
@settings(deadline=None, max_examples=40)
@given(rounds=ROUNDS, share=SHARES)
def test_the_books_balance(name: str, rounds: list[dict[int, int]], share: float) -> None:
    trace = made(rounds)
    got = replay(trace, POLICIES[name], share)
    assert got.policy == name
    assert got.lookups == sum(map(len, rounds))
    assert got.entries == sum(sum(one.values()) for one in rounds)
    assert 0 <= got.hits <= got.hit_entries <= got.entries
    assert got.slots == max(1, round(share * 8)) + max(1, round(share * 4))
    # Every miss stays or passes; who stayed and was not evicted has a slot.
    entered = got.lookups - got.hits - got.passed
    assert 0 <= entered - got.evicted <= got.slots
    assert got.rate == got.hits / got.lookups
    best = bound(trace, BOUNDS[0], share)
    assert got.hits <= best.hits
    assert bound(trace, "belady", share).hits <= best.hits
    assert bound(trace, "static", share).hits <= best.hits


@pytest.mark.parametrize("name", POLICIES)
@given(rounds=ROUNDS)
@settings(deadline=None, max_examples=20)
def test_with_room_for_all_each_key_is_read_once(name: str, rounds: list[dict[int, int]]) -> None:
    trace = made(rounds)
    got = replay(trace, POLICIES[name], 1.0)
    distinct = {(at % PLACES, key) for at, one in enumerate(rounds) for key in one}
    assert got.lookups - got.hits == len(distinct)
    assert got.moved_bytes == sum(SIZES[place] for place, _ in distinct)
    assert (got.evicted, got.passed) == (0, 0)
    for bound_name in BOUNDS:
        other = bound(trace, bound_name, 1.0)
        assert (other.hits, other.moved_bytes) == (got.hits, got.moved_bytes)


def test_the_default_resists_a_scan() -> None:
    """Rounds that want everything do not push out what is wanted all the time."""
    rounds: list[dict[int, int]] = [{0: 1}] * (PLACES * 40)
    for at in range(4, 40, 8):
        rounds[at * PLACES : (at + 1) * PLACES] = [dict.fromkeys(range(EXPERTS), 1)] * PLACES
    trace = made(rounds, (4096,) * PLACES)
    share = 1 / EXPERTS  # a slot for each layer
    best = bound(trace, BOUNDS[0], share)
    assert replay(trace, POLICIES["value-density"], share).hits >= best.hits - PLACES
    assert replay(trace, Lru, share).hits < 0.9 * best.hits


@pytest.mark.parametrize("name", POLICIES)
def test_no_key_of_a_lookup_leaves_for_another_of_it(name: str) -> None:
    trace = made([{0: 1}, {0: 1, 1: 9}, {0: 1}], (4096,) * PLACES)
    lookups = tuple(dataclasses.replace(one, place=0) for one in trace.lookups)
    got = replay(dataclasses.replace(trace, lookups=lookups), POLICIES[name], 1 / 12)
    assert (got.slots, got.hits, got.passed, got.evicted) == (1, 2, 1, 0)


def test_outcomes_of_shelves_add_up() -> None:
    got = replay(made([{0: 2}] * 6), Lru, 1.0)
    twice = got + got
    for one in dataclasses.fields(got)[1:]:
        assert getattr(twice, one.name) == 2 * getattr(got, one.name)
