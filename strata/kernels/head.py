"""The ends of a model: token embeddings and logits, as plain torch specifications.

The native implementation is cpu/head.h.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from strata.kernels.norm import rms_norm
from strata.kernels.quant import QTensor, dequantise_rows


@dataclass(frozen=True, slots=True, eq=False)
class HeadWeights:
    """norm float32 [hidden]; weight [vocab, hidden]."""

    norm: Tensor
    eps: float
    weight: QTensor

    def __post_init__(self) -> None:
        assert self.norm.shape == (self.weight.cols,)


def embed(tokens: Tensor, table: QTensor) -> Tensor:
    """Rows of the table for tokens int64 [n]: float32 [n, hidden]."""
    return dequantise_rows(table, tokens)


def head(x: Tensor, weights: HeadWeights, weight: Tensor) -> Tensor:
    """Logits [m, vocab] of x [m, hidden]; `weight` is the dequantised matrix."""
    return rms_norm(x, weights.norm, weights.eps) @ weight.T
