"""The block indexer of sparse attention: weights and the plain torch specification.

Qwen3.8-Flash-Next's attention layers see only `budget` earlier tokens: keys of a small
projection are averaged over blocks of `ratio` tokens, and each query takes the blocks with
the highest scores, besides the tokens after the last whole block. Knows one row's index keys;
not the attention that obeys. The native implementation is cpu/indexer.h.

Index keys lie in the pages, raw per token and finished per block, so that a page that is copied
and continued holds all that its next block needs. Of equal scores (where no head matches, all are
zero) the earlier block is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from strata.kernels.norm import rms_norm
from strata.kernels.quant import QTensor
from strata.kernels.rope import RopeSpec, rotate


@dataclass(frozen=True, slots=True, eq=False)
class IndexerWeights:
    """q [heads * dim, hidden]; k [dim, hidden]; q_norm, k_norm float32 [dim]. `budget` tokens,
    a multiple of `ratio`; a page holds whole blocks of `ratio` tokens.
    """

    q: QTensor
    k: QTensor
    q_norm: Tensor
    k_norm: Tensor
    eps: float
    heads: int
    dim: int
    budget: int
    ratio: int

    def __post_init__(self) -> None:
        assert self.budget % self.ratio == 0
        assert self.q.rows == self.heads * self.dim and self.k.rows == self.dim


def finish_keys(raw: Tensor, starts: Tensor, w: IndexerWeights, rope: RopeSpec) -> Tensor:
    """Keys of whole blocks: raw [blocks, ratio, dim], positions of their first tokens ->
    [blocks, dim].
    """
    pooled = rms_norm(raw.mean(1), w.k_norm, w.eps)
    return rotate(pooled[:, None], starts, rope)[:, 0]


def queries(
    h: Tensor, matrix: Tensor, positions: Tensor, w: IndexerWeights, rope: RopeSpec
) -> Tensor:
    """Index queries [n, heads, dim] of h [n, hidden]; `matrix` is the dequantised w.q."""
    q = rms_norm((h @ matrix.T).view(-1, w.heads, w.dim), w.q_norm, w.eps)
    return rotate(q, positions, rope)


def visible(q: Tensor, keys: Tensor, positions: Tensor, w: IndexerWeights, count: int) -> Tensor:
    """bool [n, count]: which of the row's first `count` tokens each query may see.

    q [n, heads, dim]; keys [blocks, dim], at least the blocks that lie whole before any query's
    next token.
    """
    seen = torch.zeros(len(q), count, dtype=torch.bool)
    for i, position in enumerate(positions.tolist()):
        whole = (position + 1) // w.ratio
        seen[i, whole * w.ratio : position + 1] = True
        if whole:
            scores = torch.relu(q[i] @ keys[:whole].T).sum(0)
            ranked = scores.sort(descending=True, stable=True).indices
            best = ranked[: w.budget // w.ratio]
            seen[i, : whole * w.ratio].view(whole, w.ratio)[best] = True
    return seen
