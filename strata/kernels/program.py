"""What every implementation of the kernels offers: ops, programs, and the table entry.

Knows shapes and meaning, not arithmetic. A step is: x = embed(tokens); each op of
each layer adds to x; logits = head(x[sample]). New kinds of layer add a builder
to `Kernels` and a file beside attention.py; nothing assumes which ops a program has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from strata.kernels.attention import AttentionWeights
from strata.kernels.head import HeadWeights
from strata.kernels.mlp import MlpWeights
from strata.kernels.quant import QTensor
from strata.types import ForwardPlan


class Op(Protocol):
    """One operation of a step, bound to its weights and to the memory it reads and writes."""

    @property
    def width(self) -> int:
        """Floats of a token in the residual stream."""


class Program(Protocol):
    """Ops that run one after the other as one step."""

    def run(self, plan: ForwardPlan) -> Tensor:
        """Run a step: float32 logits [m, vocab] of the plan's sampled tokens."""


class Kernels(Protocol):
    """One implementation. Ops of different implementations do not mix."""

    name: str
    kv_dtype: str  # of the page fields "k" and "v"

    def embed(self, table: QTensor) -> Op:
        """Token embeddings; begins a program."""

    def attention(self, weights: AttentionWeights, k: Tensor, v: Tensor, block: int) -> Op:
        """Attention of one layer over pages; k, v [pages, kv_heads, block, head_dim].

        What lies where inside a page's k or v is the implementation's own affair:
        others copy pages whole.
        """

    def mlp(self, weights: MlpWeights) -> Op:
        """The gated feed-forward of one layer."""

    def head(self, weights: HeadWeights) -> Op:
        """Logits of the sampled tokens; ends a program."""

    def program(self, ops: Sequence[Op]) -> Program:
        """A program of this implementation's ops, embed first, head last."""
