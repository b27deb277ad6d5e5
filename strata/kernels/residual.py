"""How a sublayer reads the residual stream and adds to it: plain torch specification.

Knows the two forms that models use; nothing of what a sublayer computes between them.
The native implementation is cpu/port.h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import silu

from strata.kernels.norm import rms_norm
from strata.kernels.quant import QTensor, dequantise


@dataclass(frozen=True, slots=True, eq=False)
class PreNorm:
    """h = rms_norm(x), x += y. norm float32 [hidden]."""

    norm: Tensor
    eps: float

    @property
    def hidden(self) -> int:
        """Floats of h and y."""
        return self.norm.numel()

    @property
    def width(self) -> int:
        """Floats of a token in the residual stream."""
        return self.norm.numel()


@dataclass(frozen=True, slots=True, eq=False)
class GatedStreams:
    """`streams` residual streams, mixed before a sublayer and fed by it (Qwen3.8-Flash-Next).

    n = each stream's rms_norm; m = sigmoid(up(silu(down(n) / streams))); h = mean of m n over
    the streams; share = 2 sigmoid(inject(n) / streams); stream i += share_i y.
    norm float32 [streams * hidden]; down [rank, streams * hidden]; up the reverse;
    inject [streams, streams * hidden], None where nothing is added (before the head).
    """

    norm: Tensor
    eps: float
    streams: int
    down: QTensor
    up: QTensor
    inject: QTensor | None

    def __post_init__(self) -> None:
        width = self.width
        assert width % self.streams == 0
        assert self.down.cols == width and (self.up.rows, self.up.cols) == (width, self.down.rows)
        assert self.inject is None or (self.inject.rows, self.inject.cols) == (self.streams, width)

    @property
    def hidden(self) -> int:
        """Floats of h and y."""
        return self.norm.numel() // self.streams

    @property
    def width(self) -> int:
        """Floats of a token in the residual stream."""
        return self.norm.numel()


Residual = PreNorm | GatedStreams
Leave = Callable[[Tensor], Tensor]
Enter = Callable[[Tensor], tuple[Tensor, Leave]]


def entering(residual: Residual) -> Enter:
    """x [n, width] -> the sublayer's input h [n, hidden], and what turns its output y into the
    new x. Holds dequantised weights.
    """
    if isinstance(residual, PreNorm):
        return lambda x: (rms_norm(x, residual.norm, residual.eps), lambda y: x + y)
    streams, eps = residual.streams, residual.eps
    norm = residual.norm.view(streams, -1)
    down, up = dequantise(residual.down), dequantise(residual.up)
    inject = None if residual.inject is None else dequantise(residual.inject)

    def enter(x: Tensor) -> tuple[Tensor, Leave]:
        normed = rms_norm(x.view(len(x), streams, residual.hidden), norm, eps)
        flat = normed.flatten(1)
        mix = torch.sigmoid(silu(flat @ down.T / streams) @ up.T)
        h = (mix.view_as(normed) * normed).mean(1)

        def leave(y: Tensor) -> Tensor:
            assert inject is not None
            share = 2 * torch.sigmoid(flat @ inject.T / streams)
            return x + (share[:, :, None] * y[:, None, :]).flatten(1)

        return h, leave

    return enter
