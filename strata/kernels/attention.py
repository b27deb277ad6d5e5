"""Attention over paged keys and values: weights and the plain torch specification.

Knows one layer's weights, its pages and a step's flat arrays; nothing of sequences
beyond a row's page table. The native implementation is cpu/attention.h.

Semantics: every token of the step writes its key and value at its write slot (page *
block + offset) unless that is -1, then attends to positions 0..own of its row, which
is what the row's pages hold, this step's keys included.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from strata.kernels.norm import rms_norm
from strata.kernels.quant import QTensor
from strata.kernels.rope import RopeSpec, rotate


@dataclass(frozen=True, slots=True, eq=False)
class AttentionWeights:
    """norm float32 [hidden]; q [heads * head_dim, hidden]; k, v [kv_heads * head_dim, hidden];

    o [hidden, heads * head_dim]. Biases float32 of their matrix's rows; q_norm and k_norm
    float32 [head_dim], an RMS norm of each head before the rotation. Scores are q.k * scale.
    """

    norm: Tensor
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

    def __post_init__(self) -> None:
        hidden, inner = self.q.cols, self.heads * self.head_dim
        assert self.heads % self.kv_heads == 0
        assert self.norm.shape == (hidden,) and self.rope.dims <= self.head_dim
        assert (self.o.rows, self.o.cols, self.q.rows) == (hidden, inner, inner)
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
    """Dequantised q, k, v and o, float32."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor


def attention(
    x: Tensor, w: AttentionWeights, matrices: Projections, k: Tensor, v: Tensor, step: PagedStep
) -> Tensor:
    """What the layer adds to x [n, hidden]; writes into k and v [pages, kv_heads, block, head_dim].

    Rows' pages beyond their last position are not read.
    """
    h = rms_norm(x, w.norm, w.eps)
    queries = _project(h, matrices.q, w.q_bias, w.heads)
    keys = _project(h, matrices.k, w.k_bias, w.kv_heads)
    values = _project(h, matrices.v, w.v_bias, w.kv_heads)
    if w.q_norm is not None:
        queries = rms_norm(queries, w.q_norm, w.eps)
    if w.k_norm is not None:
        keys = rms_norm(keys, w.k_norm, w.eps)
    queries = rotate(queries, step.positions, w.rope)
    keys = rotate(keys, step.positions, w.rope)

    written = step.write_slots >= 0
    page, slot = step.write_slots[written] // step.block, step.write_slots[written] % step.block
    k[page, :, slot] = keys[written].to(k.dtype)
    v[page, :, slot] = values[written].to(v.dtype)

    mixed = torch.empty_like(queries)
    for row, (first, end) in enumerate(zip(step.row_starts, step.row_starts[1:], strict=False)):
        if first < end:
            positions = step.positions[first:end]
            count = int(positions.max()) + 1
            pages = step.page_table[row, : (count - 1) // step.block + 1]
            mixed[first:end] = _attend(
                queries[first:end], _rows(k, pages, count), _rows(v, pages, count), positions, w
            )
    return mixed.flatten(1) @ matrices.o.T


def _project(h: Tensor, matrix: Tensor, bias: Tensor | None, heads: int) -> Tensor:
    """[n, heads, head_dim]"""
    y = h @ matrix.T if bias is None else h @ matrix.T + bias
    return y.view(len(y), heads, -1)


def _rows(field: Tensor, pages: Tensor, count: int) -> Tensor:
    """The first `count` tokens of a row: [kv_heads, count, head_dim]."""
    return field[pages].transpose(0, 1).flatten(1, 2)[:, :count].to(torch.float32)


def _attend(q: Tensor, k: Tensor, v: Tensor, positions: Tensor, w: AttentionWeights) -> Tensor:
    """Queries [n, heads, head_dim] over keys [kv_heads, count, head_dim]: as the queries."""
    group = w.heads // w.kv_heads
    grouped = q.transpose(0, 1).reshape(w.kv_heads, group, len(q), w.head_dim)
    scores = grouped @ k[:, None].transpose(-1, -2) * w.scale
    hidden = torch.arange(k.shape[1]) > positions[:, None]
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return (weights @ v[:, None]).flatten(0, 1).transpose(0, 1)
