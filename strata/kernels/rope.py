"""Rotary position embedding: the plain torch specification.

Knows frequencies, not where they come from (strata.models.rope). The native table
is cpu/rope.h; both round the angle to float32 before taking its cosine, as the
models' own code does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class RopeSpec:
    """Dimensions i and i + dims / 2 of a head turn by position * frequencies[i].

    `dims` may be less than head_dim; the rest is left alone. frequencies: float32
    [dims / 2], radians per token. Cosine and sine are multiplied by `magnitude`.
    """

    dims: int
    frequencies: Tensor
    magnitude: float = 1.0

    def __post_init__(self) -> None:
        assert self.frequencies.shape == (self.dims // 2,)
        assert self.frequencies.dtype == torch.float32


def rotate(x: Tensor, positions: Tensor, spec: RopeSpec) -> Tensor:
    """Turn x [n, heads, head_dim] by its tokens' positions [n]."""
    angles = positions.to(torch.float32)[:, None] * spec.frequencies
    cos = (angles.cos() * spec.magnitude)[:, None, :]
    sin = (angles.sin() * spec.magnitude)[:, None, :]
    half = spec.dims // 2
    a, b, rest = x[..., :half], x[..., half : spec.dims], x[..., spec.dims :]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), dim=-1)
