"""The types of keys and values in pages, and how they are rounded: once, when they are written.

In q8 each 32 numbers of a head's key or value share a scale, a bfloat16: their largest magnitude
over 127. Numbers are whole multiples of it; a product with it is exact in float32. What a page of
the native kernels looks like inside is in cpu/kv.h.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from strata.types import ConfigError

TYPES = {"f16": "float16", "bf16": "bfloat16", "q8": "uint8"}  # by the setting's names
_SCALED = 32


def dtype_of(kv_type: str) -> str:
    """The dtype of the page fields k and v. Raises ConfigError."""
    if kv_type not in TYPES:
        raise ConfigError(
            f"there are no keys and values of type {kv_type!r}; use --kv-type {', '.join(TYPES)}"
        )
    return TYPES[kv_type]


def name_of(dtype: str) -> str:
    """What people call it."""
    return next((name for name, kind in TYPES.items() if kind == dtype), dtype)


def width(dtype: str, head_dim: int) -> int:
    """Elements of one token's key or value in a page, scales included."""
    return head_dim + 2 * _groups(head_dim) if dtype == "uint8" else head_dim


def stored(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Keys or values [..., head_dim] as they are kept: [..., width], finite but for NaN."""
    q8 = dtype == torch.uint8
    most = torch.finfo(torch.bfloat16 if q8 else dtype).max
    x = x.clamp(-most, most)
    if not q8:
        return x.to(dtype)
    dim = x.shape[-1]
    count = _groups(dim)
    groups = pad(x, (0, count * _SCALED - dim)).view(*x.shape[:-1], count, _SCALED)
    scales = (groups.abs().amax(-1) / 127).to(torch.bfloat16)
    steps = scales.float()[..., None]
    whole = (groups / torch.where(steps > 0, steps, torch.inf)).round().clamp(-127, 127)
    numbers = whole.to(torch.int8).flatten(-2)[..., :dim].contiguous()
    return torch.cat((numbers.view(torch.uint8), scales.contiguous().view(torch.uint8)), -1)


def loaded(kept: Tensor, head_dim: int) -> Tensor:
    """What `stored` kept, as float32 [..., head_dim]."""
    if kept.dtype != torch.uint8:
        return kept.float()
    numbers = kept[..., :head_dim].contiguous().view(torch.int8).float()
    scales = kept[..., head_dim:].contiguous().view(torch.bfloat16).float()
    return numbers * scales.repeat_interleave(_SCALED, -1)[..., :head_dim]


def _groups(head_dim: int) -> int:
    return -(-head_dim // _SCALED)
