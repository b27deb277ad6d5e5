"""PrefixCache on models that keep a state per sequence: small scenes with known numbers.

Block 4. The World of `sim` checks that each restored state is that of exactly its prefix.
"""

from __future__ import annotations

import pytest
from sim.invariants import nodes_of, verify
from sim.world import Seq, World

from strata.cache import Full, PrefixCache, Run, Wait
from strata.types import Capture, StateCopy

TEXT = [1, 2, 3, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 0, 2, 0, 3, 1]  # 18 tokens


def plenty(**facts: int) -> World:
    return World(**{"pages": 300, "states": 100, **facts})


def finish(world: World) -> None:
    world.drain(64)
    assert all(seq.status == "done" for seq in world.all)


@pytest.mark.parametrize("length", range(1, len(TEXT) + 1))
@pytest.mark.parametrize("budget", [1, 3, 64])
def test_the_same_prompt_again_computes_one_token(length: int, budget: int) -> None:
    world = plenty()
    first = world.submit(TEXT[:length])
    world.drain(budget)
    again = world.submit(TEXT[:length])
    world.drain(budget)
    assert (first.spent, again.spent) == (length, 1)


@pytest.mark.parametrize("stable", range(1, len(TEXT) + 1))
def test_the_stable_end_is_kept_to_the_token(stable: int) -> None:
    world = plenty()
    world.submit(TEXT, out=6, stable_len=stable)
    finish(world)
    following = world.submit([*TEXT[:stable], 9, 9, 9])
    finish(world)
    assert following.resumes == [stable]


@pytest.mark.parametrize("anchor", range(1, len(TEXT) + 1))
@pytest.mark.parametrize("budget", [2, 64])
def test_anchors_are_kept_to_the_token(anchor: int, budget: int) -> None:
    world = plenty()
    world.submit([*TEXT, 9], out=2, anchors=(anchor, 2))
    world.drain(budget)
    other = world.submit([*TEXT[:anchor], 8, 8])
    world.drain(budget)
    assert other.resumes == [anchor]


def test_the_next_turn_reuses_prompt_and_answer() -> None:
    world = plenty()
    turn = world.submit(TEXT, out=7)
    finish(world)
    following = world.submit([*turn.tokens, 9])
    finish(world)
    assert following.resumes == [len(turn.tokens) - 1]


def test_an_answer_cut_short_falls_back_to_the_rolling_checkpoint() -> None:
    world = plenty()
    turn = world.submit(TEXT, out=13)  # computed: 18 + 12 = 30 tokens, last border 28
    finish(world)
    following = world.submit([*turn.tokens[:29], 9, 9])
    finish(world)
    assert following.resumes == [28]


def test_the_second_one_through_a_branch_leaves_a_checkpoint_there() -> None:
    world = plenty()
    for n in range(3):
        world.submit([*TEXT[:10], n, n, n, n])
        finish(world)
    assert [seq.resumes for seq in world.all] == [[0], [0], [10]]


@pytest.mark.parametrize("anchor", [1, 4, 6])
def test_a_resume_is_where_the_state_is_not_where_the_rows_are(anchor: int) -> None:
    world = plenty()
    world.submit(TEXT, anchors=(anchor,))
    finish(world)
    other = world.submit([*TEXT[:13], 9, 9])
    finish(world)
    assert other.resumes == [anchor]


def test_rows_below_a_branch_are_not_written_again() -> None:
    """The World compares each row with the truth; here the plan is looked at as well."""
    world = plenty()
    world.submit(TEXT)
    finish(world)
    other = world.submit([*TEXT[:10], 9, 9])
    world.admit()
    assert other.lease is not None
    assert (other.lease.resume_len, other.lease.writable_from) == (0, 8)
    assert len(other.lease.pages) == 2
    world.drain(3)


@pytest.mark.parametrize("budget", [1, 5, 64])
@pytest.mark.parametrize("batch", [2, 8])
def test_a_burst_reads_its_common_prefix_once(batch: int, budget: int) -> None:
    """The first is asked to capture where the others leave it."""
    world = plenty(batch=batch)
    for n in range(8):
        world.submit([*TEXT, 5, n, n])
    world.drain(budget)
    assert sum(seq.spent for seq in world.all) == len(TEXT) + 1 + 8 * 2


def test_waiting_that_does_not_pay_is_not_done() -> None:
    world = plenty()
    world.submit(TEXT)
    world.admit()
    short = world.submit([*TEXT[:3], 9, 9])  # less than a block in common
    world.admit()
    assert short.status == "running"
    world.step(6)
    late = world.submit([*TEXT[:5], 8])  # the owner is past the place already
    world.admit()
    assert late.status == "running"
    world.drain(2)


