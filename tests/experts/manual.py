"""Transfers in the hands of a test, and records that tell whose they are.

Nothing moves by itself: a job runs when the test lets it, or when somebody waits. A transfer that
fails has moved nothing, so that its slot still has the bytes of what was there before.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Collection, Sequence

import numpy as np
import torch
from torch import Tensor

from strata.experts.layout import ExpertLayout, Place
from strata.experts.residency import Residency
from strata.kernels.moe import ExpertForm
from strata.memory.transfer import Transfer

FREE, COMING, PASSING, KEPT, FAILED = range(5)  # states of a slot, as Residency numbers them


def layout(sizes: Sequence[int], experts: int) -> ExpertLayout:
    """A place for each of `sizes`, the bytes of its records; every second layer is a mixture."""
    places, offset = [], 0
    for number, size in enumerate(sizes):
        form = ExpertForm((8, 8, 8), 4, 4, (0, 64, 128), size - 100)
        places.append(Place(2 * number, form, experts, size, offset))
        offset += size * experts
    return ExpertLayout(tuple(places))


def fill(key: int, into: Tensor) -> None:
    """The record of a key: its number, all over."""
    into.view(torch.int32).fill_(key + 1)


def key_at(address: int, nbytes: int) -> int:
    """Whose record lies there; -1 when it is none."""
    words = np.frombuffer((ctypes.c_int32 * (nbytes // 4)).from_address(address), np.int32)
    return int(words[0]) - 1 if (words == words[0]).all() else -1


def held(one: Residency) -> list[tuple[int, int]]:
    """(key, slot) of all that can be read."""
    slots = np.flatnonzero((one._state == KEPT) | (one._state == PASSING))
    return [(int(one._key_of[slot]), int(slot)) for slot in slots]


def verify(one: Residency) -> None:
    """Asserts that what a residency knows of its slots agrees."""
    state, holds = one._state, one._key_of >= 0
    assert sorted(one._free) == np.flatnonzero(state == FREE).tolist()
    assert sorted(one._coming) == np.flatnonzero(state == COMING).tolist()
    assert (holds == ((state != FREE) & (state != FAILED))).all()
    slots = np.flatnonzero(holds)
    assert (one.slot_of[one._key_of[slots]] == slots).all()
    assert np.count_nonzero(one.slot_of >= 0) == len(slots)
    assert (one._pins >= 0).all() and not one._pins[state == FREE].any()
    assert one._pins[(state == PASSING) | (state == FAILED)].all()
    assert (one._stays[state == KEPT]).all()
    assert not one._stays[(state != KEPT) & (state != COMING)].any()
    assert one.spare >= 0
    at = one._addresses[one._key_of[slots]]
    lies = one._begin + slots * one.arena.nbytes
    assert (at == np.where(state[slots] == KEPT, lies, 0)).all()


class ManualCopier:
    """A Copier. Whoever waits gets what `draw` picks: any transfers until one of his is settled;
    `failing` of them fail. Without `draw` his come first, in order, urgent ones before others.
    """

    def __init__(self, draw: random.Random | None = None, failing: float = 0.0) -> None:
        self.draw, self.failing = draw, failing
        self.jobs: dict[Transfer, Callable[[], None]] = {}
        self.urgent: list[Transfer] = []
        self.submitted = self.nbytes = self.waits = 0
        self.broken: list[str] = []  # errors for the next ones that are waited for

    def submit(self, job: Callable[[], None], nbytes: int, urgent: bool = True) -> Transfer:
        transfer = Transfer(nbytes)
        self.jobs[transfer] = job
        if urgent:
            self.urgent.append(transfer)
        self.submitted, self.nbytes = self.submitted + 1, self.nbytes + nbytes
        return transfer

    def hasten(self, transfer: Transfer) -> None:
        if transfer in self.jobs and transfer not in self.urgent:
            self.urgent.append(transfer)

    def wait(self, transfers: Collection[Transfer]) -> None:
        assert transfers, "it waits for nothing"
        self.waits += 1
        while not any(one.settled for one in transfers):
            assert self.jobs, "it waits for what nobody moves"
            if self.draw is not None:
                self.one()
                continue
            first = next(one for one in (*self.urgent, *self.jobs) if one in set(transfers))
            self.finish(first, self.broken.pop(0) if self.broken else None)

    def close(self) -> None:
        for transfer in list(self.jobs):
            self.finish(transfer, "closed")

    def finish(self, transfer: Transfer, error: str | None = None) -> None:
        """One transfer ends, well or not."""
        job = self.jobs.pop(transfer)
        if transfer in self.urgent:
            self.urgent.remove(transfer)
        if error is None:
            job()
        transfer.seconds = 1e-6 if self.draw is None else 10 ** self.draw.uniform(-7, -2)
        transfer.error, transfer.settled = error, True

    def one(self) -> None:
        """Any of them ends."""
        assert self.draw is not None
        fails = self.draw.random() < self.failing
        self.finish(self.draw.choice(list(self.jobs)), "as the test wants it" if fails else None)

    def some(self) -> None:
        """A few of them end."""
        while self.jobs and self.draw is not None and self.draw.random() < 0.4:
            self.one()
