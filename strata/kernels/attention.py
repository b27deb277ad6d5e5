"""Attention over paged keys and values: weights and the plain torch specification.

Knows one layer's weights, its pages and a step's flat arrays; nothing of sequences
beyond a row's page table. The native implementation is cpu/attention.h.

Semantics: every token of the step writes its key and value at its write slot (page *
block + offset) unless that is -1, then attends to positions 0..own of its row, which
is what the row's pages hold, this step's keys included; with an indexer, to those of
them that it selects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from strata.kernels import indexer, kv
from strata.kernels.indexer import IndexerWeights
from strata.kernels.norm import rms_norm
from strata.kernels.quant import QTensor
from strata.kernels.residual import Residual
from strata.kernels.rope import RopeSpec, rotate


@dataclass(frozen=True, slots=True, eq=False)
class AttentionWeights:
    """q [heads * head_dim, hidden]; k, v [kv_heads * head_dim, hidden]; o [hidden, heads *
    head_dim]. When `gated`, q has twice the rows, of each head its query and then a gate, whose
    sigmoid multiplies the head's output. Biases float32 of their matrix's rows.

    q_norm and k_norm float32, an RMS norm before the rotation: of each head when they hold
    [head_dim], of all heads together when they hold as many as the matrix has rows.
    Scores are q.k * scale.
    """

    residual: Residual
    eps: float
    q: QTensor
    k: QTensor
    v: QTensor
    o: QTensor
    heads: int
    kv_heads: int
    head_dim: int
    rope: RopeSpec
    scale: float
    q_bias: Tensor | None = None
    k_bias: Tensor | None = None
    v_bias: Tensor | None = None
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None
    gated: bool = False
    indexer: IndexerWeights | None = None

    def __post_init__(self) -> None:
        hidden, inner = self.q.cols, self.heads * self.head_dim
        assert self.heads % self.kv_heads == 0
        assert self.residual.hidden == hidden and self.rope.dims <= self.head_dim
        assert (self.o.rows, self.o.cols) == (hidden, inner)
        assert self.q.rows == inner * (1 + self.gated)
        assert self.indexer is None or self.rope.dims <= self.indexer.dim
        for matrix in (self.k, self.v):
            assert (matrix.rows, matrix.cols) == (self.kv_heads * self.head_dim, hidden)


@dataclass(frozen=True, slots=True, eq=False)
class PagedStep:
    """The parts of a ForwardPlan that attention needs, as int64 tensors on the device."""

    block: int
    positions: Tensor  # [n]
    write_slots: Tensor  # [n]
    page_table: Tensor  # [r, p]
    row_starts: list[int]  # r + 1


@dataclass(frozen=True, slots=True, eq=False)
class Projections:
    """Dequantised q, k, v and o, float32, and those of the indexer."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    index_q: Tensor | None = None
    index_k: Tensor | None = None


