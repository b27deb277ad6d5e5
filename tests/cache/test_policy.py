"""The value of a cached thing, and the ranking by it."""

from __future__ import annotations

import random

import pytest

from strata.cache.policy import Ranking, value


@pytest.mark.parametrize(
    ("age", "hits", "saved", "size", "worth"),
    [
        (0.0, 0, 16, 16, 1.0),
        (0.0, 3, 16, 16, 4.0),  # each use counts
        (5.0, 0, 16, 16, 6.0),  # so does having been used late
        (0.0, 0, 16, 32, 0.5),  # per byte
        (2.0, 9, 0, 8, 2.0),  # nothing saved: its age alone
    ],
)
def test_value(age: float, hits: int, saved: int, size: int, worth: float) -> None:
    assert value(age, hits, saved, size) == worth


def test_lowest_first_and_it_stays() -> None:
    ranking: Ranking[str] = Ranking()
    worth = {"a": 3.0, "b": 1.0, "c": 2.0}
    for name, number in worth.items():
        ranking.set(name, number)
    assert ranking.lowest(worth.__getitem__) == ("b", 1.0)
    assert len(ranking) == 3 and "b" in ranking
    ranking.discard("b")
    ranking.discard("b")
    assert "b" not in ranking
    assert ranking.lowest(worth.__getitem__) == ("c", 2.0)


def test_a_value_that_has_risen_is_seen_when_it_surfaces() -> None:
    ranking: Ranking[str] = Ranking()
    ranking.set("a", 1.0)
    ranking.set("b", 2.0)
    assert ranking.lowest({"a": 9.0, "b": 2.0}.__getitem__) == ("b", 2.0)


def test_a_value_set_lower_counts_at_once() -> None:
    ranking: Ranking[str] = Ranking()
    ranking.set("a", 5.0)
    ranking.set("b", 4.0)
    ranking.set("a", 1.0)
    assert ranking.lowest({"a": 1.0, "b": 4.0}.__getitem__) == ("a", 1.0)


def test_equal_values_go_in_the_order_they_came() -> None:
    ranking: Ranking[str] = Ranking()
    for name in "xyz":
        ranking.set(name, 1.0)
    assert ranking.lowest(lambda _: 1.0) == ("x", 1.0)


def test_empty_has_no_lowest() -> None:
    ranking: Ranking[str] = Ranking()
    assert ranking.lowest(lambda _: 0.0) is None
    ranking.set("a", 1.0)
    ranking.discard("a")
    assert ranking.lowest(lambda _: 0.0) is None


def test_against_a_plain_minimum() -> None:
    rng = random.Random(7)
    ranking: Ranking[int] = Ranking()
    worth: dict[int, float] = {}
    for _ in range(3000):
        item = rng.randrange(40)
        if rng.random() < 0.7:
            worth[item] = rng.random()
            ranking.set(item, worth[item])
        else:
            worth.pop(item, None)
            ranking.discard(item)
        assert set(ranking) == set(worth)
        lowest = ranking.lowest(worth.__getitem__)
        assert (lowest is None) == (not worth)
        if lowest is not None:
            assert lowest == (min(worth, key=worth.__getitem__), min(worth.values()))


def test_the_heap_does_not_pile_up_entries_of_the_past() -> None:
    ranking: Ranking[int] = Ranking()
    for turn in range(10_000):
        ranking.set(turn % 10, float(turn))
    assert len(ranking._heap) <= 64 + 2 * 10 + 1
