"""The native block indexer: its weights packed, bound to its fields of the pages."""

from __future__ import annotations

import torch

import strata.kernels._cpu as _cpu
from strata.kernels.indexer import IndexerWeights
from strata.kernels.native_pack import Packer, address, vector
from strata.kernels.program import Fields


def indexer(
    pack: Packer, w: IndexerWeights | None, page: Fields, block: int
) -> tuple[_cpu.Indexer | None, tuple[object, ...]]:
    """The indexer of a layer that has one, and what must live as long."""
    if w is None:
        return None, ()
    raw, keys = page["index_raw"], page["index_keys"]
    assert block % w.ratio == 0
    assert raw.shape[1:] == (block, w.dim) and keys.shape[1:] == (block // w.ratio, w.dim)
    assert raw.dtype == torch.float16 and keys.dtype == torch.float32
    assert raw[0].is_contiguous() and keys[0].is_contiguous()
    linears = pack.linear(w.q), pack.linear(w.k)
    norms = vector(w.q_norm), vector(w.k_norm)
    built = _cpu.Indexer(
        *linears,
        address(norms[0]),
        address(norms[1]),
        w.eps,
        [w.heads, w.dim, w.budget, w.ratio],
        [raw.data_ptr(), keys.data_ptr()],
        [raw.stride(0), keys.stride(0)],
        block,
    )
    return built, (built, linears, norms, raw, keys)
