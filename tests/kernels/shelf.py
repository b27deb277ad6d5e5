"""An expert source for tests: experts that stay, and a passing slot for each of the others.

A passing slot is scribbled over as soon as the next wave is asked for, and an address beside its
place would be read as garbage: whoever computes from the wrong bytes gets a wrong result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
import torch

from strata.kernels import Kernels
from strata.kernels.moe import Expert, ExpertWave
from strata.types import IntArray

Split = Callable[[IntArray], Sequence[IntArray]]
RESIDENT, PASSING = 0, 1


def one_wave(experts: IntArray) -> Sequence[IntArray]:
    return [experts]


def singly(experts: IntArray) -> Sequence[IntArray]:
    return [experts[i : i + 1] for i in range(len(experts))]


def backwards(experts: IntArray) -> Sequence[IntArray]:
    return [experts[::-1][i : i + 2] for i in range(0, len(experts), 2)]


def empty_first(experts: IntArray) -> Sequence[IntArray]:
    return [experts[:0], experts]


def shuffled(experts: IntArray) -> Sequence[IntArray]:
    rng = np.random.default_rng(len(experts))
    cuts = np.sort(rng.integers(0, len(experts) + 1, 3))
    return np.split(rng.permutation(experts), cuts)


SPLITS = [one_wave, singly, backwards, empty_first, shuffled]


class Shelf:
    """`log` holds what was asked: ("waves" or "served", chosen, guess)."""

    def __init__(
        self,
        kernels: Kernels,
        experts: Sequence[Expert],
        split: Split = one_wave,
        resident: Collection[int] = (),
        name: str = "",
        log: list[tuple[str, IntArray, IntArray | None]] | None = None,
    ) -> None:
        self.form = kernels.expert_form(experts[0])
        self.split, self.name = split, name
        self.log = [] if log is None else log
        self.fail_at: int | None = None  # the wave that cannot be had
        stride, count = -(-self.form.nbytes // 4096) * 4096, len(experts)
        self._records = torch.zeros((count, stride), dtype=torch.uint8)
        for expert, record in zip(experts, self._records, strict=True):
            kernels.pack_expert(expert, record[: self.form.nbytes])
        order = np.random.default_rng(count).permutation(count)
        self._slot = np.argsort(order)
        self.arenas = [torch.full((count + 3, stride), 0xFF, dtype=torch.uint8) for _ in range(2)]
        self.places = np.zeros(count, np.int64)
        for expert in resident:
            self.settle(expert)

    def settle(self, expert: int) -> None:
        """From now on it lies in its place."""
        slot = int(self._slot[expert])
        self.arenas[RESIDENT][slot] = self._records[expert]
        self.places[expert] = self.arenas[RESIDENT][slot].data_ptr()

    def waves(self, chosen: IntArray, ahead: IntArray | None) -> Iterator[ExpertWave]:
        guess = None if ahead is None else ahead.copy()
        self.log.append((f"waves {self.name}".strip(), chosen.copy(), guess))
        for number, experts in enumerate(self.split(np.unique(chosen))):
            if number == self.fail_at:
                raise OSError("an expert cannot be had")
            here = self.places[experts] != 0
            if here.any() or not len(experts):
                mine = experts[here]
                yield ExpertWave(RESIDENT, mine, self._slot[mine].astype(np.int32))
            if not here.all():
                yield from self._pass(experts[~here])

    def _pass(self, experts: IntArray) -> Iterator[ExpertWave]:
        slots = np.random.default_rng(len(self.log)).permutation(len(self._records) + 3)
        slots = slots[: len(experts)].astype(np.int32)
        self.arenas[PASSING][slots] = self._records[experts]
        yield ExpertWave(PASSING, experts, slots)
        self.arenas[PASSING][slots] = 0xFF

    def served(self, chosen: IntArray) -> None:
        assert (self.places[chosen] != 0).all()
        self.log.append((f"served {self.name}".strip(), chosen.copy(), None))
