"""The gated feed-forward layer: weights and the plain torch specification.

The native implementation is cpu/mlp.h.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import silu

from strata.kernels.norm import rms_norm
from strata.kernels.quant import QTensor


@dataclass(frozen=True, slots=True, eq=False)
class MlpWeights:
    """norm float32 [hidden]; gate and up [ffn, hidden]; down [hidden, ffn]."""

    norm: Tensor
    eps: float
    gate: QTensor
    up: QTensor
    down: QTensor

    def __post_init__(self) -> None:
        hidden, ffn = self.gate.cols, self.gate.rows
        assert self.norm.shape == (hidden,)
        assert (self.up.rows, self.up.cols) == (ffn, hidden)
        assert (self.down.rows, self.down.cols) == (hidden, ffn)


def mlp(x: Tensor, weights: MlpWeights, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """What the layer adds to x [n, hidden]; gate, up, down are the dequantised weights."""
    h = rms_norm(x, weights.norm, weights.eps)
    return (silu(h @ gate.T) * (h @ up.T)) @ down.T