def attention(
    h: Tensor,
    w: AttentionWeights,
    matrices: Projections,
    page: Mapping[str, Tensor],
    step: PagedStep,
) -> Tensor:
    """The layer's output for h [n, hidden].

    Writes into the page fields k and v [pages, kv_heads, block, width] (kv.py) and, with an
    indexer, index_raw [pages, block, dim] and index_keys [pages, block / ratio, dim]. Rows' pages
    beyond their last position are not read.
    """
    k, v = page["k"], page["v"]
    queries = _project(h, matrices.q, w.q_bias, w.heads)
    gate = None
    if w.gated:
        queries, gate = queries.chunk(2, dim=-1)
    keys = _project(h, matrices.k, w.k_bias, w.kv_heads)
    values = _project(h, matrices.v, w.v_bias, w.kv_heads)
    queries, keys = _normed(queries, w.q_norm, w.eps), _normed(keys, w.k_norm, w.eps)
    queries = rotate(queries, step.positions, w.rope)
    keys = rotate(keys, step.positions, w.rope)

    written = step.write_slots >= 0
    own, slot = step.write_slots[written] // step.block, step.write_slots[written] % step.block
    k[own, :, slot] = kv.stored(keys[written], k.dtype)
    v[own, :, slot] = kv.stored(values[written], v.dtype)
    sparse = None
    if w.indexer is not None:
        sparse = _Sparse(h, w, w.indexer, matrices, page, step)

    mixed = torch.empty_like(queries)
    for row, (first, end) in enumerate(zip(step.row_starts, step.row_starts[1:], strict=False)):
        if first < end:
            positions = step.positions[first:end]
            count = int(positions.max()) + 1
            pages = step.page_table[row, : (count - 1) // step.block + 1]
            seen = torch.arange(count) <= positions[:, None]
            if sparse is not None:
                seen = sparse.visible(first, end, pages, count)
            row_k, row_v = (_rows(field, pages, count, w.head_dim) for field in (k, v))
            mixed[first:end] = _attend(queries[first:end], row_k, row_v, seen, w)
    if gate is not None:
        mixed = mixed * torch.sigmoid(gate)
    return mixed.flatten(1) @ matrices.o.T


class _Sparse:
    """The indexer over one step: writes its keys, then says what each row's queries see."""

    def __init__(
        self,
        h: Tensor,
        w: AttentionWeights,
        index: IndexerWeights,
        matrices: Projections,
        page: Mapping[str, Tensor],
        step: PagedStep,
    ) -> None:
        assert matrices.index_q is not None and matrices.index_k is not None
        raw, self.keys = page["index_raw"], page["index_keys"]
        self.w, self.step = index, step
        written = step.write_slots >= 0
        slots = step.write_slots[written]
        raw[slots // step.block, slots % step.block] = (h @ matrices.index_k.T)[written].to(
            raw.dtype
        )
        last = slots[slots % index.ratio == index.ratio - 1]
        if len(last):
            blocks = raw[last // step.block].float().view(len(last), -1, index.ratio, index.dim)
            place = last % step.block // index.ratio
            whole = blocks[torch.arange(len(last)), place]
            starts = (
                step.positions[written][slots % index.ratio == index.ratio - 1] + 1 - index.ratio
            )
            done = indexer.finish_keys(whole, starts, index, w.rope)
            self.keys[last // step.block, place] = done.to(self.keys.dtype)
        self.q = indexer.queries(h, matrices.index_q, step.positions, index, w.rope)

    def visible(self, first: int, end: int, pages: Tensor, count: int) -> Tensor:
        """bool [end - first, count] for one row's queries."""
        keys = self.keys[pages].flatten(0, 1).float()
        positions = self.step.positions[first:end]
        return indexer.visible(self.q[first:end], keys, positions, self.w, count)


def _normed(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """x [n, heads, head_dim] normed by head, or whole when `weight` is as large."""
    if weight is None:
        return x
    if weight.numel() == x.shape[-1]:
        return rms_norm(x, weight, eps)
    return rms_norm(x.flatten(1), weight, eps).view_as(x)


def _project(h: Tensor, matrix: Tensor, bias: Tensor | None, heads: int) -> Tensor:
    """[n, heads, head_dim]"""
    y = h @ matrix.T if bias is None else h @ matrix.T + bias
    return y.view(len(y), heads, -1)


def _rows(field: Tensor, pages: Tensor, count: int, head_dim: int) -> Tensor:
    """The first `count` tokens of a row: [kv_heads, count, head_dim]."""
    return kv.loaded(field[pages].transpose(0, 1).flatten(1, 2)[:, :count], head_dim)


def _attend(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, w: AttentionWeights) -> Tensor:
    """Queries [n, heads, head_dim] over keys [kv_heads, count, head_dim] where `seen` [n, count]:
    as the queries.
    """
    group = w.heads // w.kv_heads
    grouped = q.transpose(0, 1).reshape(w.kv_heads, group, len(q), w.head_dim)
    scores = grouped @ k[:, None].transpose(-1, -2) * w.scale
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return (weights @ v[:, None]).flatten(0, 1).transpose(0, 1)
