"""Quantises matrices as publishers do, and says what they then are, by the formats' definitions.

Each takes float32 [rows, cols] and gives the tensors by the ends of their names (after that of the
module, `X.`), and the weights that are left, float32. Written place by place, with none of the
tricks of the code under test.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

Parts = dict[str, Tensor]
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # rows in the places of a word
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def fp8(
    w: Tensor, height: int, width: int, scales: torch.dtype, end: str = "weight_scale_inv"
) -> tuple[Parts, Tensor]:
    """E4M3 with a scale for each block of height x width."""
    rows, cols = w.shape
    scale = torch.empty(-(-rows // height), -(-cols // width), dtype=scales)
    q, left = torch.empty(w.shape, dtype=torch.float8_e4m3fn), torch.empty(w.shape)
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            part = slice(i * height, (i + 1) * height), slice(j * width, (j + 1) * width)
            scale[i, j] = w[part].abs().max() / 400
            d = float(scale[i, j])
            q[part] = (w[part] / d).clamp(-448, 448).to(torch.float8_e4m3fn)
            left[part] = q[part].float() * d
    return {"weight": q, end: scale}, left


def int4(
    w: Tensor, group: int, symmetric: bool, scales: torch.dtype
) -> tuple[np.ndarray, np.ndarray, Tensor, Tensor]:
    """q [rows, cols] and zeros [rows, groups], scales [rows, groups], the weights left."""
    rows, cols = w.shape
    parts = w.reshape(rows, cols // group, group)
    low, high = parts.amin(2).clamp_max(0), parts.amax(2).clamp_min(0)
    most = torch.maximum(-low, high)
    d = (2 * most / 15 if symmetric else (high - low) / 15).clamp_min(1e-4).to(scales)
    z = torch.full(d.shape, 8.0) if symmetric else (-low / d.float()).round().clamp(1, 15)
    q = (parts / d.float()[..., None] + z[..., None]).round().clamp(0, 15)
    left = ((q - z[..., None]) * d.float()[..., None]).reshape(rows, cols)
    return q.reshape(rows, cols).long().numpy(), z.long().numpy(), d, left


def packed(values: np.ndarray, order: tuple[int, ...] = tuple(range(8))) -> Tensor:
    """[n, 8 m] of four bits -> int32 [n, m]: value 8 j + order[i] in place i of word j."""
    words = np.zeros((values.shape[0], values.shape[1] // 8), np.int64)
    for place, of in enumerate(order):
        words |= values[:, of::8] << 4 * place
    return torch.from_numpy(words.astype(np.uint32).view(np.int32).copy())


def gptq(
    w: Tensor, group: int, symmetric: bool, less: int = 1, order: bool = True
) -> tuple[Parts, Tensor]:
    """`less`: what zeros are stored less."""
    q, z, d, left = int4(w, group, symmetric, torch.float16)
    parts = {
        "qweight": packed(q).T.contiguous(),
        "qzeros": packed(z.T - less),
        "scales": d.T.contiguous(),
    }
    if order:
        parts["g_idx"] = torch.arange(w.shape[1], dtype=torch.int32) // group
    return parts, left


def awq(w: Tensor, group: int, symmetric: bool = False) -> tuple[Parts, Tensor]:
    q, z, d, left = int4(w, group, symmetric, torch.float16)
    parts = {
        "qweight": packed(q.T, AWQ_ORDER),
        "qzeros": packed(z.T, AWQ_ORDER),
        "scales": d.T.contiguous(),
    }
    return parts, left


def compressed(
    w: Tensor, group: int, symmetric: bool, scales: torch.dtype = torch.bfloat16
) -> tuple[Parts, Tensor]:
    """compressed-tensors' pack-quantized."""
    q, z, d, left = int4(w, group, symmetric, scales)
    parts = {"weight_packed": packed(q), "weight_scale": d, "weight_shape": torch.tensor(w.shape)}
    if not symmetric:
        parts["weight_zero_point"] = packed(z.T).T.contiguous()
    return parts, left


def mxfp4(w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Packed u8 [rows, cols / 2], scales u8 [rows, cols / 32], the weights left."""
    blocks = w.double().numpy().reshape(w.shape[0], -1, 32)
    exponent = np.floor(np.log2(np.abs(blocks).max(2, keepdims=True))) - 2
    size = np.abs(blocks) / 2.0**exponent
    code = np.abs(size[..., None] - E2M1).argmin(-1)
    left = np.sign(blocks) * E2M1[code] * 2.0**exponent
    code = (code + 8 * (blocks < 0)).reshape(w.shape).astype(np.uint8)
    scale = (exponent[..., 0] + 127).astype(np.uint8)
    pairs = code[:, ::2] | code[:, 1::2] << 4
    return torch.from_numpy(pairs), torch.from_numpy(scale), torch.tensor(left).float().view_as(w)
