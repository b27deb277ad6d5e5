"""The gated feed-forward layer: weights and the plain torch specification.

The native implementation is cpu/mlp.h.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import silu

from strata.kernels.quant import QTensor
from strata.kernels.residual import Residual


@dataclass(frozen=True, slots=True, eq=False)
class MlpWeights:
    """gate and up [ffn, hidden]; down [hidden, ffn]."""

    residual: Residual
    gate: QTensor
    up: QTensor
    down: QTensor

    def __post_init__(self) -> None:
        hidden, ffn = self.gate.cols, self.gate.rows
        assert self.residual.hidden == hidden
        assert (self.up.rows, self.up.cols) == (ffn, hidden)
        assert (self.down.rows, self.down.cols) == (hidden, ffn)


def mlp(h: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """The layer's output for h [n, hidden]; gate, up, down are the dequantised weights."""
    return (silu(h @ gate.T) * (h @ up.T)) @ down.T
