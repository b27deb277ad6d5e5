"""Quantised weights as GGUF stores them: formats, dequantisation, reference product.

Knows what the supported GGML types are, and leaves their bytes to the `gguf` package, which is
the specification of the native kernels (cpu/gguf_rows.h, cpu/codes.h).

A row of `cols` weights is `cols / block` consecutive blocks; rows follow each other without
padding. d and m are scales of a block, s and t of a part of it, q is a weight's own:

===========================  ======  ==============  ===============================
type                         block   bits a weight   weight
===========================  ======  ==============  ===============================
F32 F16 BF16                 1       32, 16          as it is
Q8_0 Q5_0 Q4_0               32      8.5 5.5 4.5     d q
Q5_1 Q4_1                    32      6, 5            d q + m
IQ4_NL MXFP4                 32      4.5, 4.25       d value[q]
NVFP4                        64      4.5             s value[q], parts of 16
Q6_K Q3_K                    256     6.56, 3.44      d s q, parts of 16
Q5_K Q4_K Q2_K               256     5.5, 4.5, 2.63  d s q - m t, parts of 32; 16 in Q2_K
IQ4_XS                       256     4.25            d s value[q], parts of 32
IQ3_S IQ3_XXS                256     3.44, 3.06      d s (point of a grid, signs): fours
IQ2_S IQ2_XS IQ2_XXS         256     2.56 to 2.06    d s (point of a grid, signs): eights
IQ1_M IQ1_S                  256     1.75, 1.56      d s (point of a grid + or - 1/8): eights
TQ2_0 TQ1_0                  256     2.06, 1.69      d q, q one of -1, 0, 1
===========================  ======  ==============  ===============================
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import gguf
import numpy as np
import torch
from torch import Tensor

from strata.types import ModelError


class Format(IntEnum):
    """GGML type numbers of the supported formats."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40

    @property
    def block(self) -> int:
        """Weights in a block; a row is a whole number of blocks."""
        return _BLOCKS[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return _BLOCKS[self][1]


_BLOCKS = {kind: gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)] for kind in Format}
_PLAIN = {
    Format.F32: torch.float32,
    Format.F16: torch.float16,
    Format.BF16: torch.bfloat16,
}


@dataclass(frozen=True, slots=True, eq=False)
class QTensor:
    """A weight matrix [rows, cols] in its file's quantisation.

    `data` is uint8 [rows * row_bytes] on the CPU, and may be a read-only view of
    the file. Raises ModelError when the bytes and the shape disagree.
    """

    data: Tensor
    format: Format
    rows: int
    cols: int

    def __post_init__(self) -> None:
        if self.cols % self.format.block:
            raise ModelError(
                f"a row of {self.cols} weights is no whole number of {self.format.name} blocks "
                f"({self.format.block} weights each)"
            )
        want = self.rows * self.row_bytes
        if self.data.dtype != torch.uint8 or self.data.numel() != want:
            raise ModelError(
                f"a {self.format.name} matrix {self.rows} x {self.cols} takes {want} bytes, "
                f"got {self.data.numel()} of {self.data.dtype}"
            )

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.cols // self.format.block * self.format.block_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix."""
        return self.data.numel()


def quantised(data: Tensor, number: int, rows: int, cols: int) -> QTensor:
    """A QTensor from a GGML type number; ModelError names an unsupported type."""
    try:
        kind = Format(number)
    except ValueError:
        name = {int(t): t.name for t in gguf.GGMLQuantizationType}.get(number, str(number))
        names = ", ".join(f.name for f in Format)
        raise ModelError(
            f"weights of GGML type {name} are not supported; supported are {names}"
        ) from None
    return QTensor(data, kind, rows, cols)


def dequantise(q: QTensor) -> Tensor:
    """The weights as float32 [rows, cols]."""
    if q.format in _PLAIN:
        own = q.data.contiguous().view(_PLAIN[q.format])
        return own.to(torch.float32, copy=True).reshape(q.rows, q.cols)
    rows = q.data.reshape(q.rows, q.row_bytes).numpy()
    with np.errstate(all="ignore"):  # a scale may be anything
        return torch.from_numpy(gguf.dequantize(rows, gguf.GGMLQuantizationType(q.format)))


def dequantise_rows(q: QTensor, rows: Tensor) -> Tensor:
    """Rows `rows` (int64 [n]) of the weights as float32 [n, cols]: an embedding lookup."""
    data = q.data.reshape(q.rows, q.row_bytes)[rows].reshape(-1)
    return dequantise(QTensor(data, q.format, rows.numel(), q.cols))


def matmul_reference(x: Tensor, q: QTensor) -> Tensor:
    """x [n, cols] float32 times the transposed weights: float32 [n, rows]."""
    return x @ dequantise(q).T
