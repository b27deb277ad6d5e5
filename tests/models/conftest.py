"""Running a model by hand: teacher-forced logits through pages in scrambled order.

Makes `families`, tiny checkpoints, importable from the tests beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from strata.files import open_model
from strata.kernels import choose
from strata.memory.arena import SlotArena
from strata.memory.layout import page_layout, state_layout
from strata.models import loader
from strata.types import Backend, Capture, ForwardPlan

sys.path.insert(0, str(Path(__file__).parent))

BLOCK = 16
STATES = 3  # of which number LIVE is the sequence's own
LIVE = 1


class Bench:
    """A model with memory of its own for one sequence of up to `length` tokens."""

    def __init__(
        self,
        path: Path,
        backend: str,
        length: int = 512,
        threads: int = 1,
        kv_dtype: str | None = None,
        rows: int | None = None,
    ) -> None:
        kernels = choose(Backend(backend), "cpu", threads)
        kernels.kv_dtype = kv_dtype or kernels.kv_dtype
        self.model = loader.load(open_model(path), kernels)
        if rows is not None:  # through caches of so many bytes, for steps of 50 tokens
            assert self.model.cache_rows(rows, 50)
        pages = -(-length // BLOCK)
        memory = self.model.memory(BLOCK)
        self.arena = SlotArena(pages + 3, page_layout(memory).nbytes)
        self.states = SlotArena(STATES, state_layout(memory).nbytes)
        self.model.bind(self.arena, self.states if self.states.nbytes else None, BLOCK)
        self.order = np.random.default_rng(0).permutation(pages + 3)[:pages].astype(np.int32)

    def step(
        self,
        tokens: Sequence[int],
        start: int,
        sample: Iterable[int],
        captures: tuple[Capture, ...] = (),
    ) -> Tensor:
        """Feed `tokens` at positions `start`...; logits of those numbered in `sample`."""
        positions = np.arange(start, start + len(tokens), dtype=np.int32)
        pages = self.order[: positions[-1] // BLOCK + 1]
        plan = ForwardPlan(
            step=0,
            block=BLOCK,
            tokens=np.asarray(tokens, dtype=np.int32),
            positions=positions,
            row_starts=np.asarray([0, len(tokens)], dtype=np.int32),
            page_table=pages[None, :].copy(),
            write_slots=(self.order[positions // BLOCK] * BLOCK + positions % BLOCK).astype(
                np.int32
            ),
            state_slots=np.asarray([LIVE if self.states.nbytes else -1], dtype=np.int32),
            sample=np.asarray(list(sample), dtype=np.int32),
            captures=captures,
        )
        result = self.model.forward(plan)
        assert set(result.captured) == set(captures)
        return result.logits.clone()

    def forget(self) -> None:
        """Begin anew: a state of zeros, and whatever an earlier sequence left in the pages."""
        self.arena.data.random_()  # must not matter
        self.arena.data.bitwise_and_(0x3F)  # (but never NaN, as no earlier sequence leaves any)
        self.states.data.random_()
        self.states.data.bitwise_and_(0x3F)
        self.states.data[LIVE].zero_()

    def logits(self, tokens: Sequence[int], chunk: int | None = None) -> Tensor:
        """Logits after every token, float32 [n, vocab], read in chunks."""
        self.forget()
        return self.read(tokens, 0, chunk)

    def read(self, tokens: Sequence[int], start: int, chunk: int | None = None) -> Tensor:
        """Logits after each of the tokens at `start`..., which continue what was read."""
        chunk = chunk or len(tokens)
        parts = []
        for first in range(0, len(tokens), chunk):
            part = tokens[first : first + chunk]
            parts.append(self.step(part, start + first, range(len(part))))
        return torch.cat(parts)

    def greedy(self, tokens: Sequence[int], count: int) -> tuple[list[int], list[float]]:
        """A greedy continuation, and for each of its tokens the lead over the second best."""
        self.states.data.zero_()
        out: list[int] = []
        leads: list[float] = []
        logits = self.step(tokens, 0, [len(tokens) - 1])
        for i in range(count):
            best = logits[0].topk(2)
            out.append(int(best.indices[0]))
            leads.append(float(best.values[0] - best.values[1]))
            logits = self.step([out[-1]], len(tokens) + i, [0])
        return out, leads


@pytest.fixture(scope="session")
def load() -> Callable[..., Bench]:
    """Bench(path, backend, length, threads, kv_dtype, rows)."""
    return Bench
