"""PrefixCache on models without state: small scenes with known numbers.

Block 4. The World of `sim` executes every copy and checks every row and invariant on the way.
"""

from __future__ import annotations

import pytest
from sim.invariants import verify
from sim.world import Seq, World

from strata.cache import Full, PrefixCache, Run, Wait
from strata.types import PageCopy

TEXT = [1, 2, 3, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 0, 2, 0, 3, 1]  # 18 tokens


def finish(world: World) -> None:
    world.drain(64)
    assert all(seq.status == "done" for seq in world.all)


@pytest.mark.parametrize("length", range(1, len(TEXT) + 1))
def test_the_same_prompt_again_computes_one_token(length: int) -> None:
    world = World()
    first = world.submit(TEXT[:length])
    finish(world)
    again = world.submit(TEXT[:length])
    finish(world)
    assert (first.spent, again.spent) == (length, 1)


@pytest.mark.parametrize("shared", range(len(TEXT) + 1))
def test_reuse_is_the_common_prefix_to_the_token(shared: int) -> None:
    world = World()
    world.submit(TEXT)
    finish(world)
    other = world.submit([*TEXT[:shared], 9, 9, 9])
    finish(world)
    assert other.resumes == [shared]


def test_the_next_turn_reuses_prompt_and_answer() -> None:
    world = World()
    turn = world.submit(TEXT, out=7)
    finish(world)
    following = world.submit([*turn.tokens, 9, 9])
    finish(world)
    # The last token of an answer is chosen but never computed.
    assert following.resumes == [len(turn.tokens) - 1]


def test_an_edited_message_keeps_what_came_before_it_and_both_versions_stay() -> None:
    world = World()
    world.submit(TEXT)
    finish(world)
    edited = [*TEXT[:9], 7, *TEXT[10:]]
    first, second = world.submit(edited), None
    finish(world)
    second = world.submit(edited)
    original = world.submit(TEXT)
    finish(world)
    assert first.resumes == [9]
    assert second.resumes == original.resumes == [len(TEXT) - 1]


def test_a_prompt_is_reusable_while_its_answer_is_still_being_written() -> None:
    world = World()
    long = world.submit(TEXT, out=40)
    world.admit()
    world.step(64)
    assert long.status == "running" and long.computed == len(TEXT)
    other = world.submit([*TEXT, 9])
    world.admit()
    assert other.resumes == [len(TEXT)]


def test_a_prefix_is_reusable_from_the_block_that_was_committed() -> None:
    world = World()
    world.submit(TEXT)
    world.admit()
    world.step(9)
    other = world.submit([*TEXT[:8], 9, 9])
    world.admit()
    assert other.resumes == [8]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]])
def test_arrival_order_does_not_matter(order: list[int]) -> None:
    world = World(pages=200)
    contexts = [[n, n, *TEXT] for n in range(4)]
    for context in contexts:
        world.submit(context, out=3)
    finish(world)
    second = [world.submit([*contexts[n], 9, 9, n]) for n in order]
    finish(world)
    assert [seq.resumes for seq in second] == [[20]] * 4


@pytest.mark.parametrize("batch", [1, 2, 8])
@pytest.mark.parametrize("budget", [1, 5, 16, 64])
def test_a_burst_reads_its_common_prefix_once(batch: int, budget: int) -> None:
    world = World(pages=200, batch=batch)
    for n in range(8):
        world.submit([*TEXT, 5, n])
    world.drain(budget)
    assert sum(seq.spent for seq in world.all) == len(TEXT) + 1 + 8


def test_identical_requests_at_once_compute_one_token_each() -> None:
    world = World(batch=8)
    for _ in range(5):
        world.submit(TEXT)
    finish(world)
    assert sum(seq.spent for seq in world.all) == len(TEXT) + 4


def test_a_follower_that_leaves_inside_a_claimed_block_waits_for_it() -> None:
    world = World()
    world.submit(TEXT)
    other = world.submit([*TEXT[:5], 9, 9])
    world.admit()
    assert other.status == "parked"
    world.step(5)
    world.admit()
    assert other.status == "parked", "the block is not full yet"
    world.step(3)
    world.admit()
    assert other.resumes == [5]


def test_who_shares_nothing_does_not_wait() -> None:
    world = World()
    world.submit(TEXT)
    other = world.submit([9, *TEXT])
    world.admit()
    assert other.status == "running"


