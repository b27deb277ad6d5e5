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
F8                           128     8.25            d q, q an E4M3
I4                           32      5               d (q - z)
===========================  ======  ==============  ===============================

F8 and I4 are in no file: checkpoints become them while they load (strata.models.quantised). A
block of F8 is a float32 d and 128 bytes. A block of I4 is a word, of d as float32 the upper 24
bits, which hold any f16 or bf16, and z in the lowest 8, and nibbles as those of Q4_0. E4M3 is
that of tables, which are read by the row and not multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

import gguf
import numpy as np
import torch
from torch import Tensor

from strata.types import ModelError


class Format(IntEnum):
    """GGML type numbers of the supported formats; from 1000 on our own, of no file."""

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
    F8 = 1000
    I4 = 1001
    E4M3 = 1002

    @property
    def block(self) -> int:
        """Weights in a block; a row is a whole number of blocks."""
        return _BLOCKS[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return _BLOCKS[self][1]


# The Formats that files have.
FILE_FORMATS = tuple(kind for kind in Format if kind < Format.F8)
_BLOCKS = {kind: gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)] for kind in FILE_FORMATS}
_BLOCKS |= {Format.F8: (128, 132), Format.I4: (32, 20), Format.E4M3: (1, 1)}
_PLAIN = {
    Format.F32: torch.float32,
    Format.F16: torch.float16,
    Format.BF16: torch.bfloat16,
}


# Makes the bytes of these rows (int64 [n]) of a matrix: uint8 [n * row_bytes].
MakeRows = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class QTensor:
    """A weight matrix [rows, cols] in its file's quantisation.

    `held` is uint8 [rows * row_bytes] on the CPU, and may be a read-only view of
    the file; or it makes the bytes whenever they are asked for, so that a model
    that is converted while it loads is not in memory twice. Raises ModelError when
    the bytes and the shape disagree.
    """

    held: Tensor | MakeRows
    format: Format
    rows: int
    cols: int

    def __post_init__(self) -> None:
        if self.cols % self.format.block:
            raise ModelError(
                f"a row of {self.cols} weights is no whole number of {self.format.name} blocks "
                f"({self.format.block} weights each)"
            )
        data = self.held
        if not isinstance(data, Tensor):
            return
        if data.dtype != torch.uint8 or data.numel() != self.nbytes:
            raise ModelError(
                f"a {self.format.name} matrix {self.rows} x {self.cols} takes {self.nbytes} bytes, "
                f"got {data.numel()} of {data.dtype}"
            )

    @property
    def data(self) -> Tensor:
        """uint8 [rows * row_bytes]; when it must be made, made anew each time."""
        return self.held if isinstance(self.held, Tensor) else self.held(torch.arange(self.rows))

    def pick(self, rows: Tensor) -> QTensor:
        """The matrix of these rows (int64 [n]), copied or not made yet."""
        held = self.held
        if isinstance(held, Tensor):
            some: Tensor | MakeRows = held.reshape(self.rows, self.row_bytes)[rows].reshape(-1)
        else:
            some = partial(_made, held, rows)
        return QTensor(some, self.format, rows.numel(), self.cols)

    def cut(self, first: int, count: int) -> QTensor:
        """Rows [first, first + count), not copied."""
        if not isinstance(self.held, Tensor):
            return self.pick(torch.arange(first, first + count))
        size = self.row_bytes
        some = self.held[first * size : (first + count) * size]
        return QTensor(some, self.format, count, self.cols)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.cols // self.format.block * self.format.block_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix."""
        return self.rows * self.row_bytes


def _made(make: MakeRows, rows: Tensor, some: Tensor) -> Tensor:
    return make(rows[some])


def quantised(data: Tensor, number: int, rows: int, cols: int) -> QTensor:
    """A QTensor from a GGML type number; ModelError names an unsupported type."""
    try:
        kind = Format(number)
    except ValueError:
        name = {int(t): t.name for t in gguf.GGMLQuantizationType}.get(number, str(number))
        names = ", ".join(f.name for f in FILE_FORMATS)
        raise ModelError(
            f"weights of GGML type {name} are not supported; supported are {names}"
        ) from None
    return QTensor(data, kind, rows, cols)


def e4m3(b: Tensor) -> Tensor:
    """uint8 -> float32 of any shape: an E4M3 byte is the middle of an f16 that is 256 times less.

    The two patterns of NaN, which no checkpoint has, count as +-480.
    """
    bits = (b.short() & 0x7F) << 7 | (b.short() & 0x80) << 8
    return bits.view(torch.float16).float() * 256


def _f8(b: Tensor) -> Tensor:
    return b[:, :4].contiguous().view(torch.float32) * e4m3(b[:, 4:])


def _i4(b: Tensor) -> Tensor:
    header, pairs = b[:, :4].contiguous().view(torch.int32), b[:, 4:]
    d, z = (header & ~255).view(torch.float32), header & 255
    return d * (torch.cat((pairs & 15, pairs >> 4), dim=1).int() - z).float()


_OWN = {Format.F8: _f8, Format.I4: _i4, Format.E4M3: e4m3}


def dequantise(q: QTensor) -> Tensor:
    """The weights as float32 [rows, cols]."""
    if q.format in _PLAIN:
        own = q.data.contiguous().view(_PLAIN[q.format])
        return own.to(torch.float32, copy=True).reshape(q.rows, q.cols)
    if q.format in _OWN:
        return _OWN[q.format](q.data.view(-1, q.format.block_bytes)).view(q.rows, q.cols)
    rows = q.data.reshape(q.rows, q.row_bytes).numpy()
    with np.errstate(all="ignore"):  # a scale may be anything
        return torch.from_numpy(gguf.dequantize(rows, gguf.GGMLQuantizationType(q.format)))


def dequantise_rows(q: QTensor, rows: Tensor) -> Tensor:
    """Rows `rows` (int64 [n]) of the weights as float32 [n, cols]: an embedding lookup."""
    return dequantise(q.pick(rows))


def matmul_reference(x: Tensor, q: QTensor) -> Tensor:
    """x [n, cols] float32 times the transposed weights: float32 [n, rows]."""
    return x @ dequantise(q).T
