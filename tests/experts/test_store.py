"""The expert store under a copier that delays, reorders and fails transfers at random.

A step is played as kernels play it: fast where everything lies in `places`, else wave by wave. What
counts is seen from outside: bytes of slots, experts of waves, sums of accounts.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from strata.experts.layout import ExpertLayout, Place
from strata.experts.policies import POLICIES
from strata.experts.store import ExpertStore, TierPlan
from strata.figures import ExpertUse
from strata.kernels.moe import ExpertForm
from strata.memory.transfer import Transfer
from strata.types import ConfigError, StorageError

EXPERTS, TOP_K = 8, 2
SIZES = (4096, 8192, 4096)  # records of the three places


def layout() -> ExpertLayout:
    places, offset = [], 0
    for number, size in enumerate(SIZES):
        form = ExpertForm((8, 8, 8), 4, 4, (0, 64, 128), size - 100)
        places.append(Place(2 * number, form, EXPERTS, size, offset))
        offset += size * EXPERTS
    return ExpertLayout(tuple(places))


def fill(key: int, into: Tensor) -> None:
    """A record: its key, all over."""
    assert len(into) == SIZES[key // EXPERTS]
    into.view(torch.int32).fill_(key + 1)


class ManualCopier:
    """Runs jobs when somebody waits, in any order, or in between; some of them fail."""

    def __init__(self, draw: random.Random, failing: float) -> None:
        self.draw, self.failing, self.moved = draw, failing, 0
        self.queue: list[tuple[Transfer, Callable[[], None]]] = []

    def submit(self, job: Callable[[], None], nbytes: int, urgent: bool = True) -> Transfer:
        transfer = Transfer(nbytes)
        self.queue.append((transfer, job))
        self.moved += nbytes
        return transfer

    def hasten(self, transfer: Transfer) -> None:
        pass

    def some(self) -> None:
        """A few transfers end."""
        while self.queue and self.draw.random() < 0.5:
            self._one(self.queue.pop(self.draw.randrange(len(self.queue))))

    def _one(self, taken: tuple[Transfer, Callable[[], None]]) -> None:
        transfer, job = taken
        if self.draw.random() < self.failing:
            transfer.error = "as the test wants it"  # the slot has what was there before
        else:
            job()
        transfer.settled = True

    def wait(self, transfers: Collection[Transfer]) -> None:
        assert transfers
        while not any(one.settled for one in transfers):
            assert self.queue, "it waits for what nobody moves"
            self._one(self.queue.pop(self.draw.randrange(len(self.queue))))

    def close(self) -> None:
        pass


class World:
    """A store, and a player of steps."""

    def __init__(
        self, seed: int, host: int, device: int, failing: float = 0.0, **more: Any
    ) -> None:
        self.draw = random.Random(seed)
        names = list(POLICIES)
        policy = POLICIES[more.pop("policy", names[seed % len(names)])]

        def plan(slots: int) -> TierPlan:
            self.copiers.append(ManualCopier(self.draw, failing))
            made = policy(len(SIZES), EXPERTS)
            leave = made.leave

            def left(key: int) -> None:
                self.evicted += 1
                leave(key)

            made.leave = left  # type: ignore[method-assign]
            return TierPlan(dict.fromkeys(SIZES, slots), made, self.copiers[-1])

        self.copiers: list[ManualCopier] = []
        self.evicted = 0
        tiers = [plan(host), plan(device) if device else None]
        self.store = ExpertStore(layout(), fill, *tiers, top_k=TOP_K, **more)  # type: ignore[arg-type]
        self.sources = [self.store.source(place) for place in range(len(SIZES))]
        self.entries, self.used, self.broken = 0, ExpertUse(), 0

    def step(self, breaks: float = 0.0) -> None:
        """All places, for some rows of some tokens; the step may be given up anywhere."""
        counts = [self.draw.choice((1, 1, 3, 9)) for _ in range(self.draw.randint(1, 3))]
        self.store.begin(np.cumsum([0, *counts]).astype(np.int32))
        choices = [self.choice(sum(counts)) for _ in SIZES]
        try:
            for place, chosen in enumerate(choices):
                ahead = choices[place + 1] if place + 1 < len(SIZES) else None
                if ahead is not None and self.draw.random() < 0.3:
                    ahead = self.choice(sum(counts))  # a wrong guess
                self.entries += chosen.size
                self.lookup(place, chosen, ahead, breaks)
        except (StorageError, InterruptedError):
            self.broken += 1
        tally = self.store.tally()
        assert len(tally) == len(counts)
        self.used = sum(tally, start=self.used)
        self.check()

    def choice(self, tokens: int) -> np.ndarray:
        """int32 [tokens, TOP_K]: some experts are wanted more than others."""
        rows = [self.draw.sample(range(EXPERTS - 4 * (self.draw.random() < 0.5)), TOP_K)]
        rows += [self.draw.sample(range(EXPERTS), TOP_K) for _ in range(tokens - 1)]
        return np.array(rows, np.int32)

    def lookup(self, place: int, chosen: np.ndarray, ahead: Any, breaks: float) -> None:
        source, wanted = self.sources[place], set(chosen.ravel().tolist())
        for expert in np.flatnonzero(source.places).tolist():
            self.holds(int(source.places[expert]), place, expert)
        following = self.sources[place + 1].places if ahead is not None else None
        if source.places[chosen].all() and (following is None or following[ahead].all()):
            return source.served(chosen)
        seen: list[int] = []
        for wave in source.waves(chosen, ahead if self.store.ahead else None):
            arena = source.arenas[wave.arena]
            for _ in range(2):  # while the wave computes, others move
                for expert, slot in zip(wave.experts.tolist(), wave.slots.tolist(), strict=True):
                    self.holds(arena[slot].data_ptr(), place, expert)
                for copier in self.copiers:
                    copier.some()
            seen += wave.experts.tolist()
            if self.draw.random() < breaks:
                raise InterruptedError
        assert sorted(seen) == sorted(wanted), "each once"
        return None

    def holds(self, address: int, place: int, expert: int) -> None:
        """The record at `address` is the expert's."""
        words = (ctypes.c_int32 * (SIZES[place] // 4)).from_address(address)
        assert (words[0], words[len(words) - 1]) == (place * EXPERTS + expert + 1,) * 2

    def check(self) -> None:
        for shelf in set(self.store._shelves):
            for tier in shelf.tiers:
                tier.verify()
        layers = self.store.figures()
        total = sum((one.use for one in layers), start=ExpertUse())
        for name in ("lookups", "device", "bus", "host", "disk", "bus_bytes", "disk_bytes"):
            assert getattr(total, name) == getattr(self.used, name)
        assert total.lookups == total.device + total.bus + total.host + total.disk == self.entries
        moved = [copier.moved for copier in self.copiers]
        assert [total.disk_bytes, total.bus_bytes][: len(moved)] == moved
        assert sum(one.evicted for one in layers) == self.evicted
        assert [one.layer for one in layers] == [0, 2, 4]
        assert all(one.used + one.wasted <= one.prefetched for one in layers)


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize(("host", "device"), [(2, 0), (3, 0), (9, 0), (3, 2), (16, 5), (8, 16)])
@pytest.mark.parametrize("seed", range(3))
def test_every_expert_is_the_right_one(seed: int, host: int, device: int, prefetch: bool) -> None:
    world = World(seed, host, device, prefetch=prefetch)
    for _ in range(40):
        world.step()
    assert world.broken == 0


@pytest.mark.parametrize(("host", "device"), [(2, 0), (5, 0), (3, 2), (16, 5)])
@pytest.mark.parametrize("seed", range(3))
def test_failures_and_steps_given_up_leave_nothing_wrong(seed: int, host: int, device: int) -> None:
    world = World(seed, host, device, failing=0.1)
    for _ in range(60):
        world.step(breaks=0.05)
    assert world.broken > 3
    for copier in world.copiers:
        copier.failing = 0.0
    broken = world.broken
    for _ in range(10):
        world.step()
    assert world.broken - broken <= 1, "but for what had failed on its way already"


def test_with_slots_for_all_nothing_moves_after_a_while() -> None:
    world = World(0, 16, 16)
    for _ in range(60):
        world.step()
    before = world.used
    for _ in range(20):
        world.step()
    assert (world.used.bus_bytes, world.used.disk_bytes) == (before.bus_bytes, before.disk_bytes)
    assert world.used.device > before.device and world.used.disk == before.disk


def test_a_right_guess_makes_a_host_lookup_of_a_disk_one() -> None:
    found = {}
    for prefetch in (True, False):
        world = World(3, 9, 0, prefetch=prefetch, policy="lru")
        for _ in range(60):
            world.step()
        found[prefetch] = world.used.host
        used = sum(one.used for one in world.store.figures())
        assert (used > 10) == prefetch
    assert found[True] > found[False]


def test_too_few_slots_for_a_token() -> None:
    with pytest.raises(ConfigError, match="1 slots for experts of 4096 bytes are too few"):
        World(0, 1, 0)
