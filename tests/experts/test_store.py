"""Scenes of the expert store with transfers that move when the scene says so.

Random histories are in `props/test_experts.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from manual import ManualCopier, fill, key_at, layout, verify

from strata.experts.lanes import Rates
from strata.experts.policies.counting import Lru
from strata.experts.store import ExpertStore, TierPlan
from strata.figures import ExpertUse
from strata.kernels.moe import ExpertWave
from strata.types import ConfigError, IntArray, StorageError

PLACES, EXPERTS, TOP_K, SIZE = 2, 8, 2, 4096
FAST_BUS = Rates(bus=1e15)  # everything that is in main memory takes it


class Strict(Lru):
    """Takes nothing in at the price of another."""

    def admits(self, key: int, victim: int) -> bool:
        return False


class Scene:
    """A store of two places. Keys of the second begin at EXPERTS."""

    def __init__(self, host: int, device: int = 0, policy: Any = Lru, **more: Any) -> None:
        self.disk, self.bus = ManualCopier(), ManualCopier()
        self.reads: list[int] = []
        plans = [TierPlan({SIZE: host}, policy(PLACES, EXPERTS), self.disk)]
        if device:
            plans.append(TierPlan({SIZE: device}, policy(PLACES, EXPERTS), self.bus))
        places = layout([SIZE] * PLACES, EXPERTS)
        self.store = ExpertStore(places, self.read, *plans, top_k=TOP_K, **more)
        self.sources = [self.store.source(place) for place in range(PLACES)]

    def read(self, key: int, into: Any) -> None:
        self.reads.append(key)
        fill(key, into)

    def begin(self, rows: int = 1) -> None:
        self.store.begin(np.arange(rows + 1, dtype=np.int32))

    def waves(self, place: int, *chosen: list[int], ahead: Any = None) -> Iterator[ExpertWave]:
        guess = None if ahead is None else np.array([ahead], np.int32)
        return self.sources[place].waves(np.array(chosen, np.int32), guess)

    def lookup(self, place: int, *chosen: list[int], ahead: Any = None) -> list[list[int]]:
        """The waves' experts, their bytes looked at."""
        found = []
        for wave in self.waves(place, *chosen, ahead=ahead):
            arena = self.sources[place].arenas[wave.arena]
            keys = [key_at(arena[slot].data_ptr(), SIZE) for slot in wave.slots.tolist()]
            assert keys == [place * EXPERTS + expert for expert in wave.experts.tolist()]
            found.append(wave.experts.tolist())
            assert len(found) <= EXPERTS, "it ends"
        return found

    def all(self, place: int, *chosen: list[int], ahead: Any = None) -> list[int]:
        """The same in whatever waves."""
        return sorted(one for wave in self.lookup(place, *chosen, ahead=ahead) for one in wave)

    def warm(self, place: int, *experts: int) -> None:
        """Lookups of these, two at a time, in a step of their own."""
        for pair in zip(experts[::2], experts[1::2], strict=True):
            self.begin()
            self.lookup(place, list(pair))
            self.store.tally()
        self.reads.clear()

    def kept(self) -> list[int]:
        """The keys with addresses in main memory."""
        keys: IntArray = np.flatnonzero(self.store._addresses[-1])
        return keys.tolist()

    def quiet(self) -> bool:
        """Whether all slots are free or kept."""
        host = self.store._shelves[0].host
        verify(host)
        return host.free == host.arena.slots - len(self.kept())


def test_what_is_there_is_computed_before_anything_is_waited_for() -> None:
    scene = Scene(9)
    scene.warm(0, 0, 1)
    scene.begin()
    waits = scene.disk.waits
    waves = scene.waves(0, [0, 5])
    assert next(waves).experts.tolist() == [0]
    assert scene.disk.waits == waits and len(scene.disk.jobs) == 1, "5 is on its way"
    assert next(waves).experts.tolist() == [5]
    assert next(waves, None) is None
    [use] = scene.store.tally()
    assert (use.host, use.disk, use.disk_bytes) == (1, 1, SIZE) and use.disk_stall_s > 0


def test_it_says_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, told = Scene(9), list[bool]()
    wait = scene.disk.wait

    def watched(transfers: Any) -> None:
        told.append(scene.store.waiting)
        wait(transfers)

    monkeypatch.setattr(scene.disk, "wait", watched)
    scene.begin()
    assert not scene.store.waiting
    for _ in scene.waves(0, [0, 5]):
        assert not scene.store.waiting, "it computes"
    assert told and all(told) and not scene.store.waiting


