"""The native implementation: weights packed once, a step run by one call.

Owns the packed copies of the weights, in huge pages; ops hold raw addresses of these
and of the pages, which must not move. Results do not depend on how many tokens or
rows share a step, nor on the number of threads.

The instruction set in use is process-wide; kernels set theirs before they pack, and a
program before it runs, so several may live side by side but not in two threads.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import strata.kernels._cpu as _cpu  # after torch, whose OpenMP runtime it shares
from strata.kernels import native_moe
from strata.kernels.attention import AttentionWeights
from strata.kernels.head import HeadWeights
from strata.kernels.mlp import MlpWeights
from strata.kernels.moe import MoeWeights
from strata.kernels.program import Fields, Op, StepResult
from strata.kernels.quant import QTensor
from strata.kernels.residual import PreNorm, Residual
from strata.kernels.rope import RopeSpec
from strata.types import ConfigError, ForwardPlan, ModelError

_HUGE = 2 << 20
_CHUNK = 32 << 20
MAX_HEAD_DIM = 256


class PackedMemory:
    """Hands out 64-byte aligned pieces of huge-page memory that are never returned."""

    def __init__(self) -> None:
        self._chunk = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def take(self, nbytes: int) -> Tensor:
        """uint8 [nbytes]; keeps its chunk alive."""
        nbytes = -(-nbytes // 64) * 64
        if self._used + nbytes > self._chunk.numel():
            self._chunk, self._used = _mapped(max(nbytes, _CHUNK)), 0
        piece = self._chunk[self._used : self._used + nbytes]
        self._used += nbytes
        return piece


def _mapped(nbytes: int) -> Tensor:
    area = mmap.mmap(-1, nbytes + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages: slower, nothing else
            area.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(area, dtype=torch.uint8)
    start = -whole.data_ptr() % _HUGE
    return whole[start : start + nbytes]


@dataclass(frozen=True, slots=True, eq=False)
class NativeOp:
    """A native op and the tensors whose addresses it holds."""

    op: _cpu.Op
    width: int
    owned: tuple[object, ...]
    vocab: int = 0  # of a head


class NativeProgram:
    """One native call per step, without the GIL."""

    def __init__(self, ops: Sequence[NativeOp], threads: int) -> None:
        assert len({op.width for op in ops}) == 1, "ops of different models"
        self._ops = list(ops)  # keeps what they hold alive
        self._vocab = ops[-1].vocab
        self._program = _cpu.program([op.op for op in ops], threads)

    def run(self, plan: ForwardPlan) -> StepResult:
        """One step."""
        captures = np.array(
            [(c.row, c.offset, c.slot) for c in plan.captures], dtype=np.int32
        ).reshape(-1, 3)
        logits = torch.empty((plan.sample.shape[0], self._vocab), dtype=torch.float32)
        written = self._program.run(
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
        done = [capture for capture, whole in zip(plan.captures, written, strict=True) if whole]
        return StepResult(logits, tuple(done))


class NativeKernels:
    """The table entry. Pages hold float16; a page's keys lie transposed (cpu/rows.h)."""

    kv_dtype = "float16"

    def __init__(self, threads: int, isa: str | None = None) -> None:
        """`isa`: avx512, avx2 or portable; the best one by default. Raises ConfigError."""
        available = _cpu.isas()
        chosen = isa or available[0]
        if chosen not in available:
            raise ConfigError(
                f"kernels for {chosen!r} cannot run here; available: {', '.join(available)}"
            )
        self.name = f"native {chosen}"
        self._isa = chosen
        self._threads = threads
        self._memory = PackedMemory()
        self._ropes: dict[tuple[bytes, float], _cpu.Rope] = {}

    def embed(self, table: QTensor, streams: int = 1) -> NativeOp:
        """Token embeddings, read from the file's own bytes."""
        op = _cpu.embed(int(table.format), table.data.data_ptr(), table.rows, table.cols)
        return NativeOp(op, table.cols, (table.data,))

    def attention(self, weights: AttentionWeights, page: Fields, block: int) -> NativeOp:
        """Attention of one layer; fields float16.

        ModelError for a head_dim that is no multiple of 8 or above 256.
        """
        w, k, v = weights, page["k"], page["v"]
        if w.head_dim % 8 or not 0 < w.head_dim <= MAX_HEAD_DIM:
            raise ModelError(
                f"heads of {w.head_dim} dimensions are not supported by the native kernels "
                f"(a multiple of 8 up to {MAX_HEAD_DIM}); use the reference kernels"
            )
        for field in (k, v):
            assert field.shape[1:] == (w.kv_heads, block, w.head_dim)
            assert field.dtype == torch.float16 and field[0].is_contiguous()
        biases = (w.q_bias, w.k_bias, w.v_bias, None)
        linears = [
            self._linear(q, bias) for q, bias in zip((w.q, w.k, w.v, w.o), biases, strict=True)
        ]
        norms = [_vector(norm) for norm in (_pre_norm(w.residual), w.q_norm, w.k_norm)]
        op = _cpu.attention(
            _address(norms[0]),
            w.eps,
            linears,
            _address(norms[1]),
            _address(norms[2]),
            [w.heads, w.kv_heads, w.head_dim],
            w.scale,
            self._rope(w.rope),
            [k.data_ptr(), v.data_ptr()],
            [k.stride(0), v.stride(0)],
            block,
        )
        return NativeOp(op, w.o.rows, (linears, norms, k, v))

    def mlp(self, weights: MlpWeights) -> NativeOp:
        """The gated feed-forward of one layer."""
        linears = [self._linear(q) for q in (weights.gate, weights.up, weights.down)]
        norm = _vector(_pre_norm(weights.residual))
        op = _cpu.mlp(_address(norm), weights.residual.eps, *linears)
        return NativeOp(op, weights.down.rows, (linears, norm))

    def moe(self, weights: MoeWeights) -> NativeOp:
        """The mixture of experts of one layer."""
        w, norm = weights, _vector(_pre_norm(weights.residual))
        gate = None if w.shared_gate is None else self._linear(w.shared_gate)
        router = self._linear(w.router)
        op, owned = native_moe.op(w, _address(norm), router, gate, self._memory.take)
        return NativeOp(op, w.router.cols, (norm, owned))

    def head(self, weights: HeadWeights) -> NativeOp:
        """Logits of the sampled tokens."""
        linear, norm = self._linear(weights.weight), _vector(_pre_norm(weights.residual))
        op = _cpu.head(_address(norm), weights.residual.eps, linear)
        return NativeOp(op, weights.weight.cols, (linear, norm), vocab=weights.weight.rows)

    def program(self, ops: Sequence[Op]) -> NativeProgram:
        """A program of these ops."""
        own = [op for op in ops if isinstance(op, NativeOp)]
        assert len(own) == len(ops), "ops of another implementation"
        _cpu.use_isa(self._isa)
        return NativeProgram(own, self._threads)

    def _linear(self, q: QTensor, bias: Tensor | None = None) -> _cpu.Linear:
        """Packs a matrix; the result keeps its bytes alive."""
        _cpu.use_isa(self._isa)
        tiles = self._memory.take(_cpu.packed_bytes(int(q.format), q.rows, q.cols))
        data = q.data.contiguous()
        _cpu.pack(int(q.format), data.data_ptr(), q.rows, q.cols, tiles.data_ptr())
        vector = _vector(bias)
        return _cpu.Linear(
            int(q.format), q.rows, q.cols, tiles.data_ptr(), _address(vector), (tiles, vector)
        )

    def _rope(self, spec: RopeSpec) -> _cpu.Rope:
        key = (spec.frequencies.numpy().tobytes(), spec.magnitude)
        if key not in self._ropes:
            self._ropes[key] = _cpu.Rope(spec.frequencies.tolist(), spec.magnitude)
        return self._ropes[key]


def _pre_norm(residual: Residual) -> Tensor:
    assert isinstance(residual, PreNorm)
    return residual.norm


def _vector(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.to(torch.float32).contiguous()


def _address(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()
