"""The native mixture of experts: a layer's experts packed into one slab per matrix.

Knows where an expert's tiles lie, which is all that the native op asks: the address of the
first expert's and the distance to the next. Not what else the kernels pack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

import strata.kernels._cpu as _cpu
from strata.kernels.moe import Expert, MoeWeights
from strata.kernels.quant import QTensor

Take = Callable[[int], Tensor]  # bytes -> uint8, 64-byte aligned, on huge pages where possible


def experts(sources: Sequence[Expert], take: Take) -> list[_cpu.ExpertMatrix]:
    """gate, up and down of all experts; the result keeps their bytes alive."""
    return [
        _slab([expert.gate for expert in sources], take),
        _slab([expert.up for expert in sources], take),
        _slab([expert.down for expert in sources], take),
    ]


def op(
    w: MoeWeights,
    norm: int,
    router: _cpu.Linear,
    shared_gate: _cpu.Linear | None,
    take: Take,
) -> tuple[_cpu.Op, tuple[object, ...]]:
    """The op, and what must live as long. norm: the address of the vector."""
    routed = experts(w.experts, take)
    shared = [] if w.shared is None else experts([w.shared], take)
    built = _cpu.moe(
        norm, w.residual.eps, router, w.top_k, w.normalise, routed, shared, shared_gate
    )
    return built, (routed, shared, router, shared_gate)


def _slab(matrices: Sequence[QTensor], take: Take) -> _cpu.ExpertMatrix:
    first = matrices[0]
    kind, rows, cols = int(first.format), first.rows, first.cols
    assert all((int(q.format), q.rows, q.cols) == (kind, rows, cols) for q in matrices)
    stride = _cpu.packed_bytes(kind, rows, cols)
    slab = take(stride * len(matrices))
    for i, q in enumerate(matrices):
        data = q.data.contiguous()
        _cpu.pack(kind, data.data_ptr(), rows, cols, slab.data_ptr() + stride * i)
    return _cpu.ExpertMatrix(_cpu.Linear(kind, rows, cols, slab.data_ptr(), 0, slab), stride)
