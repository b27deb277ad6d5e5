"""Random mixtures of experts in any format, and one layer run alone.

A layer stands between an embedding that gives the residual stream itself, and a head that shows
the normed stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from gguf import GGMLQuantizationType
from torch import Tensor

from strata.kernels import Kernels, Op
from strata.kernels.head import HeadWeights
from strata.kernels.moe import Expert, MoeWeights
from strata.kernels.quant import Format, QTensor
from strata.kernels.residual import GatedStreams, PreNorm, Residual
from strata.synth import blocks
from strata.types import ForwardPlan


def matrix(kind: Format, rows: int, cols: int, rng: np.random.Generator) -> QTensor:
    """Random weights with a variance of 1 / cols."""
    spread = np.full(rows, cols**-0.5, np.float32)
    data = blocks.rows(GGMLQuantizationType(kind), cols, spread, 0.0, rng)
    return QTensor(torch.from_numpy(data.reshape(-1)), kind, rows, cols)


@dataclass(frozen=True)
class Mixture:
    experts: int = 8
    top_k: int = 2
    hidden: int = 64
    ffn: int = 64
    formats: tuple[Format, Format, Format] = (Format.F32,) * 3  # gate, up, down
    normalise: bool = True
    shared_ffn: int = 0
    gated: bool = False
    streams: int = 1  # residual streams
    seed: int = 0


@cache
def mixture(shape: Mixture) -> MoeWeights:
    """Random weights of a shape."""
    s, rng = shape, np.random.default_rng(shape.seed)

    def expert(ffn: int) -> Expert:
        gate, up, down = s.formats
        return Expert(
            matrix(gate, ffn, s.hidden, rng),
            matrix(up, ffn, s.hidden, rng),
            matrix(down, s.hidden, ffn, rng),
        )

    return MoeWeights(
        residual=residual(s, rng),
        router=matrix(Format.F32, s.experts, s.hidden, rng),
        experts=[expert(s.ffn) for _ in range(s.experts)],
        top_k=s.top_k,
        normalise=s.normalise,
        shared=expert(s.shared_ffn) if s.shared_ffn else None,
        shared_gate=matrix(Format.F32, 1, s.hidden, rng) if s.gated else None,
    )


def residual(shape: Mixture, rng: np.random.Generator, inject: bool = True) -> Residual:
    streams, width = shape.streams, shape.streams * shape.hidden
    norm = torch.from_numpy(rng.uniform(0.5, 1.5, width).astype(np.float32))
    if streams == 1:
        return PreNorm(norm, 1e-5)
    down, up = matrix(Format.F32, 12, width, rng), matrix(Format.F32, width, 12, rng)
    shares = matrix(Format.F32, streams, width, rng) if inject else None
    return GatedStreams(norm, 1e-5, streams, down, up, shares)


class Stack:
    """Ops on the streams that begin as `x` [n, hidden]."""

    def __init__(self, shape: Mixture, kernels: Kernels, x: Tensor, ops: Sequence[Op]) -> None:
        (n, hidden), streams = x.shape, shape.streams
        table = QTensor(x.contiguous().view(torch.uint8).reshape(-1), Format.F32, n, hidden)
        eye = torch.eye(hidden).view(torch.uint8).reshape(-1)
        last = residual(shape, np.random.default_rng(9), inject=False)
        head = HeadWeights(last, QTensor(eye, Format.F32, hidden, hidden))
        self._program = kernels.program([kernels.embed(table, streams), *ops, kernels.head(head)])

    def run(self, tokens: list[int]) -> Tensor:
        """The normed stream of these rows of x."""

        def ints(values: object) -> np.ndarray:
            return np.asarray(values, np.int32)

        n = len(tokens)
        plan = ForwardPlan(
            step=0, block=16, tokens=ints(tokens), positions=ints(range(n)),
            row_starts=ints([0, n]), page_table=ints([[-1]]), write_slots=ints([-1] * n),
            state_slots=ints([-1]), sample=ints(range(n)),
        )  # fmt: skip
        return self._program.run(plan).logits.clone()


class Layer(Stack):
    """A single mixture."""

    def __init__(self, shape: Mixture, kernels: Kernels, x: Tensor, **changes: object) -> None:
        super().__init__(shape, kernels, x, [kernels.moe(replace(mixture(shape), **changes))])