def test_room_is_told_once_though_places_share_it() -> None:
    scene = Scene(9, 4)
    rooms = [(one.device_room, one.host_room) for one in scene.store.figures()]
    assert rooms == [(4 * SIZE, 9 * SIZE), (0, 0)]


def test_the_most_wanted_are_read_first() -> None:
    scene = Scene(9)
    scene.begin(rows=4)
    scene.lookup(0, [1, 4], [4, 6], [6, 4], [4, 6])
    assert scene.reads == [4, 6, 1]


def test_what_is_wanted_comes_before_guesses() -> None:
    scene = Scene(9)
    scene.begin()
    assert scene.all(0, [0, 1], ahead=[2, 3]) == sorted(scene.reads) == [0, 1]
    assert len(scene.disk.jobs) == 2 and not scene.disk.urgent, "guesses are in no hurry"
    scene.store.tally()
    assert [one.prefetched for one in scene.store.figures()] == [0, 2]
    assert [one.wasted for one in scene.store.figures()] == [0, 2]


def test_a_guess_that_comes_true_is_hastened() -> None:
    scene = Scene(9)
    scene.begin()
    scene.lookup(0, [0, 1], ahead=[2, 3])
    waves = scene.waves(1, [2, 4])
    assert next(waves).experts.tolist() == [2], "it had begun before 4"
    assert len(scene.disk.jobs) == 2 and len(scene.disk.urgent) == 1
    assert [wave.experts.tolist() for wave in waves] == [[4]]
    [use] = scene.store.tally()
    second = scene.store.figures()[1]
    assert (second.prefetched, second.used, second.wasted) == (2, 1, 1)
    assert use.disk == 4 and second.use.disk_bytes == 3 * SIZE


def test_a_guess_that_has_arrived_is_no_read() -> None:
    scene = Scene(9)
    scene.begin()
    scene.lookup(0, [0, 1], ahead=[2, 3])
    for transfer in list(scene.disk.jobs):
        scene.disk.finish(transfer)
    waits = scene.disk.waits
    assert scene.lookup(1, [2, 3]) == [[2, 3]]
    assert scene.disk.waits == waits
    [use] = scene.store.tally()
    assert (use.host, use.disk) == (2, 2)
    assert scene.kept() == [0, 1, EXPERTS + 2, EXPERTS + 3], "and it stays, now that it is wanted"


def test_guesses_take_no_slot_that_is_kept() -> None:
    scene = Scene(4)
    scene.warm(0, 0, 1)
    scene.begin()
    scene.lookup(0, [0, 1], ahead=[2, 3, 4, 5])
    assert scene.disk.submitted == 4, "two guesses, for two slots"
    scene.store.tally()
    assert scene.kept() == [0, 1]


def test_what_is_expected_next_is_spared() -> None:
    scene = Scene(6)
    scene.warm(1, 0, 1)
    scene.warm(0, 0, 1)
    scene.begin()
    scene.lookup(0, [2, 3], ahead=[0, 1])
    assert scene.kept() == [2, 3, EXPERTS, EXPERTS + 1], "others than the least recently used went"
    scene.store.tally()
    assert [one.evicted for one in scene.store.figures()] == [2, 0]


def test_a_read_that_fails_ends_the_lookup_and_no_other() -> None:
    scene = Scene(9)
    scene.begin()
    scene.disk.broken = ["the disk is gone"]
    with pytest.raises(StorageError, match="the disk is gone"):
        scene.lookup(0, [0, 1])
    [use] = scene.store.tally()
    assert use.lookups == use.disk == 2
    scene.begin()
    assert scene.all(0, [0, 1]) == [0, 1]
    scene.store.tally()
    assert scene.kept() == [0, 1] and scene.quiet()


def test_a_ride_that_fails_is_computed_from_main_memory() -> None:
    scene = Scene(9, device=4, rates=FAST_BUS)
    scene.begin()
    scene.bus.broken = ["the bus is late"]
    assert scene.all(0, [0, 1]) == [0, 1]
    [use] = scene.store.tally()
    assert use.disk == 2 and use.bus_bytes == 2 * SIZE
    assert [one.on_device for one in scene.store.figures()] == [1, 0]


