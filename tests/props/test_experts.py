"""Random histories of the expert store, its transfers delayed, reordered and failed at random.

A step is played as kernels play it: at once where everything lies in `places`, else wave by wave;
the op's result is what the bytes of the slots say. Checked after every operation: the slots, the
policy's picture of them, budgets; after every step: the accounts, against what copiers saw. Steps
are given up anywhere. Every policy, budgets from one wave to everything, one or two record sizes.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from experts.manual import ManualCopier, fill, held, key_at, layout, verify

from strata.experts.policies import POLICIES, make
from strata.experts.residency import Residency
from strata.experts.store import ExpertStore, TierPlan
from strata.figures import ExpertUse
from strata.types import StorageError

EXACT = ("lookups", "device", "bus", "host", "disk", "bus_bytes", "disk_bytes")


class Watched:
    """A policy, and what it has been told."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.name = inner, inner.name
        self.held: set[int] = set()
        self.left: Counter[int] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def enter(self, key: int) -> None:
        assert key not in self.held
        self.held.add(key)
        self.inner.enter(key)

    def leave(self, key: int) -> None:
        self.held.remove(key)
        self.left[key] += 1
        self.inner.leave(key)

    def victims(self, candidates: np.ndarray, number: int) -> np.ndarray:
        assert len({int(key) in self.held for key in candidates}) <= 1, "some have slots"
        chosen: np.ndarray = self.inner.victims(candidates, number)
        assert len(set(chosen.tolist())) == number <= len(candidates)
        return chosen


