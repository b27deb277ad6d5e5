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

from strata.kernels import kv
from strata.kernels.attention import AttentionWeights, PagedStep, Projections, attention
from strata.kernels.delta import DeltaMatrices, DeltaWeights, delta
from strata.kernels.head import HeadWeights, embed, head
from strata.kernels.mlp import MlpWeights, mlp
from strata.kernels.moe import (
    Expert,
    ExpertForm,
    ExpertSource,
    MoeWeights,
    NextMixture,
    moe,
    plain_form,
    tiered_moe,
)
from strata.kernels.ngram import NgramWeights, ngram
from strata.kernels.program import Fields, Op, StepResult
from strata.kernels.quant import QTensor, dequantise
from strata.kernels.residual import Residual, entering
from strata.kernels.state import StateStep
from strata.types import ForwardPlan


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceStep(PagedStep):
    """A ForwardPlan as int64 tensors."""

    tokens: Tensor  # [n]
    sample: Tensor  # [m]
    state: StateStep

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
            state=StateStep(plan.row_starts.tolist(), plan.state_slots.tolist(), plan.captures),
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
    def run(self, plan: ForwardPlan) -> StepResult:
        """One step."""
        step = ReferenceStep.of(plan)
        x = torch.empty(0)
        for op in self._ops:
            x = op.apply(x, step)
        return StepResult(x, plan.captures)


class ReferenceKernels:
    """The table entry. Unless told otherwise pages hold float32, so that they add no rounding."""

    name = "reference"
    packing = "plain"

    def __init__(self, kv_dtype: str = "float32") -> None:
        """`kv_dtype`: as kv.py names it."""
        self.kv_dtype = kv_dtype

    def embed(self, table: QTensor, streams: int = 1) -> ReferenceOp:
        """Token embeddings."""
        return ReferenceOp(table.cols * streams, lambda x, step: embed(step.tokens, table, streams))

    def attention(self, weights: AttentionWeights, page: Fields, block: int) -> ReferenceOp:
        """Attention of one layer; the fields may be of any type."""
        w, index = weights, weights.indexer
        width = kv.width(str(page["k"].dtype).removeprefix("torch."), w.head_dim)
        assert page["k"].shape[1:] == page["v"].shape[1:] == (w.kv_heads, block, width)
        assert index is None or block % index.ratio == 0
        own = [index.q, index.k] if index is not None else []
        matrices = Projections(*map(dequantise, (w.q, w.k, w.v, w.o, *own)))
        return _sublayer(w.residual, lambda h, step: attention(h, weights, matrices, page, step))

    def delta(self, weights: DeltaWeights, state: Fields) -> ReferenceOp:
        """Gated DeltaNet of one layer."""
        w, conv, s = weights, state["conv"], state["state"]
        matrices = DeltaMatrices(*map(dequantise, (w.qkv, w.z, w.beta, w.alpha, w.out)))
        return _sublayer(
            w.residual, lambda h, step: delta(h, weights, matrices, conv, s, step.state)
        )

    def mlp(self, weights: MlpWeights) -> ReferenceOp:
        """The gated feed-forward of one layer."""
        gate, up, down = map(dequantise, (weights.gate, weights.up, weights.down))
        return _sublayer(weights.residual, lambda h, step: mlp(h, gate, up, down))

    def moe(self, weights: MoeWeights) -> ReferenceOp:
        """The mixture of experts of one layer; experts stay quantised until they are needed."""
        router = dequantise(weights.router)
        return _sublayer(weights.residual, lambda h, step: moe(h, weights, router))

    def expert_form(self, expert: Expert) -> ExpertForm:
        """The matrices one after the other, as they are in the file."""
        return plain_form(expert)

    def pack_expert(self, expert: Expert, record: Tensor) -> None:
        """Copies the matrices into `record`, uint8 [form.nbytes]."""
        record.zero_()
        for q, at in zip(expert.matrices, plain_form(expert).offsets, strict=True):
            record[at : at + q.nbytes] = q.data

    def tiered_moe(
        self, weights: MoeWeights, source: ExpertSource, ahead: NextMixture | None = None
    ) -> ReferenceOp:
        """The mixture of one layer, its experts in waves."""
        router = dequantise(weights.router)
        guess = None if ahead is None else dequantise(ahead.router)
        return _sublayer(
            weights.residual, lambda h, step: tiered_moe(h, weights, router, source, guess)
        )

    def ngram(self, weights: NgramWeights, state: Fields) -> ReferenceOp:
        """Hashed n-gram embeddings."""
        matrices = (dequantise(weights.key), dequantise(weights.value))
        history, conv = state["history"], state["conv"]

        def apply(x: Tensor, step: ReferenceStep) -> Tensor:
            return x + ngram(x, step.tokens, weights, matrices, history, conv, step.state)

        return ReferenceOp(weights.width, apply)

    def head(self, weights: HeadWeights) -> ReferenceOp:
        """Logits of the sampled tokens."""
        weight, enter = dequantise(weights.weight), entering(weights.residual)
        return ReferenceOp(
            weights.residual.width, lambda x, step: head(enter(x[step.sample])[0], weight)
        )

    def program(self, ops: Sequence[Op]) -> ReferenceProgram:
        """A program of these ops."""
        own = [op for op in ops if isinstance(op, ReferenceOp)]
        assert len(own) == len(ops), "ops of another implementation"
        return ReferenceProgram(own)


def _sublayer(
    residual: Residual, compute: Callable[[Tensor, ReferenceStep], Tensor]
) -> ReferenceOp:
    """The op that enters the stream, computes, and leaves."""
    enter = entering(residual)

    def apply(x: Tensor, step: ReferenceStep) -> Tensor:
        h, leave = enter(x)
        return leave(compute(h, step))

    return ReferenceOp(residual.width, apply)