def test_rides_for_which_no_slot_comes_free_are_given_up() -> None:
    scene = Scene(16, device=3, rates=Rates(bus=1))
    scene.warm(1, 0, 1, 2, 3)
    scene.store.rates = FAST_BUS
    scene.begin()
    waves = scene.waves(0, [0, 1], ahead=[0, 1, 2, 3])
    first = next(waves).arena
    for transfer in list(scene.bus.jobs):  # guesses, in all slots until the next place is looked up
        scene.bus.finish(transfer)
    assert [first, *(wave.arena for wave in waves)] == [1, 1], "from main memory"
    [use] = scene.store.tally()
    assert (use.disk, use.bus, use.bus_bytes) == (2, 0, 3 * SIZE)


def test_the_second_time_it_is_in_fast_memory() -> None:
    scene = Scene(9, device=4, rates=FAST_BUS)
    scene.warm(0, 0, 1)
    submitted = scene.bus.submitted
    scene.begin()
    assert scene.lookup(0, [0, 1]) == [[0, 1]]
    assert scene.sources[0].places[[0, 1]].all()
    scene.sources[0].served(np.array([[0, 1]], np.int32))
    [use] = scene.store.tally()
    assert (use.device, use.lookups, scene.bus.submitted) == (4, 4, submitted)


@pytest.mark.parametrize(("policy", "after", "evicted"), [(Lru, [2, 3], 2), (Strict, [0, 1], 0)])
def test_what_the_policy_refuses_passes(policy: Any, after: list[int], evicted: int) -> None:
    scene = Scene(4, policy=policy)
    scene.warm(0, 0, 1)
    scene.begin()
    assert scene.all(0, [2, 3]) == [2, 3]
    scene.store.tally()
    assert scene.kept() == after and scene.quiet()
    assert scene.store.figures()[0].evicted == evicted


def test_a_lookup_given_up_holds_nothing() -> None:
    scene = Scene(6, policy=Strict)
    scene.warm(0, 0, 1, 2, 3)
    scene.begin(rows=2)
    waves = scene.waves(0, [0, 5], [0, 6])
    assert next(waves).experts.tolist() == [0]
    first, second = scene.store.tally()
    assert (first, second) == (ExpertUse(2, host=1, disk=1, disk_bytes=SIZE),) * 2
    for transfer in list(scene.disk.jobs):
        scene.disk.finish(transfer)
    scene.begin()
    assert scene.quiet() and scene.kept() == [0, 1, 2, 3]
    assert next(waves, None) is None


def test_a_lookup_ends_the_one_before() -> None:
    scene = Scene(9)
    scene.begin()
    before = scene.waves(0, [0, 1])
    next(before)
    assert scene.all(1, [2, 3]) == [2, 3]
    assert next(before, None) is None
    [use] = scene.store.tally()
    assert use.lookups == 4
    scene.disk.close()
    scene.begin()
    assert scene.quiet()


def test_rows_pay_for_what_they_wanted() -> None:
    scene = Scene(9)
    scene.warm(0, 0, 1)
    scene.begin(rows=2)
    scene.lookup(0, [0, 1], [0, 5])
    first, second = scene.store.tally()
    assert (first, second.host, second.disk) == (ExpertUse(2, host=2), 1, 1)
    assert second.disk_bytes == SIZE and second.disk_stall_s > 0


class Notes:
    """A Trace that breaks at the third note."""

    def __init__(self) -> None:
        self.noted: list[tuple[Any, ...]] = []

    def note(self, step: int, place: int, rows: int, experts: IntArray, counts: IntArray) -> None:
        if len(self.noted) == 2:
            raise StorageError("the disk is full")
        self.noted.append((step, place, rows, experts.tolist(), counts.tolist()))


def test_lookups_are_written_down_until_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    trace = Notes()
    scene = Scene(9, trace=trace)
    scene.begin(rows=2)
    scene.lookup(0, [5, 1], [1, 3])
    scene.store.tally()
    scene.begin()
    for _ in range(3):
        scene.lookup(1, [0, 7])
    assert trace.noted == [(1, 0, 2, [1, 3, 5], [2, 1, 1]), (2, 1, 1, [0, 7], [1, 1])]
    assert caplog.text.count("the disk is full; nothing more is recorded") == 1


@pytest.mark.parametrize(("host", "device"), [(1, 0), (9, 1)])
def test_too_few_slots_for_a_token(host: int, device: int) -> None:
    with pytest.raises(ConfigError, match=r"1 slots for experts of 4096 bytes are too few.* 2 at"):
        Scene(host, device)
