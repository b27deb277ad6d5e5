"""The native implementation: weights packed once, a step run by one call.

Builds ops and programs; what they are made of is in native_pack.py. Results do not depend on
how many tokens or rows share a step, nor on the number of threads.

The instruction set in use is process-wide; kernels set theirs before they pack, and a
program before it runs, so several may live side by side but not in two threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

import strata.kernels._cpu as _cpu  # after torch, whose OpenMP runtime it shares
from strata.kernels import kv, native_indexer, native_moe, native_states
from strata.kernels.attention import AttentionWeights
from strata.kernels.delta import DeltaWeights
from strata.kernels.head import HeadWeights
from strata.kernels.mlp import MlpWeights
from strata.kernels.moe import Expert, ExpertForm, ExpertSource, MoeWeights, NextMixture
from strata.kernels.native_moe import TieredOp
from strata.kernels.native_pack import NativeOp, Packer, address, check_heads, vector
from strata.kernels.ngram import NgramWeights
from strata.kernels.program import Fields, Op, StepResult
from strata.kernels.quant import QTensor
from strata.types import ConfigError, ForwardPlan

_NONE = np.empty((0, 3), dtype=np.int32)  # captures


class NativeProgram:
    """A step without the GIL: one native call, and more where a mixture needs experts."""

    def __init__(self, ops: Sequence[NativeOp], threads: int) -> None:
        assert len({op.width for op in ops}) == 1, "ops of different models"
        self._ops = list(ops)  # keeps what they hold alive
        self._vocab = ops[-1].vocab
        self._before = [op.before for op in ops if op.before is not None]
        # Kept, as fresh memory would cost the system a page fault for every 4 KiB of each step.
        self._all = self._logits = torch.empty((0, self._vocab), dtype=torch.float32)
        self._rows = 0
        parts = [part for op in ops for part in op.ops]
        self._program = _cpu.program(parts, threads)
        self._tiered = [(parts.index(op.ops[-1]), op) for op in ops if isinstance(op, TieredOp)]

    def run(self, plan: ForwardPlan) -> StepResult:
        """One step. Raises what an expert source raises; the next step is not affected."""
        for before in self._before:
            before(plan)
        captures = _NONE
        if plan.captures:
            captures = np.array([(c.row, c.offset, c.slot) for c in plan.captures], dtype=np.int32)
        tokens, logits = plan.tokens.shape[0], self._room(plan.sample.shape[0])
        for _, op in self._tiered:
            op.waves.reserve(tokens)
        at = self._program.run(
            plan.tokens,
            plan.positions,
            plan.row_starts,
            plan.page_table,
            plan.write_slots,
            plan.state_slots,
            captures,
            plan.sample,
            logits.data_ptr(),
        )
        for place, op in self._tiered:
            if place < at:  # it went on by itself
                op.waves.served(tokens)
            else:
                op.waves.feed(self._program, tokens)
                at = self._program.resume()
        if not plan.captures:
            return StepResult(logits, ())
        written = self._program.written()
        done = [capture for capture, whole in zip(plan.captures, written, strict=True) if whole]
        return StepResult(logits, tuple(done))

    def _room(self, rows: int) -> Tensor:
        """Where the logits of so many rows go: float32 [rows, vocabulary]."""
        if rows != self._rows:
            if rows > self._all.shape[0]:
                self._all = torch.empty((rows, self._vocab), dtype=torch.float32)
            self._logits, self._rows = self._all[:rows], rows
        return self._logits


class NativeKernels:
    """The table entry. A page's keys lie transposed (cpu/kv.h)."""

    def __init__(self, threads: int, isa: str | None = None, kv_dtype: str = "float16") -> None:
        """`isa`: avx512, avx2, neon or portable; the best one by default. Raises ConfigError."""
        available = _cpu.isas()
        chosen = isa or available[0]
        if chosen not in available:
            raise ConfigError(
                f"kernels for {chosen!r} cannot run here; available: {', '.join(available)}"
            )
        self.name = f"native {chosen}"
        self._isa = chosen
        self._threads = threads
        self.kv_dtype = kv_dtype
        self._pack = Packer(chosen, threads)
        self.packing = self._pack.layout

    def embed(self, table: QTensor, streams: int = 1) -> NativeOp:
        """Token embeddings, read from the file's own bytes."""
        data = table.data
        op = _cpu.embed(int(table.format), data.data_ptr(), table.rows, table.cols, streams)
        return NativeOp((op,), table.cols * streams, (data,))

    def attention(self, weights: AttentionWeights, page: Fields, block: int) -> NativeOp:
        """Attention of one layer; fields float16, bfloat16 or uint8 (kv.py), both alike.

        ModelError for a head_dim that is no multiple of 8 or above 256.
        """
        w, k, v = weights, page["k"], page["v"]
        check_heads("heads", w.head_dim)
        dtype = str(k.dtype).removeprefix("torch.")
        for field in (k, v):
            assert field.shape[1:] == (w.kv_heads, block, kv.width(dtype, w.head_dim))
            assert field.dtype == k.dtype and field[0].is_contiguous()
        biases = (w.q_bias, w.k_bias, w.v_bias, None)
        linears = [
            self._pack.linear(q, bias) for q, bias in zip((w.q, w.k, w.v, w.o), biases, strict=True)
        ]
        norms = [vector(norm) for norm in (w.q_norm, w.k_norm)]
        whole = any(norm is not None and norm.numel() != w.head_dim for norm in norms)
        assert not (whole and w.gated)
        port = self._pack.port(w.residual)
        index, owned = native_indexer.indexer(self._pack, w.indexer, page, block)
        op = _cpu.attention(
            port.port,
            w.eps,
            linears,
            address(norms[0]),
            address(norms[1]),
            whole,
            w.gated,
            [w.heads, w.kv_heads, w.head_dim],
            w.scale,
            self._pack.rope(w.rope),
            [k.data_ptr(), v.data_ptr()],
            [k.stride(0) * k.itemsize, v.stride(0) * v.itemsize],
            block,
            list(kv.TYPES.values()).index(dtype),
            index,
        )
        return port.op(op, linears, norms, k, v, owned)

    def delta(self, weights: DeltaWeights, state: Fields) -> NativeOp:
        """Gated DeltaNet of one layer.

        ModelError for a dim that is no multiple of 8 or above 256.
        """
        return native_states.delta(self._pack, weights, state)

    def ngram(self, weights: NgramWeights, state: Fields) -> NativeOp:
        """Hashed n-gram embeddings; the table is read where it lies."""
        return native_states.ngram(self._pack, weights, state)

    def mlp(self, weights: MlpWeights) -> NativeOp:
        """The gated feed-forward of one layer."""
        linears = [self._pack.linear(q) for q in (weights.gate, weights.up, weights.down)]
        port = self._pack.port(weights.residual)
        return port.op(_cpu.mlp(port.port, *linears), linears)

    def moe(self, weights: MoeWeights) -> NativeOp:
        """The mixture of experts of one layer."""
        return native_moe.moe(self._pack, weights)

    def expert_form(self, expert: Expert) -> ExpertForm:
        """The packed matrices one after the other."""
        return native_moe.expert_form(self._pack, expert)

    def pack_expert(self, expert: Expert, record: Tensor) -> None:
        """Packs an expert into `record`, uint8 [form.nbytes], aligned to 64 bytes."""
        native_moe.pack_expert(self._pack, expert, record)

    def tiered_moe(
        self, weights: MoeWeights, source: ExpertSource, ahead: NextMixture | None = None
    ) -> TieredOp:
        """The mixture of one layer, its experts where they lie or in waves. For one program."""
        return native_moe.tiered_moe(self._pack, weights, source, ahead)

    def head(self, weights: HeadWeights) -> NativeOp:
        """Logits of the sampled tokens."""
        linear, port = (
            self._pack.linear(weights.weight),
            self._pack.port(weights.residual, head=True),
        )
        return replace(port.op(_cpu.head(port.port, linear), linear), vocab=weights.weight.rows)

    def program(self, ops: Sequence[Op]) -> NativeProgram:
        """A program of these ops."""
        own = [op for op in ops if isinstance(op, NativeOp)]
        assert len(own) == len(ops), "ops of another implementation"
        _cpu.use_isa(self._isa)
        return NativeProgram(own, self._threads)
