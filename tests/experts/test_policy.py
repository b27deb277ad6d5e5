"""Every policy against what it says it does, written out plainly; and what all have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.config import Config
from strata.experts.policies import POLICIES, counting
from strata.experts.policies.counting import LeastStale, Lfu, Lru, TinyLfu
from strata.experts.policies.floors import Floors
from strata.experts.policies.reuse import ValueDensity
from strata.experts.policy import Policy, settle

PLACES, EXPERTS = 3, 4
KEYS = PLACES * EXPERTS
LOOKUPS = st.lists(st.sets(st.integers(0, EXPERTS - 1), min_size=1), min_size=1, max_size=24)


def ids(keys: Sequence[int]) -> np.ndarray:
    return np.array(keys, np.int32)


def feed(policy: Policy, rounds: Sequence[set[int]]) -> list[list[int]]:
    """Looks the sets up in the layers in turn; the keys of each lookup."""
    found = []
    for at, experts in enumerate(rounds):
        keys = [at % PLACES * EXPERTS + expert for expert in sorted(experts)]
        policy.touch(ids(keys), np.ones(len(keys), np.int32))
        found.append(keys)
    return found


def pairs(order: Sequence[int]) -> set[tuple[int, int]]:
    return {(a, b) for at, a in enumerate(order) for b in order[at + 1 :]}


@given(LOOKUPS)
def test_lru_is_a_list_whose_used_move_to_the_end(rounds: list[set[int]]) -> None:
    policy, order = Lru(PLACES, EXPERTS), list(range(KEYS))
    last = dict.fromkeys(range(KEYS), -1)
    for at, keys in enumerate(feed(policy, rounds)):
        for key in keys:
            order.remove(key)
            order.append(key)
            last[key] = at
    got = policy.victims(ids(range(KEYS)), KEYS).tolist()
    assert sorted(got) == list(range(KEYS))
    for a, b in pairs(got):
        assert last[a] == last[b] or (a, b) in pairs(order)


@given(LOOKUPS)
def test_lfu_counts_with_a_half_life_of_256_rounds(rounds: list[set[int]]) -> None:
    policy = Lfu(PLACES, EXPERTS)
    count = dict.fromkeys(range(KEYS), 0.0)
    for at, keys in enumerate(feed(policy, rounds)):
        if at % PLACES == 0:
            count = {key: value * 0.5 ** (1 / 256) for key, value in count.items()}
        for key in keys:
            count[key] += 1
    got = policy.victims(ids(range(KEYS)), KEYS).tolist()
    assert [count[key] for key in got] == pytest.approx(sorted(count.values()))
    for key in range(KEYS):
        assert policy.admits(key, got[0]) == (count[key] > count[got[0]] + 1e-9)


def test_lfu_ages_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_HALF_LIFE", 4)
    policy = Lfu(1, 2)
    for _ in range(5000):
        policy.touch(ids([0]), np.ones(1, np.int32))
    assert np.isfinite(policy.tally.counts).all()
    for _ in range(5):  # 4 rounds halve what the first key has
        policy.touch(ids([1]), np.ones(1, np.int32))
    assert policy.admits(1, 0)


@given(LOOKUPS)
def test_least_stale_is_the_rule_in_words(rounds: list[set[int]]) -> None:
    policy, latest = LeastStale(PLACES, EXPERTS), dict.fromkeys(range(KEYS), -1)
    for at, keys in enumerate(feed(policy, rounds)):
        latest |= dict.fromkeys(keys, at // PLACES)
    now, place = (len(rounds) - 1) // PLACES, (len(rounds) - 1) % PLACES

    def until(key: int) -> int:
        return next(n for n in range(1, PLACES + 1) if (place + n) % PLACES == key // EXPERTS)

    got = policy.victims(ids(range(KEYS)), KEYS).tolist()
    stale = [latest[key] != now for key in got]
    assert stale == sorted(stale, reverse=True)
    for part in (got[: sum(stale)], got[sum(stale) :]):
        waits = [until(key) for key in part]
        assert waits == sorted(waits, reverse=True)


def test_tinylfu_evicts_by_age_and_admits_by_count() -> None:
    policy = TinyLfu(1, 4)
    for keys in ([0], [0], [1], [1], [1], [2]):
        policy.touch(ids(keys), np.ones(1, np.int32))
    assert policy.victims(ids([0, 1]), 1).tolist() == [0]
    assert not policy.admits(2, 0)
    policy.touch(ids([2]), np.ones(1, np.int32))
    policy.touch(ids([2]), np.ones(1, np.int32))
    assert policy.admits(2, 0)


def test_value_density_finds_the_probabilities_of_independent_draws() -> None:
    policy, random = ValueDensity(2, 6), np.random.default_rng(0)
    chances = np.array([[0.5, 0.2, 0.1, 0.1, 0.06, 0.04], [0.04, 0.06, 0.1, 0.1, 0.2, 0.5]])
    for _ in range(3000):
        for place in range(2):
            key = place * 6 + random.choice(6, p=chances[place])
            policy.touch(ids([key]), np.ones(1, np.int32))
    np.testing.assert_allclose(policy.expected, chances, atol=0.05)


def test_value_density_finds_that_experts_stay() -> None:
    """Each expert as often as the other, but wanted several times in turn: the last one is kept,
    however long its run has been.
    """
    policy, random, last = ValueDensity(1, 2), np.random.default_rng(0), 0
    for _ in range(3000):
        last = last if random.random() < 0.9 else 1 - last
        policy.touch(ids([last]), np.ones(1, np.int32))
        if policy.step > 100:
            assert policy.victims(ids([0, 1]), 1).tolist() == [1 - last]


def test_value_density_counts_a_prompt_by_its_tokens() -> None:
    policy, random = ValueDensity(1, 3), np.random.default_rng(0)
    for _ in range(500):
        policy.touch(ids([random.choice(3, p=(0.8, 0.1, 0.1))]), np.ones(1, np.int32))
    assert policy.victims(ids([0, 1, 2]), 3).tolist()[-1] == 0
    policy.touch(ids([1, 2]), np.array([9000, 1000], np.int32))
    assert policy.victims(ids([0, 1, 2]), 3).tolist() == [0, 2, 1]


def test_value_density_takes_being_wanted_for_no_reason_to_leave() -> None:
    """Not even where two experts take turns, so that the last one is never the next."""
    policy = ValueDensity(1, 3)
    for turn in range(200):
        policy.touch(ids([turn % 2]), np.ones(1, np.int32))
    assert policy.expected[0].tolist() == pytest.approx([0.5, 0.5, 0.0], abs=0.1)


def test_value_density_prefers_whose_layer_comes_sooner() -> None:
    policy = ValueDensity(3, 1)
    for place in [*range(3)] * 5 + [0]:  # the next is place 1, then 2, then 0
        policy.touch(ids([place]), np.ones(1, np.int32))
    assert policy.victims(ids([0, 1, 2]), 3).tolist() == [0, 2, 1]


def test_many_victims_are_in_the_order_of_few() -> None:
    policy, random = Lfu(10, 100), np.random.default_rng(0)
    for _ in range(20):
        policy.touch(ids(np.sort(random.choice(100, 60, replace=False))), np.ones(60, np.int32))
    worth = policy.worth(ids(range(100)))
    for number in (1, 2, 16, 17, 50, 100):
        got = policy.victims(ids(range(100)), number)
        np.testing.assert_allclose(policy.worth(got), np.sort(worth)[:number])
        assert len(set(got.tolist())) == number


# ---------------------------------------------------------------- what all have in common


def test_the_settings_name_them_all() -> None:
    one = next(one for one in fields(Config) if one.name == "expert_policy")
    assert set(one.metadata["choices"]) == set(POLICIES)
    assert one.default in POLICIES


@pytest.mark.parametrize("name", POLICIES)
@settings(deadline=None)
@given(rounds=LOOKUPS, data=st.data())
def test_victims_are_candidates(name: str, rounds: list[set[int]], data: st.DataObject) -> None:
    policy = POLICIES[name](PLACES, EXPERTS)
    feed(policy, rounds)
    candidates = data.draw(st.permutations(range(KEYS)))[: data.draw(st.integers(0, KEYS))]
    number = data.draw(st.integers(0, len(candidates)))
    got = policy.victims(ids(candidates), number)
    assert got.dtype == np.int32
    assert len(set(got.tolist())) == len(got) == number
    assert set(got.tolist()) <= set(candidates)


@pytest.mark.parametrize("name", POLICIES)
def test_what_was_learned_goes_on(name: str) -> None:
    """A key that an earlier run wanted often is kept before one that it never wanted."""
    earlier = POLICIES[name](PLACES, EXPERTS)
    feed(earlier, [{0, 1}, {2}, {3}] * 50)
    learned = earlier.popularity()
    assert learned.shape == (KEYS,)
    assert set(np.flatnonzero(learned).tolist()) == {0, 1, 6, 11}
    policy = POLICIES[name](PLACES, EXPERTS)
    policy.learn(learned)
    np.testing.assert_allclose(policy.popularity(), learned)
    if name != LeastStale.name:  # which looks at one round only
        assert set(policy.victims(ids(range(KEYS)), KEYS).tolist()[-4:]) == {0, 1, 6, 11}


@settings(deadline=None)
@given(LOOKUPS, st.integers(0, 3), st.data())
def test_floors_are_kept_while_others_can_leave(
    rounds: list[set[int]], floor: int, data: st.DataObject
) -> None:
    policy = Floors(Lru(PLACES, EXPERTS), PLACES, EXPERTS, floor)
    feed(policy, rounds)
    held = data.draw(st.sets(st.integers(0, KEYS - 1), min_size=1))
    for key in held:
        policy.enter(key)
    candidates = data.draw(st.sets(st.sampled_from(sorted(held))))
    number = data.draw(st.integers(0, len(candidates)))
    got = policy.victims(ids(sorted(candidates)), number).tolist()
    assert len(set(got)) == len(got) == number
    assert set(got) <= candidates

    def layers(keys: set[int]) -> list[int]:
        return [sum(key // EXPERTS == place for key in keys) for place in range(PLACES)]

    spare = sum(
        min(mine, max(0, all_ - floor))
        for mine, all_ in zip(layers(candidates), layers(held), strict=True)
    )
    free = got[:spare]  # those that could leave without touching a floor come first
    for before, after in zip(layers(held), layers(held - set(free)), strict=True):
        assert after >= min(before, floor)


def test_floors_choose_like_the_policy_above_them() -> None:
    policy = Floors(Lru(2, 4), 2, 4, 2)
    for key in (0, 1, 2, 4, 5, 6):
        policy.enter(key)
        policy.touch(ids([key]), np.ones(1, np.int32))
    assert policy.victims(ids([0, 1, 2, 4, 5, 6]), 3).tolist() == [0, 4, 1]
    policy.leave(0)
    assert policy.victims(ids([1, 2, 4, 5, 6]), 1).tolist() == [4]
    # Asked which of those without slots deserves one most, floors have no say.
    assert policy.victims(ids([0, 3, 7]), 3).tolist()[-1] == 0


@pytest.mark.parametrize("name", POLICIES)
@settings(deadline=None)
@given(rounds=LOOKUPS, slots=st.integers(1, KEYS))
def test_settling_keeps_the_books(name: str, rounds: list[set[int]], slots: int) -> None:
    policy, held = POLICIES[name](PLACES, EXPERTS), set[int]()
    for at, experts in enumerate(rounds):
        keys = {at % PLACES * EXPERTS + expert for expert in experts}
        policy.touch(ids(sorted(keys)), np.ones(len(keys), np.int32))
        missing, others, free = keys - held, held - keys, slots - len(held)
        settled = settle(policy, ids(sorted(missing)), ids(sorted(others)), free)
        kept, taken = (set(one.tolist()) for one in settled)
        assert [len(kept), len(taken)] == [len(one) for one in settled]
        assert kept <= missing
        assert taken <= others
        assert len(kept) >= min(len(missing), free)
        assert len(kept) - len(taken) == min(len(missing), free)
        held = held - taken | kept
        assert len(held) <= slots
