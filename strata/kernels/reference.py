"""The reference implementation: plain torch in float32, op by op.

It is the specification of every other implementation, and exact enough to compare
with other float32 code; it is not fast, and its bits may depend on the batch. Holds
dequantised weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from strata.kernels.attention import AttentionWeights, PagedStep, Projections, attention
from strata.kernels.head import HeadWeights, embed, head
from strata.kernels.mlp import MlpWeights, mlp
from strata.kernels.program import Op
from strata.kernels.quant import QTensor, dequantise
from strata.types import ForwardPlan


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceStep(PagedStep):
    """A ForwardPlan as int64 tensors."""

    tokens: Tensor  # [n]
    sample: Tensor  # [m]

    @classmethod
    def of(cls, plan: ForwardPlan) -> ReferenceStep:
        """Copies the plan's arrays."""
        return cls(
            block=plan.block,
            positions=torch.from_numpy(plan.positions).long(),
            write_slots=torch.from_numpy(plan.write_slots).long(),
            page_table=torch.from_numpy(plan.page_table).long(),
            row_starts=plan.row_starts.tolist(),
            tokens=torch.from_numpy(plan.tokens).long(),
            sample=torch.from_numpy(plan.sample).long(),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceOp:
    """`apply` takes the stream x and the step, and returns the stream after the op."""

    width: int
    apply: Callable[[Tensor, ReferenceStep], Tensor]


class ReferenceProgram:
    """Runs its ops one after the other."""

    def __init__(self, ops: Sequence[ReferenceOp]) -> None:
        self._ops = list(ops)

    @torch.inference_mode()
    def run(self, plan: ForwardPlan) -> Tensor:
        """One step: float32 logits [m, vocab]."""
        step = ReferenceStep.of(plan)
        x = torch.empty(0)
        for op in self._ops:
            x = op.apply(x, step)
        return x


class ReferenceKernels:
    """The table entry. `kv_dtype` float32, so that paging adds no rounding."""

    name = "reference"
    kv_dtype = "float32"

    def embed(self, table: QTensor) -> ReferenceOp:
        """Token embeddings."""
        return ReferenceOp(table.cols, lambda x, step: embed(step.tokens, table))

    def attention(self, weights: AttentionWeights, k: Tensor, v: Tensor, block: int) -> ReferenceOp:
        """Attention of one layer; k, v [pages, kv_heads, block, head_dim] of any float type."""
        assert k.shape[1:] == v.shape[1:] == (weights.kv_heads, block, weights.head_dim)
        matrices = Projections(
            dequantise(weights.q), dequantise(weights.k), dequantise(weights.v),
            dequantise(weights.o),
        )  # fmt: skip
        return ReferenceOp(
            weights.o.rows, lambda x, step: x + attention(x, weights, matrices, k, v, step)
        )

    def mlp(self, weights: MlpWeights) -> ReferenceOp:
        """The gated feed-forward of one layer."""
        gate, up, down = map(dequantise, (weights.gate, weights.up, weights.down))
        return ReferenceOp(weights.down.rows, lambda x, step: x + mlp(x, weights, gate, up, down))

    def head(self, weights: HeadWeights) -> ReferenceOp:
        """Logits of the sampled tokens."""
        weight = dequantise(weights.weight)
        return ReferenceOp(weight.shape[1], lambda x, step: head(x[step.sample], weights, weight))

    def program(self, ops: Sequence[Op]) -> ReferenceProgram:
        """A program of these ops."""
        own = [op for op in ops if isinstance(op, ReferenceOp)]
        assert len(own) == len(ops), "ops of another implementation"
        return ReferenceProgram(own)
