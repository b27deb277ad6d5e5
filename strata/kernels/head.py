"""The ends of a model: token embeddings and logits, as plain torch specifications.

The native implementation is cpu/head.h.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from strata.kernels.quant import QTensor, dequantise_rows
from strata.kernels.residual import Residual


@dataclass(frozen=True, slots=True, eq=False)
class HeadWeights:
    """weight [vocab, hidden]. Nothing is added to the stream."""

    residual: Residual
    weight: QTensor

    def __post_init__(self) -> None:
        assert self.residual.hidden == self.weight.cols


def embed(tokens: Tensor, table: QTensor, streams: int = 1) -> Tensor:
    """Rows of the table for tokens int64 [n], repeated: float32 [n, streams * hidden]."""
    return dequantise_rows(table, tokens).repeat(1, streams)


def head(h: Tensor, weight: Tensor) -> Tensor:
    """Logits [m, vocab] of h [m, hidden]; `weight` is the dequantised matrix."""
    return h @ weight.T
