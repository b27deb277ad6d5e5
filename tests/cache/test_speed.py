"""Bounds on time, far above what is measured (0.4 us, 0.3 ms, 1.2 ms on one core at leisure)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from statistics import median

from sim.world import Seq

from strata.cache import PrefixCache, Run

RNG = random.Random(1)
TEXT = [RNG.randrange(50_000) for _ in range(8192)]


def timed(body: Callable[[], object], times: int = 7) -> float:
    """Median seconds."""
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        body()
        found.append(time.perf_counter() - begun)
    return median(found)


def begin(cache: PrefixCache, name: str, tokens: list[int]) -> Run:
    got = cache.acquire(Seq(name, tokens, 1))
    assert isinstance(got, Run) and cache.reserve(got.lease, len(tokens))
    return got


def test_a_decode_step_costs_the_same_at_any_length() -> None:
    cache = PrefixCache(pages=1000)
    run = begin(cache, "a", list(TEXT))
    cache.commit(run.lease, len(TEXT))
    tokens = run.lease.holder.tokens
    assert isinstance(tokens, list)

    def step() -> None:
        tokens.append(7)
        cache.reserve(run.lease, len(tokens))
        cache.commit(run.lease, len(tokens))

    assert timed(step, 2000) < 100e-6


def test_a_long_prompt_is_matched_and_claimed_in_milliseconds() -> None:
    cache = PrefixCache(pages=2000)
    turns = iter(range(100))

    def cold() -> None:
        got = cache.acquire(Seq("cold", [next(turns), *TEXT], 1))
        assert isinstance(got, Run)
        cache.discard(got.lease)

    assert timed(cold) < 50e-3
    run = begin(cache, "a", list(TEXT))
    cache.commit(run.lease, len(TEXT))
    cache.release(run.lease, len(TEXT))

    def hit() -> None:
        got = cache.acquire(Seq("hit", [*TEXT, 1], 1))
        assert isinstance(got, Run) and got.lease.resume_len == len(TEXT)
        cache.discard(got.lease)

    assert timed(hit) < 20e-3


def test_many_siblings_do_not_slow_a_match_down() -> None:
    cache = PrefixCache(pages=4000)
    for n in range(2000):
        run = begin(cache, "a", [*TEXT[:16], n, 7, 7])
        cache.commit(run.lease, 19)
        cache.release(run.lease, 19)
    wanted = Seq("b", [*TEXT[:16], 1999, 7, 8, 8], 1)
    assert timed(lambda: cache.touch(wanted)) < 5e-3
    got = cache.acquire(wanted)
    assert isinstance(got, Run) and got.lease.resume_len == 18