def test_who_shares_no_more_than_is_there_does_not_wait() -> None:
    world = World()
    world.submit(TEXT[:6])
    finish(world)
    world.submit([*TEXT[:6], 9, 9, 9, 9])
    world.admit()
    other = world.submit([*TEXT[:6], 8])
    world.admit()
    assert other.status == "running" and other.resumes == [6]


def test_followers_of_one_who_dies_choose_a_new_owner() -> None:
    world = World(batch=8)
    owner = world.submit(TEXT)
    world.admit()
    followers = [world.submit([*TEXT, n]) for n in range(3)]
    world.admit()
    world.step(6)
    assert all(seq.status == "parked" for seq in followers)
    world.abort(owner)
    world.admit()
    assert [seq.status for seq in followers] == ["running", "parked", "parked"]
    assert followers[0].resumes == [6], "what the dead one had read is not read again"
    finish_rest = sum(seq.spent for seq in world.all)
    world.drain(64)
    assert finish_rest == 6
    assert sum(seq.spent for seq in world.all) == len(TEXT) + 3


def test_an_owner_of_lower_priority_is_not_waited_for() -> None:
    world = World()
    world.submit(TEXT)
    world.admit()
    urgent = world.submit([*TEXT, 1], priority=1)
    world.admit()
    assert urgent.status == "running" and urgent.resumes == [0]
    world.drain(3)


def test_waiting_ends_after_so_many_times() -> None:
    """Owners that die one after another: at the limit the follower runs by itself."""
    world = World(batch=2, pages=200)
    follower = None
    for turn in range(20):
        owner = world.submit([*TEXT, 9, turn])
        if follower is None:
            world.admit()
            follower = world.submit([*TEXT, 8])
        world.admit()
        if follower.status == "running":
            break
        world.abort(next(seq for seq in world.running if seq is not follower))
        for seq in world.cache.woken():  # the owner is asked for first, so that it owns again
            world.parked.remove(seq)  # type: ignore[arg-type]
            world.queue.append(seq)  # type: ignore[arg-type]
            seq.order = 10_000  # type: ignore[attr-defined]
        del owner
    assert follower is not None and follower.status == "running"
    assert turn == 8


def test_namespaces_share_nothing() -> None:
    world = World()
    world.submit(TEXT, namespace="a")
    finish(world)
    other = world.submit(TEXT, namespace="b")
    burst = world.submit(TEXT, namespace="c")
    world.admit()
    assert other.status == burst.status == "running"
    assert other.resumes == burst.resumes == [0]


def test_uncached_neither_looks_up_nor_inserts() -> None:
    world = World()
    world.submit(TEXT)
    finish(world)
    cached = world.cache.stats().pages_cached
    world.submit([*TEXT, 9], cached=False)
    world.admit()
    waiting = world.submit([*TEXT, 9, 9])
    world.admit()
    assert world.all[1].resumes == [0] and waiting.resumes == [len(TEXT)]
    world.abort(waiting)
    finish_one = world.all[1]
    world.drain(64)
    assert finish_one.status == "done" and finish_one.spent == len(TEXT) + 1
    assert world.cache.stats().pages_cached == cached


def test_a_failed_step_publishes_nothing() -> None:
    world = World()
    seq = world.submit(TEXT)
    world.admit()
    world.step(9)
    world.fail(64, retry=False)
    assert seq.status == "failed"
    assert world.cache.stats().pages_cached == 2
    again = world.submit(TEXT)
    world.admit()
    assert again.resumes == [8], "only the sealed blocks: the ninth token had no seal"


def test_a_preempted_sequence_goes_on_where_it_stopped() -> None:
    world = World()
    seq = world.submit(TEXT, out=9)
    world.admit()
    world.step(64)
    for _ in range(4):
        world.step(1)
    world.preempt(seq)
    assert world.cache.stats().running == 0
    finish(world)
    assert seq.resumes == [0, len(TEXT) + 4]
    assert seq.spent == len(TEXT) + 8


def test_partial_leaves_that_a_longer_one_replaces_are_given_back() -> None:
    world = World()
    for length in (5, 6, 7):
        world.submit(TEXT[:length])
        finish(world)
        assert world.cache.stats().pages_cached == 2
    world.submit(TEXT[:8])
    finish(world)
    assert world.cache.stats().pages_cached == 2


