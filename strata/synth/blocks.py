"""Random weights in the bytes of each GGML format, made directly: random weights need no
quantiser.

Values are uniform and centred, of a given standard deviation. Blocks of the K formats have random
scales; their minimum is tied to the scale so that the mean of a block is zero.
"""

from __future__ import annotations

from math import prod, sqrt

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type

Bytes = npt.NDArray[np.uint8]
Spread = npt.NDArray[np.float32]

FORMATS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")


def _uniform_spread(levels: int) -> float:
    """Standard deviation of equally likely whole numbers."""
    return sqrt((levels**2 - 1) / 12)


_SCALES_6 = sqrt(sum(i * i for i in range(64)) / 64)  # root mean square of a 6-bit scale
_SCALES_8 = sqrt(sum(i * i for i in range(-128, 128)) / 256)
# format -> levels of a weight, root mean square of the scales inside a block
_LEVELS = {
    Type.Q8_0: (256, 1.0),
    Type.Q4_0: (16, 1.0),
    Type.Q4_1: (16, 1.0),
    Type.Q5_0: (32, 1.0),
    Type.Q5_1: (32, 1.0),
    Type.Q4_K: (16, _SCALES_6),
    Type.Q5_K: (32, _SCALES_6),
    Type.Q6_K: (64, _SCALES_8),
}
_WITH_MINIMUM = (Type.Q4_1, Type.Q5_1, Type.Q4_K, Type.Q5_K)


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
    block, size = GGML_QUANT_SIZES[kind]
    shape = (len(spread), cols // block, size)
    words = random.integers(0, 2**64, -(-prod(shape) // 8), np.uint64)
    data = words.view(np.uint8)[: prod(shape)].reshape(shape)
    levels, inner = _LEVELS[kind]
    scale = (spread / (_uniform_spread(levels) * inner))[:, None]
    if kind in _WITH_MINIMUM:
        _with_minimum(kind, data, np.broadcast_to(scale, shape[:2]), levels)
    else:
        # The levels lie around -1/2: blocks of either sign even that out.
        sign = np.where(data[..., -1] & 1, 1, -1)
        at = 208 if kind == Type.Q6_K else 0
        data[..., at : at + 2] = _half(scale * sign)
    return data.reshape(len(spread), -1)


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


def _with_minimum(kind: Type, data: Bytes, scale: npt.NDArray[np.floating], levels: int) -> None:
    """Blocks that begin with a scale and a minimum, added in Q4_1 and Q5_1, subtracted in K."""
    middle = (levels - 1) / 2
    nested = kind in (Type.Q4_K, Type.Q5_K)
    data[..., 0:2] = _half(scale)
    data[..., 2:4] = _half(scale * (middle if nested else -middle))
    if nested:  # scales and minima of 8 parts, 6 bits each, in 12 bytes: make them equal
        data[..., 8:12] = data[..., 4:8]
        low = data[..., 12:16] & 15
        data[..., 12:16] = low | (low << 4)


def _half(values: npt.NDArray[np.floating]) -> Bytes:
    """[...] -> bytes of float16 [..., 2]."""
    return values.astype("<f2")[..., None].view(np.uint8)
