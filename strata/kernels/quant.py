"""Quantised weights as GGUF stores them: formats, dequantisation, reference product.

Knows the block layouts of the supported GGML types and nothing of the native
kernels, which are tested against this module. Layouts are those of the GGML
sources (`ggml-common.h`) and of the `gguf` package's `quants.py`, whose
`dequantize` every function here matches bit for bit. All values little-endian.

A row of `cols` weights is `cols / block` consecutive blocks; rows follow each
other without padding. Blocks (f16 = IEEE half, d = scale, m = minimum):

=====  ======  ===========================================  ====================
type   block   bytes                                        weight i
=====  ======  ===========================================  ====================
F32    1       f32                                          as it is
F16    1       f16                                          as it is
BF16   1       upper half of an f32                         as it is
Q8_0   32      f16 d; int8 q[32]                            d q
Q4_0   32      f16 d; nibbles[16]                           d (q - 8)
Q4_1   32      f16 d, m; nibbles[16]                        d q + m
Q5_0   32      f16 d; bits[4]; nibbles[16]                  d (q - 16)
Q5_1   32      f16 d, m; bits[4]; nibbles[16]               d q + m
Q4_K   256     f16 d, dmin; 6-bit pairs[12]; nibbles[128]   d s q - dmin t
Q5_K   256     f16 d, dmin; 6-bit pairs[12]; bits[32];      d s q - dmin t
               nibbles[128]
Q6_K   256     nibbles[128]; 2-bit pairs[64]; int8 s[16];   d s (q - 32)
               f16 d
MXFP4  32      u8 e; nibbles[16], each an E2M1             2^(e - 127) E2M1
F8     128     f32 d; E4M3 q[128]                           d q
I4     32      u32: upper 24 bits of d as f32, u8 z;        d (q - z)
               nibbles[16]
=====  ======  ===========================================  ====================

F8 and I4 are in no file: checkpoints of other layouts become them without loss
(`strata.models.quantised`). The upper 24 bits of a float32 hold any f16 or bf16.

Blocks of 32: byte i holds weight i in its low and weight i + 16 in its high
nibble; bit i of `bits` is the fifth bit of weight i. Q4_K and Q5_K: eight
sub-blocks of 32, each with a 6-bit scale s and minimum t; byte i of each run of
32 holds weight i of an even sub-block (low) and of the next one (high); bit b of
`bits[i]` is the fifth bit of weight i of sub-block b. Q6_K: sixteen sub-blocks
of 16; see `_q6_k`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

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
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    BF16 = 30
    MXFP4 = 39
    F8 = 1000
    I4 = 1001

    @property
    def block(self) -> int:
        """Weights in a block; a row is a whole number of blocks."""
        return _BLOCKS[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return _BLOCKS[self][1]


_BLOCKS = {
    Format.F32: (1, 4),
    Format.F16: (1, 2),
    Format.BF16: (1, 2),
    Format.Q8_0: (32, 34),
    Format.Q4_0: (32, 18),
    Format.Q4_1: (32, 20),
    Format.Q5_0: (32, 22),
    Format.Q5_1: (32, 24),
    Format.Q4_K: (256, 144),
    Format.Q5_K: (256, 176),
    Format.Q6_K: (256, 210),
    Format.MXFP4: (32, 17),
    Format.F8: (128, 132),
    Format.I4: (32, 20),
}
# The Formats that files have.
FILE_FORMATS = tuple(kind for kind in Format if kind < 1000)

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
        names = ", ".join(f.name for f in FILE_FORMATS)
        raise ModelError(
            f"weights of GGML type {number} are not supported; supported are {names}"
        ) from None
    return QTensor(data, kind, rows, cols)


def dequantise(q: QTensor) -> Tensor:
    """The weights as float32 [rows, cols]."""
    blocks = q.data.reshape(-1, q.format.block_bytes)
    return _DEQUANTISE[q.format](blocks).reshape(q.rows, q.cols)


def dequantise_rows(q: QTensor, rows: Tensor) -> Tensor:
    """Rows `rows` (int64 [n]) of the weights as float32 [n, cols]: an embedding lookup."""
    return dequantise(q.pick(rows))


def matmul_reference(x: Tensor, q: QTensor) -> Tensor:
    """x [n, cols] float32 times the transposed weights: float32 [n, rows]."""
    return x @ dequantise(q).T


# ------------------------------------------------------------------ blocks
# Each takes uint8 [blocks, bytes] and returns float32 [blocks, weights].


def _half(data: Tensor) -> Tensor:
    """uint8 [..., 2 n] read as f16 -> float32 [..., n]."""
    return data.contiguous().view(torch.float16).float()


def _nibbles(data: Tensor, run: int) -> Tensor:
    """uint8 [b, n] -> [b, 2 n]: of each run of bytes, all low nibbles, then all high ones."""
    b = data.reshape(data.shape[0], -1, 1, run)
    return torch.cat((b & 15, b >> 4), dim=2).reshape(data.shape[0], -1)


def _fifth_bits(data: Tensor) -> Tensor:
    """uint8 [b, 4] -> [b, 32]: bit i of the 32-bit word, in place 4."""
    shifts = torch.arange(8, dtype=torch.uint8)
    bits = (data.unsqueeze(-1) >> shifts) & 1
    return bits.reshape(-1, 32) << 4


def _f32(b: Tensor) -> Tensor:
    return b.contiguous().view(torch.float32).clone()


def _f16(b: Tensor) -> Tensor:
    return _half(b)


def _bf16(b: Tensor) -> Tensor:
    return b.contiguous().view(torch.bfloat16).float()


def _q8_0(b: Tensor) -> Tensor:
    return b[:, 2:].contiguous().view(torch.int8).float() * _half(b[:, :2])


def _q4_0(b: Tensor) -> Tensor:
    return _half(b[:, :2]) * (_nibbles(b[:, 2:], 16).float() - 8)


def _q4_1(b: Tensor) -> Tensor:
    return _half(b[:, :2]) * _nibbles(b[:, 4:], 16).float() + _half(b[:, 2:4])


def _q5_0(b: Tensor) -> Tensor:
    q = _nibbles(b[:, 6:], 16) | _fifth_bits(b[:, 2:6])
    return _half(b[:, :2]) * (q.float() - 16)


def _q5_1(b: Tensor) -> Tensor:
    q = _nibbles(b[:, 8:], 16) | _fifth_bits(b[:, 4:8])
    return _half(b[:, :2]) * q.float() + _half(b[:, 2:4])


def _sub_scales(b: Tensor) -> tuple[Tensor, Tensor]:
    """The header of Q4_K and Q5_K -> scales and minima of the 8 sub-blocks, [b, 8, 1].

    Bytes 0-3 and 4-7 hold s and t of sub-blocks 0-3 in their low six bits; bytes
    8-11 the low nibbles of s (low) and t (high) of sub-blocks 4-7, whose upper two
    bits are the upper bits of bytes 0-3 and 4-7.
    """
    low, mid, high = b[:, 4:8], b[:, 8:12], b[:, 12:16]
    s = torch.cat((low & 63, (high & 15) | ((low >> 6) << 4)), dim=1)
    t = torch.cat((mid & 63, (high >> 4) | ((mid >> 6) << 4)), dim=1)
    scales = (_half(b[:, :2]) * s.float()).unsqueeze(-1)
    minima = (_half(b[:, 2:4]) * t.float()).unsqueeze(-1)
    return scales, minima


def _q4_k(b: Tensor) -> Tensor:
    scales, minima = _sub_scales(b)
    q = _nibbles(b[:, 16:], 32).reshape(-1, 8, 32)
    return scales * q.float() - minima


def _q5_k(b: Tensor) -> Tensor:
    scales, minima = _sub_scales(b)
    shifts = torch.arange(8, dtype=torch.uint8).reshape(1, 8, 1)
    high = ((b[:, 16:48].unsqueeze(1) >> shifts) & 1) << 4
    q = _nibbles(b[:, 48:], 32).reshape(-1, 8, 32) | high
    return scales * q.float() - minima


def _q6_k(b: Tensor) -> Tensor:
    """Two halves of 128 weights; of each, nibbles[64] and bits[32].

    Weight 32 g + l of a half (g = 0..3, l = 0..31): low four bits in nibble
    byte 32 (g % 2) + l, high nibble when g >= 2; upper two bits in bits 2 g and
    2 g + 1 of byte l.
    """
    low = _nibbles(b[:, :128], 64).reshape(-1, 2, 4, 32)
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8).reshape(1, 1, 4, 1)
    high = ((b[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3) << 4
    q = (low | high).reshape(-1, 16, 16).float() - 32
    s = b[:, 192:208].contiguous().view(torch.int8).float()
    return (_half(b[:, 208:]) * s).unsqueeze(-1) * q


def _mxfp4(b: Tensor) -> Tensor:
    values = torch.tensor([0.0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])  # doubled
    return torch.ldexp(values[_nibbles(b[:, 1:], 16).long()], b[:, :1].int() - 128)


def e4m3(b: Tensor) -> Tensor:
    """uint8 -> float32 of any shape: an E4M3 byte is the middle of an f16 that is 256 times less.

    The two patterns of NaN, which no checkpoint has, count as +-480.
    """
    bits = (b.short() & 0x7F) << 7 | (b.short() & 0x80) << 8
    return bits.view(torch.float16).float() * 256


def _f8(b: Tensor) -> Tensor:
    return _f32(b[:, :4]) * e4m3(b[:, 4:])


def _i4(b: Tensor) -> Tensor:
    header = b[:, :4].contiguous().view(torch.int32)
    d, z = (header & ~255).view(torch.float32), header & 255
    return d * (_nibbles(b[:, 4:], 16).int() - z).float()


_DEQUANTISE: dict[Format, Callable[[Tensor], Tensor]] = {
    Format.F32: _f32,
    Format.F16: _f16,
    Format.BF16: _bf16,
    Format.Q8_0: _q8_0,
    Format.Q4_0: _q4_0,
    Format.Q4_1: _q4_1,
    Format.Q5_0: _q5_0,
    Format.Q5_1: _q5_1,
    Format.Q4_K: _q4_k,
    Format.Q5_K: _q5_k,
    Format.Q6_K: _q6_k,
    Format.MXFP4: _mxfp4,
    Format.F8: _f8,
    Format.I4: _i4,
}