def test_an_answer_given_twice_is_kept_once() -> None:
    world = World(pages=40)
    for _ in range(3):
        world.submit(TEXT, out=20)
        finish(world)
        stats = world.cache.stats()
        assert stats.pages_cached == -(-(len(TEXT) + 19) // 4)
        assert stats.pages_free == 40 - stats.pages_cached


def test_two_pages_of_one_block_become_one_when_memory_is_short() -> None:
    """Two that ran side by side each have a copy; who is left gives its second pages back."""
    world = World(pages=20, batch=2)
    world.submit(TEXT[:8], out=26)
    long = world.submit(TEXT[:8], out=60)
    while world.all[0].status != "done":
        world.admit()
        world.step(8)
    assert long.lease is not None and long.lease.tip is not None
    shared = sum(node.page in long.lease.pages for node in long.lease.tip.path())
    assert shared <= 2, "its copies are its own until they are needed"
    finish(world)
    assert long.resumes == [7], "it was never sent back to the queue"


def test_going_on_below_a_block_that_another_left() -> None:
    """Two blocks in one commit: another's leaf, and under it a new one."""
    cache = PrefixCache(pages=20, block=4)
    first = cache.acquire(Seq("a", TEXT[:12], 1))
    second = cache.acquire(Seq("b", TEXT[:12], 1, priority=1))
    assert isinstance(first, Run) and isinstance(second, Run)
    assert cache.reserve(first.lease, 4) and cache.reserve(second.lease, 12)
    cache.commit(first.lease, 4)
    cache.release(first.lease, 4)
    cache.commit(second.lease, 8)
    verify(cache)
    assert cache.stats().pages_cached == 2 and cache.stats().pages_free == 20 - 3


@pytest.mark.parametrize("pages", range(1, 6))
def test_whatever_fits_alone_finishes(pages: int) -> None:
    world = World(pages=pages, batch=3)
    length = pages * 4 - 2
    for n in range(3):
        world.submit((TEXT * 2)[:length], out=3)
        world.submit([n, *(TEXT * 2)[: length - 1]], out=3)
    finish(world)


def test_the_last_page_moves_from_the_leaf_to_who_resumes_from_it() -> None:
    cache = PrefixCache(pages=2, block=4)
    first = Seq("a", TEXT[:7], 1)
    got = cache.acquire(first)
    assert isinstance(got, Run) and cache.reserve(got.lease, 7)
    cache.commit(got.lease, 7)
    leaf = got.lease.pages[1]
    cache.release(got.lease, 7)
    again = cache.acquire(Seq("b", [*TEXT[:7], 9], 1))
    assert isinstance(again, Run)
    assert again.copies == () and again.lease.pages[1] == leaf and again.lease.resume_len == 7
    verify(cache)


def test_full_holds_nothing() -> None:
    cache = PrefixCache(pages=3, block=4)
    first = cache.acquire(Seq("a", TEXT[:9], 1))
    assert isinstance(first, Run) and cache.reserve(first.lease, 9)
    cache.commit(first.lease, 8)
    before = cache.stats()
    assert cache.acquire(Seq("b", [*TEXT[:5], 7, 7], 1)) == Full("pages")
    assert cache.stats() == before
    verify(cache)


def test_what_cannot_be_reserved_leaves_the_lease_as_it_was() -> None:
    cache = PrefixCache(pages=3, block=4)
    got = cache.acquire(Seq("a", TEXT, 1))
    assert isinstance(got, Run)
    assert cache.reserve(got.lease, 5) and len(got.lease.pages) == 2
    held = list(got.lease.pages)
    assert not cache.reserve(got.lease, 13)
    assert got.lease.pages == held and cache.stats().pages_free == 1
    assert cache.reserve(got.lease, 12)
    verify(cache)


def test_the_source_of_a_copy_survives_the_allocation_it_needs() -> None:
    """Two leaves, no page free, the source the older one: the other goes."""
    cache = PrefixCache(pages=3, block=4)
    for name, tokens in (("a", [1, 2, 3, 4, 5, 6]), ("b", [7, 7, 7, 7])):
        got = cache.acquire(Seq(name, tokens, 1))
        assert isinstance(got, Run) and cache.reserve(got.lease, len(tokens))
        cache.commit(got.lease, len(tokens))
        cache.release(got.lease, len(tokens))
    assert cache.stats().pages_free == 0
    got = cache.acquire(Seq("c", [1, 2, 3, 4, 5, 6, 0], 1))
    assert isinstance(got, Run) and got.lease.resume_len == 6
    (copy,) = got.copies
    assert isinstance(copy, PageCopy) and copy.rows == 2 and copy.dst == got.lease.pages[1]
    verify(cache)


def test_wait_says_for_whom_and_for_how_much() -> None:
    cache = PrefixCache(pages=20, block=4)
    owner = cache.acquire(Seq("a", TEXT[:10], 1))
    assert isinstance(owner, Run)
    assert cache.acquire(Seq("b", [*TEXT[:6], 9], 1)) == Wait("a", 8)
    assert cache.acquire(Seq("c", [*TEXT[:10], 9], 1)) == Wait("a", 10)
    assert cache.stats().parked == 2 and cache.woken() == []
    assert cache.reserve(owner.lease, 10)
    cache.commit(owner.lease, 8)
    assert [holder.id for holder in cache.woken()] == ["b"]
    cache.commit(owner.lease, 10)
    assert [holder.id for holder in cache.woken()] == ["c"]
    assert cache.woken() == []


def test_who_is_forgotten_is_not_woken() -> None:
    cache = PrefixCache(pages=20, block=4)
    owner = cache.acquire(Seq("a", TEXT, 1))
    assert isinstance(owner, Run)
    followers = [Seq(name, [*TEXT, 9], 1) for name in "bc"]
    assert all(isinstance(cache.acquire(seq), Wait) for seq in followers)
    cache.forget(followers[0])
    cache.forget(followers[0])
    cache.release(owner.lease, 0)
    assert cache.woken() == [followers[1]]
    cache.forget(followers[1])
    assert cache.stats().parked == 0


def test_release_and_discard_are_idempotent() -> None:
    cache = PrefixCache(pages=20, block=4)
    got = cache.acquire(Seq("a", TEXT, 1))
    assert isinstance(got, Run) and cache.reserve(got.lease, 9)
    cache.commit(got.lease, 9)
    cache.release(got.lease, 9)
    before = cache.stats()
    assert cache.release(got.lease, 9) == ()
    cache.discard(got.lease)
    assert cache.stats() == before and before.running == 0 and before.pages_cached == 3


def test_a_wanted_prefix_outlives_newer_ones() -> None:
    """Three old leaves and one page too few: what a queued request wants is not what goes."""
    cache = PrefixCache(pages=4, block=4)

    def run(name: str, tokens: list[int]) -> int:
        got = cache.acquire(Seq(name, tokens, 1))
        assert isinstance(got, Run) and cache.reserve(got.lease, len(tokens))
        cache.commit(got.lease, len(tokens))
        cache.release(got.lease, len(tokens))
        return got.lease.resume_len

    for n in (1, 2, 3, 4):
        run(f"first {n}", [n] * 4)
    run("push", [5] * 4)  # the first is out, and the clock has moved
    cache.touch(Seq("queued", [2] * 5, 1))
    run("push again", [6] * 4)
    assert run("wanted", [2] * 5) == 4
    assert run("not wanted", [3] * 5) == 0


def test_what_is_used_often_outlives_what_is_used_once() -> None:
    world = World(pages=12, batch=1)
    for n in range(30):
        system = world.submit([1, 2, 3, 4, 9, n % 4, n // 4, 7])
        finish(world)
        assert n == 0 or system.resumes[0] >= 4, "the shared prefix was evicted"


def test_stats_and_clear() -> None:
    world = World(pages=30)
    world.submit(TEXT)
    finish(world)
    running = world.submit([*TEXT[:8], 9, 9], out=5)
    world.admit()
    world.step(64)
    stats = world.cache.stats()
    assert (stats.lookups, stats.hits, stats.hit_tokens) == (2, 1, 8)
    assert (stats.pages_total, stats.page_bytes, stats.running) == (30, 3, 1)
    # 18 tokens are 5 pages; the second prompt's last two tokens are one, and a copy in its lease.
    assert (stats.pages_cached, stats.pages_free) == (6, 23)
    world.clear()
    assert world.cache.stats().pages_cached == 2, "the path of what runs stays"
    world.drain()
    assert running.status == "done"
    world.clear()
    assert world.cache.stats().pages_free == 30
    assert not world.cache._trie.roots