class World:
    """A store, and a player of steps."""

    def __init__(self, seed: int, policy: str, device: bool, **fixed: Any) -> None:
        draw = self.draw = random.Random(f"{seed} {policy} {device}")
        self.experts, self.top_k = draw.choice((4, 8, 12)), draw.choice((1, 2, 3))
        self.sizes = draw.choice(((4096,) * 3, (4096, 8192, 4096), (4096, 8192)))
        self.failing = fixed.get("failing", draw.choice((0.0, 0.0, 0.15)))
        self.prefetch = fixed.get("prefetch", draw.random() < 0.6)
        self.breaks = fixed.get("breaks", draw.choice((0.0, 0.1)))
        self.exact = not (self.failing or self.prefetch or self.breaks)
        self.copiers: list[ManualCopier] = []
        self.policies: list[Watched] = []
        self.budgets: list[dict[int, int]] = []
        plans = [self.plan(policy, fixed.get("slots")) for _ in range(1 + device)]
        self.store = ExpertStore(
            layout(self.sizes, self.experts),
            self.read,
            *plans,
            top_k=self.top_k,
            prefetch=self.prefetch,
        )
        self.sources = [self.store.source(place) for place in range(len(self.sizes))]
        self.shelves = list(dict.fromkeys(self.store._shelves))
        self.used, self.active = ExpertUse(), Counter[int]()
        self.done: list[tuple[np.ndarray, ...]] = []  # lookups of the step, and `here` before each
        self.checks = self.broken = self.waves = self.fast = 0

    def plan(self, policy: str, slots: int | None) -> TierPlan:
        most = self.experts * len(self.sizes)
        own = {
            size: slots or self.draw.choice((self.top_k, self.top_k + 1, most // 3, most))
            for size in dict.fromkeys(self.sizes)
        }
        own = {size: max(slots, self.top_k) for size, slots in own.items()}
        self.budgets.append(own)
        self.copiers.append(ManualCopier(self.draw, self.failing))
        floor = self.draw.choice((0, 0, 2))
        self.policies.append(Watched(make(policy, len(self.sizes), self.experts, floor)))
        return TierPlan(own, self.policies[-1], self.copiers[-1])

    def read(self, key: int, into: Any) -> None:
        """The host's slot of the key is written, and no other."""
        host = self.store._shelves[key // self.experts].host
        assert host.arena.data[int(host.slot_of[key])].data_ptr() == into.data_ptr()
        fill(key, into)

    # ----------------------------------------------------------------- steps

    def step(self) -> None:
        """All places for some rows of some tokens; it may be given up anywhere."""
        counts = [self.draw.choice((1, 1, 3, 9)) for _ in range(self.draw.randint(1, 3))]
        starts = np.cumsum([0, *counts]).astype(np.int32)
        self.store.begin(starts)
        self.done = []
        choices = [self.choice(sum(counts)) for _ in self.sizes]
        try:
            for place, chosen in enumerate(choices):
                ahead = choices[place + 1] if place + 1 < len(choices) else None
                if ahead is not None and self.draw.random() < 0.3:
                    ahead = self.choice(sum(counts))  # a wrong guess
                self.lookup(place, chosen, ahead if self.prefetch else None)
                self.check()
        except (StorageError, InterruptedError) as error:
            assert isinstance(error, InterruptedError) or self.failing
            self.broken += 1
        self.check()
        self.account(starts, self.store.tally())
        self.check()

    def choice(self, tokens: int) -> np.ndarray:
        """int32 [tokens, top_k]: the lower half of the experts is wanted more than the other."""
        half = max(self.top_k, self.experts // 2)
        pools = [self.draw.choice((half, half, self.experts)) for _ in range(tokens)]
        return np.array([self.draw.sample(range(pool), self.top_k) for pool in pools], np.int32)

    def lookup(self, place: int, chosen: np.ndarray, ahead: np.ndarray | None) -> None:
        source, first = self.sources[place], place * self.experts
        wanted = np.unique(chosen)
        self.active[place] += len(wanted)
        following = None if ahead is None else self.sources[place + 1].places
        outputs = np.full(chosen.shape, -1)
        if source.places[chosen].all() and (following is None or following[ahead].all()):
            for expert in wanted.tolist():
                key = key_at(int(source.places[expert]), self.sizes[place])
                outputs[chosen == expert] = key
            source.served(chosen)
            self.done.append((chosen, *2 * [np.ones(chosen.shape, bool)]))
            self.fast += 1
        else:
            tiers = self.store._shelves[place].tiers
            self.done.append((chosen, *here(tiers[0], first + chosen)))
            absent = [not any(tier.slot_of[first + one] >= 0 for tier in tiers) for one in wanted]
            reads, waits = self.copiers[0].submitted, self.total("waits")
            self.play(source, place, chosen, ahead, outputs)
            if self.exact:
                assert self.copiers[0].submitted - reads == sum(absent), "each is read once"
            slots = sum(tier.arena.slots for tier in tiers)
            assert self.total("waits") - waits <= 4 * len(wanted) + slots
        assert (outputs == first + chosen).all(), "the result"

    def play(self, source: Any, place: int, chosen: Any, ahead: Any, outputs: Any) -> None:
        """Waves, each of which writes its experts' outputs."""
        seen: list[int] = []
        waves = source.waves(chosen, ahead)
        for wave in waves:
            arena = source.arenas[wave.arena]
            slots = [arena[slot].data_ptr() for slot in wave.slots.tolist()]
            for pause in range(2):  # while the wave computes, others move
                for expert, address in zip(wave.experts.tolist(), slots, strict=True):
                    key = key_at(address, self.sizes[place])
                    assert key == place * self.experts + expert
                    outputs[chosen == expert] = key
                if not pause:
                    self.others_move()
            seen += wave.experts.tolist()
            assert len(seen) == len(set(seen)), "no expert twice"
            self.waves += 1
            if self.draw.random() < self.breaks:
                if self.draw.random() < 0.5:
                    waves.close()
                raise InterruptedError
        assert sorted(seen) == np.unique(chosen).tolist(), "each in one wave"

    def others_move(self) -> None:
        for copier in self.copiers:
            copier.some()
        self.check()

    def total(self, name: str) -> int:
        return sum(getattr(copier, name) for copier in self.copiers)

    # ---------------------------------------------------------------- checks

    def check(self) -> None:
        """What holds at any time."""
        self.checks += 1
        for shelf in self.shelves:
            for tier, budget in zip(reversed(shelf.tiers), self.budgets, strict=False):
                verify(tier)
                assert tier.arena.data.numel() <= budget[shelf.nbytes] * shelf.nbytes
                for key, slot in held(tier):
                    address = tier.arena.data[slot].data_ptr()
                    assert key_at(address, shelf.nbytes) == key, "a stale slot"
        for policy, addresses in zip(self.policies, self.store._addresses[::-1], strict=True):
            assert policy.held == set(np.flatnonzero(addresses).tolist())

    def account(self, starts: np.ndarray, tally: list[ExpertUse]) -> None:
        """A step's accounts."""
        assert len(tally) == len(starts) - 1
        for row, use in enumerate(tally):
            part = slice(starts[row], starts[row + 1])
            assert use.lookups == sum(one[0][part].size for one in self.done)
            assert use.lookups == use.device + use.bus + use.host + use.disk
            fast = use.device if len(self.policies) > 1 else use.host
            sure, most = (sum(int(one[n][part].sum()) for one in self.done) for n in (1, 2))
            assert sure <= fast <= most
        self.used = sum(tally, start=self.used)
        layers = self.store.figures()
        total = sum((one.use for one in layers), start=ExpertUse())
        for name in EXACT:
            assert getattr(total, name) == getattr(self.used, name), name
        assert total.bus_stall_s == pytest.approx(self.used.bus_stall_s, abs=1e-9)
        assert total.disk_stall_s == pytest.approx(self.used.disk_stall_s, abs=1e-9)
        moved = [copier.nbytes for copier in self.copiers]
        assert [total.disk_bytes, total.bus_bytes] == [*moved, 0][:2]
        for place, one in enumerate(layers):
            keys = range(place * self.experts, (place + 1) * self.experts)
            kept = [len(policy.held.intersection(keys)) for policy in self.policies]
            assert [one.on_host, one.on_device] == [*kept, 0][:2]
            assert one.evicted == sum(policy.left[key] for policy in self.policies for key in keys)
            assert one.active == self.active[place]
            assert one.prefetched == one.used + one.wasted
            assert self.prefetch or not one.prefetched


def here(tier: Residency, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which keys can be read in a tier; with those that have arrived since it was last asked, which
    it may drop if whoever wanted them has given up.
    """
    sure, most = np.zeros((2, *keys.shape), bool)
    for at, key in np.ndenumerate(keys):
        slot = int(tier.slot_of[key])
        coming = tier.transfer(slot) if slot >= 0 else None
        sure[at] = slot >= 0 and coming is None
        most[at] = sure[at] or (coming is not None and coming.settled and coming.error is None)
    return sure, most


def note(tried: Counter[str], world: World) -> None:
    tried["expert steps given up"] += world.broken
    tried["expert store checks"] += world.checks
    tried["waves"] += world.waves


@pytest.mark.parametrize("device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("policy", POLICIES)
def test_random_histories(policy: str, device: bool, scale: float, tried: Counter[str]) -> None:
    for seed in range(round(8 * scale)):
        try:
            world = World(seed, policy, device)
            for _ in range(14):
                world.step()
            assert world.broken == 0 or world.failing or world.breaks
            for copier in world.copiers:
                copier.failing = 0.0
            world.breaks, broken = 0.0, world.broken
            for _ in range(4):
                world.step()
            # A record that had failed already may be met once more; then all is well.
            assert world.broken - broken <= 1
        except AssertionError as error:
            raise AssertionError(f"World({seed}, {policy!r}, {device}): {error}") from error
        note(tried, world)


@pytest.mark.parametrize("device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("policy", POLICIES)
def test_with_slots_for_all_nothing_moves_after_a_while(
    policy: str, device: bool, tried: Counter[str]
) -> None:
    world = World(1, policy, device, slots=100, failing=0.0, breaks=0.0)
    for copier in world.copiers:
        copier.draw = None  # every transfer is fast: nothing is left in main memory for long
    for _ in range(30):
        world.step()
    submitted, fast = world.total("submitted"), world.fast
    for _ in range(8):
        world.step()
    assert world.total("submitted") == submitted
    assert world.fast - fast == 8 * len(world.sizes)
    note(tried, world)
