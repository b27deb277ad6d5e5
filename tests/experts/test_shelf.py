"""A shelf's choice of what stays, by hand."""

from __future__ import annotations

import numpy as np
from manual import ManualCopier, fill, verify

from strata.experts.policies.counting import Lru
from strata.experts.residency import Residency
from strata.experts.shelf import Shelf
from strata.memory.arena import SlotArena

KEYS, SIZE = 16, 4096


def shelf(slots: int, reserve: int) -> tuple[Shelf, Residency]:
    addresses = np.zeros(KEYS, np.int64)
    host = Residency(SlotArena(slots, SIZE), Lru(1, KEYS), addresses, reserve)
    copier = ManualCopier()
    return Shelf(SIZE, [host], fill, copier, copier), host


def keep(one: Shelf, host: Residency, keys: list[int]) -> None:
    """Brings keys in, the first of them used first."""
    for key in keys:
        host.policy.touch(np.array([key], np.int32), np.ones(1, np.int32))
        one.bring(host, key, stays=True)
    while host.transfers():
        one.disk.wait(host.transfers())
        host.land()
    verify(host)


def choose(
    one: Shelf, host: Residency, wanted: list[int], promised: int, ahead: list[int]
) -> tuple[list[int], list[int]]:
    keys, guess = np.array(wanted, np.int32), np.array(ahead, np.int32)
    host.policy.touch(keys, np.ones(len(keys), np.int32))
    return one.choose(host, keys, promised, guess)


def test_the_reserve_and_what_was_promised_are_not_given_away() -> None:
    one, host = shelf(5, reserve=1)
    stay, evicted = choose(one, host, [0, 1, 2], promised=3, ahead=[])
    assert len(stay) == 1 and not evicted


def test_one_goes_for_each_that_finds_no_room() -> None:
    one, host = shelf(5, reserve=1)
    keep(one, host, [7, 4, 5])
    stay, evicted = choose(one, host, [0, 1, 2], promised=0, ahead=[])
    assert (sorted(stay), evicted) == ([0, 1, 2], [7, 4])
    assert (host.slot_of[[7, 4]] == -1).all() and host.slot_of[5] >= 0


def test_what_is_expected_goes_only_when_nothing_else_can() -> None:
    one, host = shelf(4, reserve=1)
    keep(one, host, [7, 4, 5])
    assert choose(one, host, [0], promised=0, ahead=[7, 4])[1] == [5]
    one, host = shelf(4, reserve=1)
    keep(one, host, [7, 4, 5])
    assert choose(one, host, [0, 1], promised=0, ahead=[7, 4])[1] == [7, 4]


def test_what_is_pinned_does_not_go() -> None:
    one, host = shelf(4, reserve=1)
    keep(one, host, [7, 4, 5])
    host.pin([int(host.slot_of[7]), int(host.slot_of[5])])
    stay, evicted = choose(one, host, [0, 1], promised=0, ahead=[])
    assert evicted == [4] and len(stay) == 1
