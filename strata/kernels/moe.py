"""Mixture of experts: weights and the plain torch specification.

Knows one layer's router and experts. They are all in memory, or come in waves from an
`ExpertSource`, which knows where each of them lies. The native implementation is cpu/moe.h.

Semantics: softmax over all experts, the `top_k` most likely ones, their probabilities divided
by their sum when `normalise`. A token's outputs are summed in descending order of probability,
the shared expert last: the same sum wherever an expert was computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import silu

from strata.kernels.quant import Format, QTensor, dequantise
from strata.kernels.residual import Residual
from strata.types import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Expert:
    """gate and up [ffn, hidden]; down [hidden, ffn]."""

    gate: QTensor
    up: QTensor
    down: QTensor

    def __post_init__(self) -> None:
        assert (self.gate.rows, self.gate.cols) == (self.up.rows, self.up.cols)
        assert (self.down.rows, self.down.cols) == (self.gate.cols, self.gate.rows)

    @property
    def matrices(self) -> tuple[QTensor, QTensor, QTensor]:
        """gate, up, down."""
        return self.gate, self.up, self.down


@dataclass(frozen=True, slots=True, eq=False)
class MoeWeights:
    """router [experts, hidden]. `shared` runs for every token, times sigmoid of `shared_gate`
    [1, hidden] where there is one. All routed experts have one shape and one format per matrix.
    """

    residual: Residual
    router: QTensor
    experts: Sequence[Expert]
    top_k: int
    normalise: bool
    shared: Expert | None = None
    shared_gate: QTensor | None = None

    def __post_init__(self) -> None:
        hidden = self.residual.hidden
        assert (self.router.rows, self.router.cols) == (len(self.experts), hidden)
        assert 0 < self.top_k <= len(self.experts)
        assert all(expert.gate.cols == hidden for expert in self.experts)


@dataclass(frozen=True, slots=True)
class ExpertForm:
    """How an implementation lays out one expert as a run of `nbytes` bytes: the formats (GGML
    numbers) of gate, up and down, and where in the run each begins.
    """

    formats: tuple[int, int, int]
    ffn: int
    hidden: int
    offsets: tuple[int, int, int]
    nbytes: int

    @classmethod
    def of(cls, expert: Expert, sizes: Sequence[int]) -> ExpertForm:
        """The form of an expert whose gate, up and down take `sizes` bytes, each from a multiple
        of 64 on.
        """
        ends = list(accumulate(-(-size // 64) * 64 for size in sizes))
        gate, up, down = (int(q.format) for q in expert.matrices)
        return cls(
            (gate, up, down), expert.gate.rows, expert.gate.cols, (0, ends[0], ends[1]), ends[2]
        )


@dataclass(frozen=True, slots=True, eq=False)
class ExpertWave:
    """Experts that can be computed now: their numbers and slots, int32 [n], in one arena."""

    arena: int
    experts: IntArray
    slots: IntArray


class ExpertSource(Protocol):
    """One layer's experts, wherever they lie. Used by the engine thread.

    `arenas` are uint8 [slots, bytes], an expert at the beginning of its slot; they do not move.
    `places` int64 [experts] holds the address of each expert that lies in an arena, else 0. An
    address stays good until the next call of any layer's source, except during a wave (below).
    `chosen` and `ahead` are the caller's memory, used again in the next step.
    """

    form: ExpertForm
    arenas: Sequence[Tensor]
    places: npt.NDArray[np.int64]

    def waves(self, chosen: IntArray, ahead: IntArray | None) -> Iterator[ExpertWave]:
        """Every expert in `chosen` [tokens, top_k] once. A wave's slots hold until the next wave
        is asked for. The first one may be empty: what needs no routed expert is computed then.
        `ahead` [tokens, k] is a guess of what the next layer will choose.
        Raises StrataError when an expert cannot be had.
        """

    def served(self, chosen: IntArray) -> None:
        """Notes that all of `chosen` were computed from `places`, without waves."""


@dataclass(frozen=True, slots=True, eq=False)
class NextMixture:
    """What a mixture knows of the one after it, to guess which experts that will choose: its
    router, given this layer's input, and where its experts lie.
    """

    router: QTensor
    source: ExpertSource


def route(h: Tensor, router: Tensor, top_k: int, normalise: bool) -> tuple[Tensor, Tensor]:
    """Experts int64 [n, top_k] of tokens h [n, hidden], most likely first, and their weights."""
    weights, chosen = (h @ router.T).softmax(-1).topk(top_k, dim=-1)
    return chosen, weights / weights.sum(-1, keepdim=True) if normalise else weights


def moe(h: Tensor, w: MoeWeights, router: Tensor) -> Tensor:
    """The layer's output for h [n, hidden]. Experts are dequantised as they are needed."""
    chosen, weights = route(h, router, w.top_k, w.normalise)
    parts = torch.empty(*chosen.shape, h.shape[1])
    for number in sorted(set(chosen.flatten().tolist())):
        token, place = torch.where(chosen == number)
        parts[token, place] = feed(h[token], w.experts[number])
    return combine(h, w, weights, parts)


def tiered_moe(
    h: Tensor, w: MoeWeights, router: Tensor, source: ExpertSource, ahead: Tensor | None
) -> Tensor:
    """The same with the experts that `source` brings. ahead: the next mixture's router."""
    chosen, weights = route(h, router, w.top_k, w.normalise)
    guess = None if ahead is None else route(h, ahead, w.top_k, False)[0].int().numpy()
    parts = torch.full((*chosen.shape, h.shape[1]), torch.nan)
    for wave in source.waves(chosen.int().numpy(), guess):
        for number, slot in zip(wave.experts.tolist(), wave.slots.tolist(), strict=True):
            token, place = torch.where(chosen == number)
            expert = unpacked(source.arenas[wave.arena][slot], source.form)
            parts[token, place] = feed(h[token], expert)
    return combine(h, w, weights, parts)


def combine(h: Tensor, w: MoeWeights, weights: Tensor, parts: Tensor) -> Tensor:
    """The layer's output, from `parts` [n, top_k, hidden], the chosen experts' outputs."""
    y = torch.zeros_like(h)
    for k in range(w.top_k):
        y += weights[:, k, None] * parts[:, k]
    if w.shared is not None:
        part = feed(h, w.shared)
        if w.shared_gate is not None:
            part = part * torch.sigmoid(h @ dequantise(w.shared_gate).T)
        y += part
    return y


def feed(h: Tensor, expert: Expert) -> Tensor:
    """One expert's output for h [n, hidden]."""
    gate, up, down = map(dequantise, expert.matrices)
    return (silu(h @ gate.T) * (h @ up.T)) @ down.T


def plain_form(expert: Expert) -> ExpertForm:
    """The form of an expert whose matrices lie as they are in the model's file."""
    return ExpertForm.of(expert, [q.nbytes for q in expert.matrices])


def unpacked(record: Tensor, form: ExpertForm) -> Expert:
    """The expert in a run of bytes of a `plain_form`; views of it."""
    shapes = ((form.ffn, form.hidden), (form.ffn, form.hidden), (form.hidden, form.ffn))
    matrices = []
    for number, (rows, cols), at in zip(form.formats, shapes, form.offsets, strict=True):
        kind = Format(number)
        nbytes = rows * (cols // kind.block) * kind.block_bytes
        matrices.append(QTensor(record[at : at + nbytes], kind, rows, cols))
    return Expert(*matrices)
