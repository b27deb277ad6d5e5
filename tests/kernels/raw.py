"""Blocks of random bytes whose scales are sane, of every format."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from strata.kernels.quant import Format, QTensor

F = Format
Bytes = npt.NDArray[np.uint8]
# Byte offsets of the f16 values of a block, where it is not one at 0.
HALVES = {
    **dict.fromkeys((F.Q4_1, F.Q5_1, F.Q4_K, F.Q5_K), (0, 2)),
    F.Q2_K: (80, 82),
    F.Q3_K: (108,),
    F.Q6_K: (208,),
    F.TQ1_0: (52,),
    F.TQ2_0: (64,),
    F.IQ1_M: (),
    F.MXFP4: (),
    F.NVFP4: (),
}


def random_blocks(kind: Format, n: int, rng: np.random.Generator, fill: int | None = None) -> Bytes:
    """[n, block bytes], random or all `fill`, but for scales of 0.5 to 1.5."""
    blocks = rng.integers(0, 256, (n, kind.block_bytes), dtype=np.uint8)
    if fill is not None:
        blocks[:] = fill
    for at in HALVES.get(kind, (0,)):
        half = rng.uniform(0.5, 1.5, (n, 1)).astype(np.float16)
        blocks[:, at : at + 2] = half.view(np.uint8)
    if kind is F.IQ1_M:  # the f16 lies in the upper nibbles of four words, lowest first
        for place, nibble in zip((49, 51, 53), rng.integers(0, 16, (3, n)), strict=True):
            blocks[:, place] = blocks[:, place] & 15 | (nibble << 4 if place < 53 else 0x80)
        blocks[:, 55] = blocks[:, 55] & 15 | 0x30
    if kind is F.MXFP4:
        blocks[:, 0] = rng.integers(127, 129, n)
    if kind is F.NVFP4:
        blocks[:, :4] = rng.integers(0x38, 0x44, (n, 4))
    return blocks


def random_matrix(
    kind: Format, rows: int, cols: int, seed: int = 0, fill: int | None = None
) -> QTensor:
    """Of random blocks; normal values where the format has none."""
    rng = np.random.default_rng(seed)
    if kind.block > 1:
        data = random_blocks(kind, rows * cols // kind.block, rng, fill)
        return QTensor(torch.from_numpy(data.reshape(-1)), kind, rows, cols)
    values = torch.from_numpy(rng.standard_normal((rows, cols)).astype(np.float32))
    dtype = {F.F16: torch.float16, F.BF16: torch.bfloat16}.get(kind, torch.float32)
    return QTensor(values.to(dtype).view(torch.uint8).reshape(-1), kind, rows, cols)