def test_one_who_is_cancelled_half_way_leaves_what_it_had_read() -> None:
    world = plenty()
    seq = world.submit(TEXT)
    world.admit()
    world.step(7)
    world.abort(seq)
    again = world.submit(TEXT)
    finish_at = world.admit()
    assert finish_at is None and again.resumes == [7]


def test_a_preempted_sequence_goes_on_where_it_stopped() -> None:
    world = plenty()
    seq = world.submit(TEXT, out=9)
    world.admit()
    world.step(64)
    for _ in range(3):
        world.step(1)
    world.preempt(seq)
    finish(world)
    assert seq.resumes == [0, len(TEXT) + 3]


def test_a_failed_step_leaves_no_state_behind() -> None:
    world = plenty()
    world.submit(TEXT, out=20, stable_len=5)
    world.admit()
    for _ in range(8):
        world.step(4)
    world.fail(4, retry=False)
    kept = [node.end for node in nodes_of(world.cache._trie) if node.checkpoint]
    assert sorted(kept) == [5, len(TEXT) - 1], "what was captured in good steps, nothing else"


def test_a_capture_that_was_not_written_is_not_attached() -> None:
    world = plenty()
    world.submit(TEXT, stable_len=9)
    world.admit()
    world.step(64, lose=lambda: True)
    assert [n for n in nodes_of(world.cache._trie) if n.checkpoint and n.end == 9] == []
    assert world.cache.stats().states_free == 100 - world.cache.stats().states_cached


def test_captures_of_an_abandoned_plan_are_free_again() -> None:
    cache = PrefixCache(pages=20, block=4, states=4)
    got = cache.acquire(Seq("a", TEXT, 1, prompt_len=18, stable_len=9))
    assert isinstance(got, Run) and got.copies == (StateCopy(None, got.lease.live or 0),)
    assert cache.reserve(got.lease, 18)
    first = cache.captures(got.lease, 0, 0, 10)
    assert [(c.row, c.offset, c.position) for c in first] == [(0, 9, 9)]
    verify(cache)
    assert cache.captures(got.lease, 3, 0, 8) == ()
    verify(cache)
    cache.commit(got.lease, 8)
    again = cache.captures(got.lease, 1, 8, 10)
    assert [(c.row, c.offset, c.position) for c in again] == [(1, 1, 9), (1, 9, 17)]
    cache.commit(got.lease, 18, again[:1])
    verify(cache)
    assert [n.end for n in nodes_of(cache._trie) if n.checkpoint] == [9]


def test_a_capture_must_have_been_reserved() -> None:
    cache = PrefixCache(pages=20, block=4, states=4)
    got = cache.acquire(Seq("a", TEXT, 1, prompt_len=18))
    assert isinstance(got, Run) and cache.reserve(got.lease, 18)
    cache.captures(got.lease, 0, 0, 18)
    with pytest.raises(AssertionError):
        cache.commit(got.lease, 18, [Capture(0, 4, 4, 3)])


@pytest.mark.parametrize("states", range(1, 5))
def test_whatever_fits_alone_finishes(states: int) -> None:
    world = World(pages=8, states=states, batch=4)
    for n in range(4):
        world.submit([*TEXT, n % 2, n], out=3)
        world.submit([*TEXT, n % 2, n], out=3)
    finish(world)


def test_the_last_slot_moves_from_the_checkpoint_to_who_resumes_from_it() -> None:
    cache = PrefixCache(pages=20, block=4, states=1)
    first = cache.acquire(Seq("a", TEXT, 1, prompt_len=18))
    assert isinstance(first, Run) and cache.reserve(first.lease, 18)
    assert cache.acquire(Seq("b", [7, 7, 7], 1)) == Full("states")
    cache.commit(first.lease, 18)
    cache.release(first.lease, 18)
    assert cache.stats().states_cached == 1
    again = cache.acquire(Seq("c", [*TEXT, 9], 1))
    assert isinstance(again, Run) and again.lease.resume_len == 18
    assert cache.stats().states_cached == 0
    verify(cache)


def test_the_checkpoint_to_restore_survives_the_allocation_it_needs() -> None:
    world = World(pages=60, states=3, batch=1)
    for n in range(6):
        world.submit([n] * 9)
        finish(world)
    # Two are kept at most beside the live slot; the oldest of them is resumed from.
    kept = [node for node in nodes_of(world.cache._trie) if node.checkpoint]
    oldest = min(kept, key=lambda n: (n.checkpoint.age, n.end))  # type: ignore[union-attr]
    token = oldest.key[0]
    again = world.submit([token] * oldest.end + [9])
    finish(world)
    assert again.resumes == [oldest.end]


