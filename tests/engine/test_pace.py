"""The arithmetic of sharing a step: bounds, not examples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.engine.pace import Pace, share_out


@given(st.integers(1, 600), st.lists(st.integers(2, 5000), min_size=1, max_size=12))
def test_a_budget_is_used_and_not_exceeded(budget: int, todos: list[int]) -> None:
    grants = share_out(budget, todos)
    assert all(0 <= g <= t for g, t in zip(grants, todos, strict=True))
    assert sum(grants) == min(budget, sum(todos))


@given(st.integers(1, 600), st.lists(st.integers(2, 5000), min_size=1, max_size=12))
def test_the_oldest_and_the_shortest_have_their_parts(budget: int, todos: list[int]) -> None:
    grants = share_out(budget, todos)
    least = min(todos)
    left = budget
    if todos[0] > 2 * least:
        assert grants[0] >= min(todos[0], budget / 4)
        left -= -(-budget // 4)
    alike = [i for i, todo in enumerate(todos) if todo <= 2 * least]
    whole = sum(todo for todo in todos if todo <= 2 * least + budget)
    for i in alike:  # in proportion, up to the rounding of each before it
        assert grants[i] >= min(todos[i], left * todos[i] / whole - len(todos))


# Not up to twice the least: rounding may carry such a one over the border of those alike.
@given(st.integers(8, 600), st.lists(st.integers(2000, 3000), min_size=2, max_size=8))
def test_prompts_alike_end_in_one_step(budget: int, todos: list[int]) -> None:
    steps = 0
    while min(todos) > 0:
        todos = [t - g for t, g in zip(todos, share_out(budget, todos), strict=True)]
        steps += 1
    # None has more left than a step reads, but for the rounding of the steps before.
    assert sum(todos) <= budget + steps


def test_shares_by_hand() -> None:
    assert share_out(512, [5000, 100]) == [412, 100]
    assert share_out(512, [5000, 1000]) == [128, 384]
    assert share_out(64, [5000, 900, 30, 40]) == [16, 0, 20, 28]
    assert share_out(99, [300, 300, 300]) == [33, 33, 33]
    assert share_out(90, [300, 600, 601]) == [30, 60, 0]
    assert share_out(100, [30, 300, 300]) == [30, 35, 35]
    assert share_out(1, [50, 20]) == [1, 0]  # the oldest is never shut out
    assert share_out(8, []) == []


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("mixed", [0.002, 0.01, 0.1])
def test_rows_keep_their_share_and_prompts_get_on(share: float, mixed: float) -> None:
    solo = 0.001
    pace, spent, tokens, reads, longest = Pace(share), 0.0, 0, 0, 0
    waited = 0
    for _ in range(3000):
        read = pace.may_read(4)
        seconds = mixed if read else solo
        pace.note(4, 64 if read else 0, seconds)
        spent, tokens, reads = spent + seconds, tokens + 1, reads + read
        waited = 0 if read else waited + 1
        longest = max(longest, waited)
        # At any moment, short of one mixed step: the share of what they would have had alone.
        assert tokens * solo >= share * (spent - mixed) - 1e-9
    assert reads > 0
    owed = max(0.0, share * mixed - solo)
    assert longest <= owed / (solo * (1 - share)) + 2  # a prompt waits this many steps at most


def test_no_credit_is_saved_up() -> None:
    pace = Pace(0.5)
    for _ in range(1000):
        pace.note(2, 0, 0.001)
    pace.note(2, 64, 0.010)
    assert not pace.may_read(2)


def test_rows_are_measured_alone_before_they_share() -> None:
    pace = Pace(0.25)
    assert pace.may_read(0) and not pace.may_read(3)
    pace.note(3, 0, 0.004)
    assert pace.may_read(3) and pace.solo(3) == 0.004 and pace.solo(5) == 0.004
    pace.note(1, 0, 0.002)
    assert pace.solo(1) == 0.002 and pace.solo(2) == 0.002
    assert Pace(0.0).may_read(3)
