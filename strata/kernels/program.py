"""What every implementation of the kernels offers: ops, programs, and the table entry.

Knows shapes and meaning, not arithmetic. A step is: x = embed(tokens); each op of
each layer adds to x; logits = head(x[sample]). New kinds of layer add a builder
to `Kernels` and a file beside attention.py; nothing assumes which ops a program has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from strata.kernels.attention import AttentionWeights
from strata.kernels.delta import DeltaWeights
from strata.kernels.head import HeadWeights
from strata.kernels.mlp import MlpWeights
from strata.kernels.moe import Expert, ExpertForm, ExpertSource, MoeWeights, NextMixture
from strata.kernels.ngram import NgramWeights
from strata.kernels.quant import QTensor
from strata.types import Capture, ForwardPlan

Fields = Mapping[str, Tensor]  # name -> [slots, *shape]: views of the arenas of pages or states


class Op(Protocol):
    """One operation of a step, bound to its weights and to the memory it reads and writes."""

    @property
    def width(self) -> int:
        """Floats of a token in the residual stream."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """logits float32 [m, vocab] of the plan's sampled tokens, valid until the next step;
    `captured` are the captures that every op with a state has written.
    """

    logits: Tensor
    captured: tuple[Capture, ...]


class Program(Protocol):
    """Ops that run one after the other as one step."""

    def run(self, plan: ForwardPlan) -> StepResult:
        """Run a step."""


class Kernels(Protocol):
    """One implementation. Ops of different implementations do not mix."""

    name: str
    kv_dtype: str  # of the page fields "k" and "v"; see kv.py
    packing: str  # names the layout of packed experts: files packed under another name do not fit

    def embed(self, table: QTensor, streams: int = 1) -> Op:
        """Token embeddings, once for each residual stream; begins a program."""

    def attention(self, weights: AttentionWeights, page: Fields, block: int) -> Op:
        """Attention of one layer over pages: fields k, v [kv_heads, block, width] (kv.py) and,
        with an indexer, index_raw [block, dim], index_keys float32 [block / ratio, dim].

        What lies where inside a field of a page is the implementation's own affair:
        others copy pages whole.
        """

    def delta(self, weights: DeltaWeights, state: Fields) -> Op:
        """Gated DeltaNet of one layer over states: fields conv float32 [window, channels] and
        state float32 [v_heads, dim, dim]. All zeros is the state before the first token.
        """

    def mlp(self, weights: MlpWeights) -> Op:
        """The gated feed-forward of one layer."""

    def moe(self, weights: MoeWeights) -> Op:
        """The mixture of experts of one layer."""

    def expert_form(self, expert: Expert) -> ExpertForm:
        """How `pack_expert` lays out experts like this one."""

    def pack_expert(self, expert: Expert, record: Tensor) -> None:
        """Writes an expert into `record`, uint8 [form.nbytes]."""

    def tiered_moe(
        self, weights: MoeWeights, source: ExpertSource, ahead: NextMixture | None = None
    ) -> Op:
        """The mixture of one layer, its routed experts from `source`, those of `weights` never
        read. `ahead`: from what the source gets its guess; None for no guess.
        """

    def ngram(self, weights: NgramWeights, state: Fields) -> Op:
        """Hashed n-gram embeddings over states: fields history int32 [history] and
        conv float32 [window, width].
        """

    def head(self, weights: HeadWeights) -> Op:
        """Logits of the sampled tokens; ends a program."""

    def program(self, ops: Sequence[Op]) -> Program:
        """A program of this implementation's ops, embed first, head last."""
