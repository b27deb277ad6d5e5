"""Random histories of a World, from one seed each: for soaks and for mutants."""

from __future__ import annotations

import random
from collections.abc import Sequence

from sim.memory import VOCAB
from sim.world import World

Texts = Sequence[Sequence[int]]


def prompt(rng: random.Random, bases: Texts, done: Texts) -> list[int]:
    """A new prompt: a cut of a known text with something new behind it, or a known talk longer."""
    text: list[int]
    if done and rng.random() < 0.35:
        text = list(rng.choice(done))
    else:
        base = rng.choice(bases)
        text = list(base[: rng.randrange(len(base) + 1)])
    text = text[:48] + [rng.randrange(VOCAB) for _ in range(rng.choice([0, 1, 1, 2, 3, 5, 8]))]
    return text or [rng.randrange(VOCAB)]


def fuzz(seed: int, hybrid: bool | None = None, scarce: bool | None = None) -> World:
    """One history; raises AssertionError at the first thing that is wrong."""
    rng = random.Random(seed)
    hybrid = rng.random() < 0.5 if hybrid is None else hybrid
    scarce = rng.random() < 0.6 if scarce is None else scarce
    block = rng.choice([1, 2, 4, 4, 8])
    longest = 48 + 8 + 12
    least = -(-longest // block)  # one request fits alone
    world = World(
        pages=least + rng.choice([0, 1, 2, 5, 20]) if scarce else 500,
        block=block,
        states=None if not hybrid else rng.choice([1, 2, 3, 5, 9]) if scarce else 200,
        batch=rng.choice([1, 2, 4, 8]),
    )
    bases = [[rng.randrange(VOCAB) for _ in range(48)] for _ in range(3)]
    faults = rng.random() < 0.5
    for _ in range(rng.randrange(10, 60)):
        act(world, rng, bases, faults)
    world.drain(rng.choice([1, 3, 16, 64]))
    world.clear()
    stats = world.cache.stats()
    assert stats.pages_free == stats.pages_total and stats.states_free == stats.states_total
    return world


def act(world: World, rng: random.Random, bases: Texts, faults: bool) -> None:
    """One random operation."""
    choice = rng.random()
    done = [seq.tokens for seq in world.all if seq.status == "done"][-6:]
    if choice < 0.40:
        tokens = prompt(rng, bases, done)
        facts = {
            "namespace": rng.choice(["", "", "", "x"]),
            "cached": rng.random() < 0.93,
            "priority": rng.choice([0, 0, 0, 1]),
            "stable_len": rng.choice([0, rng.randrange(len(tokens) + 1)]),
            "anchors": tuple(rng.randrange(len(tokens) + 1) for _ in range(rng.choice([0, 0, 2]))),
        }
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            world.submit(tokens, rng.randrange(1, 12), **facts)
    elif choice < 0.88:
        world.admit()
        drop = rng.random() < 0.2
        world.step(rng.choice([1, 2, 3, 7, 16, 64]), lambda: drop and rng.random() < 0.5)
    elif choice < 0.92 and world.live():
        world.abort(rng.choice(world.live()))
    elif choice < 0.95 and world.running:
        world.preempt(rng.choice(world.running))
    elif choice < 0.98 and faults and world.running:
        world.fail(rng.choice([1, 4, 64]), retry=rng.random() < 0.5)
    elif choice >= 0.995:
        world.clear()
