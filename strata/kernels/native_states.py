"""Builders of the native ops that keep a state per sequence.

Know the layouts that cpu/delta.h and cpu/ngram.h expect of weights and states.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

import strata.kernels._cpu as _cpu
from strata.kernels.delta import DeltaWeights
from strata.kernels.native_pack import NativeOp, Packer, address, check_heads, vector
from strata.kernels.ngram import NgramWeights, RowSource
from strata.kernels.program import Fields
from strata.types import ForwardPlan, IntArray


def delta(pack: Packer, w: DeltaWeights, state: Fields) -> NativeOp:
    """Gated DeltaNet. ModelError for heads of an unsupported size."""
    check_heads("recurrent heads", w.dim)
    conv = _field(state, "conv", (w.window, w.channels), torch.float32)
    matrix = _field(state, "state", (w.v_heads, w.dim, w.dim), torch.float32)
    linears = [pack.linear(q) for q in (w.qkv, w.z, w.beta, w.alpha, w.out)]
    vectors = [vector(x) for x in (w.conv.t(), w.decay, w.dt_bias, w.norm)]
    port = pack.port(w.residual)
    op = _cpu.delta(
        port.port,
        linears,
        [address(x) for x in vectors],
        w.eps,
        [w.k_heads, w.v_heads, w.dim, w.window + 1],
        w.tiled,
        w.sigmoid_gate,
        [conv.data_ptr(), matrix.data_ptr()],
        [conv.stride(0), matrix.stride(0)],
    )
    return port.op(op, linears, vectors, conv, matrix)


def ngram(pack: Packer, w: NgramWeights, state: Fields) -> NativeOp:
    """Hashed n-gram embeddings."""
    history = _field(state, "history", (w.history,), torch.int32)
    conv = _field(state, "conv", (w.window, w.width), torch.float32)
    assert all(part.data.is_contiguous() for part in w.table)  # read where it lies
    firsts = list(accumulate((part.rows for part in w.table), initial=0))
    assert all(o + n <= firsts[-1] for o, n in zip(w.offsets, w.sizes, strict=True))
    key, value = pack.linear(w.key), pack.linear(w.value)
    vectors = [vector(x) for x in (w.norm_key, w.norm_query, w.norm_conv, w.conv.t())]
    op = _cpu.ngram(
        [int(part.format) for part in w.table],
        [part.data.data_ptr() for part in w.table],
        firsts[:-1],
        address(w.source.table if w.source else None),
        w.table[0].cols,
        w.multipliers,
        w.sizes,
        w.offsets,
        w.eos,
        w.streams,
        key,
        value,
        [address(x) for x in vectors],
        w.eps,
        w.conv.shape[1],
        w.dilation,
        [history.data_ptr(), conv.data_ptr()],
        [history.stride(0), conv.stride(0)],
    )
    op.set_scale(w.scale)
    owned = (w.table, w.source, key, value, vectors, history, conv)
    before = None if w.source is None else _Fetch(op, w.source, len(w.sizes))
    return NativeOp((op,), w.width, owned, before=before)


class _Fetch:
    """Fetches a step's rows: they depend on tokens and histories alone, known before it begins."""

    def __init__(self, op: _cpu.Ngram, source: RowSource, heads: int) -> None:
        self._op, self._source, self._heads = op, source, heads
        self._slots: IntArray | None = None  # which live as long as the step

    def __call__(self, plan: ForwardPlan) -> None:
        rows = np.empty(len(plan.tokens) * self._heads, dtype=np.int64)
        self._op.rows(plan.tokens, plan.row_starts, plan.state_slots, rows.ctypes.data)
        self._slots = self._source.fetch(rows)
        self._op.set_slots(self._slots.ctypes.data)


def _field(state: Fields, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A field [slots, *shape] that native code may address."""
    field = state[name]
    assert field.shape[1:] == shape and field.dtype == dtype
    assert field[0].is_contiguous()
    return field
