"""Random weights in the bytes of each GGML format, made directly: random weights need no
quantiser.

Values are centred, of a given standard deviation. Where a format has minima they are tied to the
scales, so that the mean of a block is zero; else blocks of either sign even it out.
"""

from __future__ import annotations

from functools import cache
from math import prod, sqrt

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, quants
from gguf import GGMLQuantizationType as Type

from strata.files import WEIGHTS

Bytes = npt.NDArray[np.uint8]
Spread = npt.NDArray[np.float32]
Scales = npt.NDArray[np.floating]

FORMATS = WEIGHTS
# Where in a block its f16 scale lies, if not at 0.
_PLACES = {Type.Q2_K: 80, Type.Q3_K: 108, Type.Q6_K: 208, Type.TQ1_0: 52, Type.TQ2_0: 64}
# Formats with a second f16 behind it, and what multiple of the scale centres the weights.
_MINIMA = {Type.Q4_1: -7.5, Type.Q5_1: -15.5, Type.Q4_K: 7.5, Type.Q5_K: 15.5, Type.Q2_K: 1.5}


def fitting(kind: Type, cols: int) -> Type:
    """The format itself where rows of `cols` fit its blocks, else Q8_0, else F16."""
    for one in (kind, Type.Q8_0):
        if cols % GGML_QUANT_SIZES[one][0] == 0:
            return one
    return Type.F16


def row_bytes(kind: Type, cols: int) -> int:
    """Bytes of a row."""
    block, size = GGML_QUANT_SIZES[kind]
    return cols // block * size


def rows(kind: Type, cols: int, spread: Spread, mean: float, random: np.random.Generator) -> Bytes:
    """[n, row bytes] of random weights; `spread` [n] is the standard deviation of each row.

    `mean` counts only for the formats without blocks.
    """
    if kind in (Type.F32, Type.F16, Type.BF16):
        return _plain(kind, cols, spread, mean, random)
    shape = (len(spread), cols // GGML_QUANT_SIZES[kind][0])
    scale = np.broadcast_to((spread / _deviation(kind))[:, None], shape)
    data = _blocks(kind, scale, random)
    data[spread == 0] = 0
    flat: Bytes = data.reshape(len(spread), -1)
    return flat


@cache
def _deviation(kind: Type) -> float:
    """Standard deviation of random weights in blocks of scale 1."""
    scale = np.ones((64, 4096 // GGML_QUANT_SIZES[kind][0]), np.float32)
    data = _blocks(kind, scale, np.random.default_rng(0)).reshape(64, -1)
    return float(gguf.dequantize(data, kind).std())


def _blocks(kind: Type, scale: Scales, random: np.random.Generator) -> Bytes:
    """[..., block bytes] of random blocks, one for each of `scale` [...]."""
    shape = (*scale.shape, GGML_QUANT_SIZES[kind][1])
    words = random.integers(0, 2**64, -(-prod(shape) // 8), np.uint64)
    data: Bytes = words.view(np.uint8)[: prod(shape)].reshape(shape)
    if kind == Type.TQ2_0:  # of pairs of bits no 3
        data &= ~((data << 1) & data & 0xAA)
    if kind == Type.Q2_K:  # equal scales and minima of 16 parts
        data[..., :16] = (data[..., :16] & 15) * 17
    if kind in (Type.Q4_K, Type.Q5_K):  # of 8 parts, 6 bits each, in 12 bytes
        data[..., 8:12] = data[..., 4:8]
        data[..., 12:16] = (data[..., 12:16] & 15) * 17
    sign = 1 if kind in _MINIMA else np.where(data[..., -1] & 1, 1, -1)
    _put_scales(kind, data, scale * sign, random)
    return data


def _put_scales(kind: Type, data: Bytes, scale: Scales, random: np.random.Generator) -> None:
    """Writes the scales [...] of blocks `data` [..., block bytes], and minima that centre them.

    A byte of MXFP4 and NVFP4 holds a scale's size only.
    """
    half, place = _half(scale), _PLACES.get(kind, 0)
    if kind == Type.MXFP4:
        levels = quants.MXFP4.e8m0_to_fp32_half(np.arange(255, dtype=np.uint8))
        data[..., :1] = _near(levels, scale, 1, random)
    elif kind == Type.NVFP4:
        levels = quants.NVFP4.ue4m3_to_fp32(np.arange(127, dtype=np.uint8))
        data[..., :4] = _near(levels, scale, 4, random)
    elif kind == Type.IQ1_M:  # a nibble in each of four words
        for k, byte in enumerate((0, 0, 1, 1)):
            nibble = half[..., byte] >> 4 if k % 2 else half[..., byte] & 15
            data[..., 49 + 2 * k] = data[..., 49 + 2 * k] & 15 | nibble << 4
    else:
        data[..., place : place + 2] = half
    if kind in _MINIMA:
        data[..., place + 2 : place + 4] = _half(scale * _MINIMA[kind])


def _near(levels: Spread, scale: Scales, width: int, random: np.random.Generator) -> Bytes:
    """[..., width] numbers of the levels next below or above, so by chance that the mean of their
    squares is right.
    """
    squares, wanted = np.square(levels, dtype=np.float64), np.square(scale, dtype=np.float64)
    below = (np.searchsorted(squares, wanted, "right") - 1).clip(0, len(levels) - 2)
    share = (wanted - squares[below]) / (squares[below + 1] - squares[below])
    above = random.random((*scale.shape, width)) < share[..., None]
    numbers: Bytes = (below[..., None] + above).astype(np.uint8)
    return numbers


def _half(values: Scales) -> Bytes:
    """[...] -> bytes of float16 [..., 2]."""
    return values.astype("<f2")[..., None].view(np.uint8)


def _plain(
    kind: Type, cols: int, spread: Spread, mean: float, random: np.random.Generator
) -> Bytes:
    values = random.random((len(spread), cols), np.float32)
    values -= np.float32(0.5)
    values *= spread[:, None] * np.float32(sqrt(12))
    values += np.float32(mean)
    if kind == Type.F16:
        return values.astype(np.float16).view(np.uint8)
    if kind == Type.F32:
        return values.view(np.uint8)
    bits = values.view(np.uint32)
    bits += 0x8000  # rounds to the nearest
    return bits.view(np.uint16)[:, 1::2].copy().view(np.uint8)