def test_rolling_checkpoints_never_cost_a_row() -> None:
    """States for two rows and nothing more: both run, the rolling one gives way."""
    world = World(pages=60, states=2, batch=2)
    first = world.submit(TEXT, out=50)
    world.admit()
    while first.lease is not None and first.lease.hold.tail is None:
        world.step(64)
    assert first.status == "running" and world.cache.stats().states_free == 0
    second = world.submit([9, *TEXT], out=12)
    world.admit()
    assert second.status == "running" and first.lease is not None and first.lease.hold.tail is None
    finish(world)


def test_a_rolling_checkpoint_that_was_not_written_is_none() -> None:
    world = plenty()
    seq = world.submit(TEXT, out=30)
    world.admit()
    world.step(64)
    while seq.computed < 27:
        world.step(1)
    world.step(1, lose=lambda: True)  # the one at 28 is lost, and that at 24 overwritten
    world.step(1)
    world.abort(seq)
    kept = [node.end for node in nodes_of(world.cache._trie) if node.checkpoint]
    assert sorted(kept) == [len(TEXT) - 1, 29]


def test_a_side_call_does_not_cost_a_long_talk_its_state() -> None:
    world = World(pages=200, states=6, batch=1)
    talk = [n % 4 for n in range(120)]
    world.submit(talk, out=4, stable_len=118)
    finish(world)
    for n in range(6):  # short ones, each new
        world.submit([5, n, n, 5, n, 1, 2], out=2)
        finish(world)
    following = world.submit([*talk[:118], 9, 9, 9])
    finish(world)
    assert following.resumes[0] >= 118


def kept(world: World) -> list[int]:
    return sorted(node.end for node in nodes_of(world.cache._trie) if node.checkpoint)


def test_what_goes_first_is_what_saves_least() -> None:
    """One token beyond the next checkpoint is worth less than seventeen beyond none."""
    world = World(pages=60, states=3, batch=1)
    world.submit(TEXT)
    finish(world)
    assert kept(world) == [17, 18]
    world.submit([9] * 6)
    finish(world)
    assert kept(world) == [5, 6, 17]


def test_a_capture_worth_less_than_all_that_is_kept_is_left_out() -> None:
    world = World(pages=60, states=2, batch=1)
    world.submit(TEXT)
    finish(world)
    world.submit([9] * 3)
    finish(world)
    assert kept(world) == [3, 17], "the live slot had to be had, the capture at 2 had not"


def test_captures_that_keep_coming_are_let_in_at_last() -> None:
    world = World(pages=60, states=2, batch=1)
    world.submit(TEXT)
    finish(world)
    for _ in range(12):
        world.submit([9] * 3)
        finish(world)
    assert 17 not in kept(world), "what nobody asks for grows old"


def test_a_long_read_keeps_a_rung_for_those_who_leave_it_there() -> None:
    """Crossing 8,192 tokens renews the rolling checkpoint, which an abort leaves behind."""
    cache = PrefixCache(pages=3000, block=16, states=8)
    text = [n % 251 for n in range(9000)]
    got = cache.acquire(Seq("a", text, 1, prompt_len=9000))
    assert isinstance(got, Run)
    taken = []
    for start in range(0, 8704, 512):
        assert cache.reserve(got.lease, start + 512)
        plan = cache.captures(got.lease, 0, start, 512)
        taken += [capture.position for capture in plan]
        cache.commit(got.lease, start + 512, plan)
    assert taken == [8192]
    cache.release(got.lease, 8704)
    assert {n.end for n in nodes_of(cache._trie) if n.checkpoint} == {8192, 8704}
    verify(cache)


def test_a_wish_is_granted_once_for_all_who_wait_there() -> None:
    cache = PrefixCache(pages=40, block=4, states=8)
    owner = cache.acquire(Seq("a", TEXT, 1, prompt_len=18))
    assert isinstance(owner, Run) and cache.reserve(owner.lease, 18)
    assert cache.acquire(Seq("b", [*TEXT[:9], 7], 1)) == Wait("a", 9)
    assert cache.acquire(Seq("c", [*TEXT[:9], 8], 1)) == Wait("a", 9)
    assert cache.acquire(Seq("d", [*TEXT[:13], 8], 1)) == Wait("a", 13)
    plan = cache.captures(owner.lease, 0, 0, 18)
    assert [capture.position for capture in plan] == [9, 13, 17]
    cache.commit(owner.lease, 18, plan)
    assert [holder.id for holder in cache.woken()] == ["b", "c", "d"]
    got = cache.acquire(Seq("b", [*TEXT[:9], 7], 1))
    assert isinstance(got, Run) and got.lease.resume_len == 9
    verify(cache)
