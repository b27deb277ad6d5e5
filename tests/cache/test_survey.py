"""The survey of the cache, against a tree put together from the blocks themselves."""

from __future__ import annotations

import random
from array import array

import pytest
from sim.invariants import nodes_of
from sim.world import World

from strata.cache.trie import Node
from strata.figures import Stretch, Survey

TEXT = [1, 2, 3, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 0, 2, 0]  # four blocks


def say(world: World, tokens: list[int], **facts: object) -> None:
    world.submit(tokens, **facts)
    world.drain(64)


def tokens_of(world: World, told: Stretch) -> list[int]:
    found = world.cache.prefix(told.number, told.namespace)
    assert found is not None and found.own == told.tokens and len(found.tokens) == told.end
    return list(found.tokens)


def look(world: World, depth: int = 99, limit: int = 9999) -> Survey:
    return world.cache.survey(depth, limit)


def test_two_prompts_with_a_common_beginning_are_three_stretches() -> None:
    world = World()
    say(world, [*TEXT, 5, 5, 5, 5, 5])
    say(world, [*TEXT, 6, 6, 6, 6, 6, 6, 6, 6, 6])
    told = look(world)
    (top,) = [one for one in told.stretches if one.parent is None]
    below = [one for one in told.stretches if one.parent == top.number]
    assert len(below) == len(told.stretches) - 1 == 2
    assert (top.tokens, top.end, top.hits, top.bytes) == (16, 16, 1, 4 * 3)
    assert sorted(one.end for one in below) == [21, 25]
    assert tokens_of(world, top) == TEXT
    assert {tuple(tokens_of(world, one)[16:]) for one in below} == {(5,) * 5, (6,) * 9}


def test_the_last_used_come_first_and_limits_hold() -> None:
    world = World()
    clock = [0.0]
    world.cache._pages._now = world.cache._now = lambda: clock[0]
    for i in range(6):
        clock[0] = float(i)
        say(world, [10 + i] * 9)
    clock[0] = 10.0
    say(world, [12] * 9)
    told = look(world, limit=3)
    assert [tokens_of(world, one)[0] for one in told.stretches] == [12, 15, 14]
    assert [one.idle_s for one in told.stretches] == [0.0, 5.0, 6.0]
    assert (told.pages, told.total) == (9, 18)
    say(world, [*[12] * 8, 1, 1, 1, 1, 1])
    assert all(one.parent is None for one in look(world, depth=1).stretches)
    assert any(one.parent for one in look(world, depth=2).stretches)


def test_a_prefix_is_told_to_its_namespace_alone_and_not_when_it_is_gone() -> None:
    world = World()
    say(world, TEXT, namespace="a")
    say(world, TEXT, namespace="b")
    mine, other = (next(s for s in look(world).stretches if s.namespace == n) for n in "ab")
    assert tokens_of(world, mine)
    assert world.cache.prefix(other.number, "a") is None
    assert world.cache.prefix(mine.number, "") is None
    assert world.cache.prefix(0, "a") is world.cache.prefix(99, "a") is None
    world.cache.clear()
    assert world.cache.prefix(mine.number, "a") is None
    assert not world.cache._trie.named


def test_numbers_stay() -> None:
    world = World()
    say(world, TEXT)
    (before,) = look(world).stretches
    say(world, [*TEXT, 7, 7, 7, 7, 7])  # it grows
    (after,) = look(world).stretches
    assert before.number == after.number and after.end > before.end
    say(world, [*TEXT[:8], 9, 9, 9, 9])  # it is parted: the number stays with its beginning
    parted = look(world).stretches
    top = next(one for one in parted if one.parent is None)
    assert (top.number, top.end) == (before.number, 8)


@pytest.mark.parametrize("states", [None, 12])
@pytest.mark.parametrize("seed", range(4))
def test_a_random_cache_is_told_whole(seed: int, states: int | None) -> None:
    """Every sealed node is in exactly one stretch; what is told of each is summed up anew."""
    draw = random.Random(seed)
    world = World(pages=64, states=states, batch=3)
    stems = [[draw.randrange(3) for _ in range(20)] for _ in range(3)]
    for i in range(30):
        stem = draw.choice(stems)[: draw.randrange(1, 20)]
        tail = [draw.randrange(3) for _ in range(draw.randrange(1, 9))]
        world.submit([*stem, *tail], out=draw.randrange(1, 6), namespace=draw.choice(["", "x"]))
        world.admit()
        if i % 3 == 0 and world.running:
            world.step(draw.randrange(1, 30))
        told = look(world)
        check(world, told)
    world.drain(400)
    check(world, look(world))


def check(world: World, told: Survey) -> None:
    sealed = [node for node in nodes_of(world.cache._trie) if node.owner is None]
    assert told.pages == told.total == len(sealed)
    assert sum(one.states for one in told.stretches) == sum(
        n.checkpoint is not None for n in sealed
    )
    named = world.cache._trie.named
    running = [set(lease.tip.path()) for lease in world.cache._leases.values() if lease.tip]
    seen: list[Node] = []
    for one in told.stretches:
        node = named[one.number]
        path = b"".join(each.key for each in reversed(list(node.path())))
        whole = tokens_of(world, one)
        assert array("i", whole).tobytes().startswith(path)
        assert one.running == sum(node in tips for tips in running)
        assert one.hits == node.hits
        members, size = [node], node.rows
        while size < one.tokens:
            (node,) = [n for n in node.children.by_key.values() if n.owner is None]
            members.append(node)
            size += node.rows
        states = sum(each.checkpoint is not None for each in members)
        assert size == one.tokens and states == one.states
        assert one.bytes == 3 * len(members) + 50 * states
        children = [n for n in node.children.by_key.values() if n.owner is None]
        below = [other for other in told.stretches if other.parent == one.number]
        assert len(below) == len(children) != 1
        seen += members
    assert len(seen) == len(set(seen)) == len(sealed)


def test_why_pages_and_states_went() -> None:
    world = World(pages=8)
    for i in range(4):
        say(world, [10 + i] * 12)
    gone = world.cache.stats().gone
    room, cleared = "pages: room for another request", "pages: the cache was emptied"
    assert gone[room] == world.cache.stats().evicted_pages > 0 and gone[cleared] == 0
    left = world.cache.stats().pages_cached
    world.cache.clear()
    assert world.cache.stats().gone[cleared] == left


def test_why_states_went() -> None:
    world = World(pages=64, states=6, batch=1)
    for i in range(8):
        say(world, [10 + i] * 24, stable_len=24)
    gone = world.cache.stats().gone
    live, better, cleared = (
        f"states: {why}"
        for why in ("a slot for a running request", "a slot for a checkpoint worth more",
                    "the cache was emptied")
    )  # fmt: skip
    assert gone[live] + gone[better] == world.cache.stats().evicted_states > 0
    left = world.cache.stats().states_cached
    world.cache.clear()
    assert gone[cleared] == 0 and world.cache.stats().gone[cleared] == left > 0
