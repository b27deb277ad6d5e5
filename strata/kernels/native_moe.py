"""The native mixture of experts: a layer's experts packed into one slab per matrix.

Knows where an expert's tiles lie, which is all that the native op asks: the address of the
first expert's and the distance to the next. Not what else the kernels pack.
"""

from __future__ import annotations

from collections.abc import Sequence

import strata.kernels._cpu as _cpu
from strata.kernels.moe import Expert, MoeWeights
from strata.kernels.native_pack import NativeOp, Packer
from strata.kernels.quant import QTensor


def moe(pack: Packer, w: MoeWeights) -> NativeOp:
    """The op of one layer."""
    port, router = pack.port(w.residual), pack.linear(w.router)
    gate = None if w.shared_gate is None else pack.linear(w.shared_gate)
    routed = experts(pack, w.experts)
    shared = [] if w.shared is None else experts(pack, [w.shared])
    op = _cpu.moe(port.port, router, w.top_k, w.normalise, routed, shared, gate)
    return port.op(op, router, gate, routed, shared)


def experts(pack: Packer, sources: Sequence[Expert]) -> list[_cpu.ExpertMatrix]:
    """gate, up and down of all experts; the result keeps their bytes alive."""
    return [
        _slab(pack, [expert.gate for expert in sources]),
        _slab(pack, [expert.up for expert in sources]),
        _slab(pack, [expert.down for expert in sources]),
    ]


def _slab(pack: Packer, matrices: Sequence[QTensor]) -> _cpu.ExpertMatrix:
    first = matrices[0]
    kind, rows, cols = int(first.format), first.rows, first.cols
    assert all((int(q.format), q.rows, q.cols) == (kind, rows, cols) for q in matrices)
    stride = _cpu.packed_bytes(kind, rows, cols)
    slab = pack.take(stride * len(matrices))
    for i, q in enumerate(matrices):
        data = q.data.contiguous()
        _cpu.pack(kind, data.data_ptr(), rows, cols, slab.data_ptr() + stride * i)
    return _cpu.ExpertMatrix(_cpu.Linear(kind, rows, cols, slab.data_ptr(), 0, slab), stride)
