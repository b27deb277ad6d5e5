"""Converted: a matrix that several tensors of a checkpoint make up, and what reading them takes.

Knows no checkpoint's layout. Nothing is converted before its rows are asked for.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from torch import Tensor

from strata.files import TensorEntry
from strata.kernels.quant import Format, MakeRows, QTensor, dequantise, quantised
from strata.types import ModelError


@dataclass(frozen=True, slots=True, eq=False)
class Converted(TensorEntry):
    """A matrix or a stack of them, in place of the tensor of its weights (the rest of the entry).

    `format` is what `make` makes of the rows; those of a stack count on from matrix to matrix.
    """

    make: MakeRows

    @property
    def nbytes(self) -> int:
        """Bytes once converted."""
        kind = Format(self.format)
        return prod(self.shape) // kind.block * kind.block_bytes


def converted(
    entry: TensorEntry, name: str, kind: Format, shape: tuple[int, ...], make: MakeRows
) -> Converted:
    """The matrix `name` in place of `entry`."""
    return Converted(name, int(kind), shape, entry.data, entry.path, entry.offset, make)


def take(tensors: dict[str, TensorEntry], name: str, of: str) -> TensorEntry:
    """Removes a tensor that is a part of another. Raises ModelError."""
    entry = tensors.pop(name, None)
    if entry is None:
        raise ModelError(f"the quantised tensor {of!r} lacks {name!r}: it is damaged")
    return entry


def refuse(name: str, shape: tuple[int, ...]) -> ModelError:
    """That the parts of a tensor do not fit each other."""
    return ModelError(f"tensor {name!r} of the shape {shape} does not fit the others of its matrix")


def raw(entry: TensorEntry) -> Tensor:
    """The bytes, uint8, without a copy. torch warns of read-only memory: nobody writes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(np.asarray(entry.data))


def matrix(entry: TensorEntry, rows: int, cols: int) -> QTensor:
    """The tensor as a matrix, not copied. Raises ModelError."""
    if isinstance(entry, Converted):
        return QTensor(entry.make, Format(entry.format), rows, cols)
    try:
        return quantised(raw(entry), entry.format, rows, cols)
    except ModelError as error:
        raise ModelError(f"tensor {entry.name!r}: {error}") from error


def floats(entry: TensorEntry) -> Tensor:
    """A plain tensor as float32 of its shape. Raises ModelError."""
    return dequantise(matrix(entry, 1, prod(entry.shape))).view(entry.shape)


def run(rows: Tensor) -> slice | Tensor:
    """Row numbers as a slice where they follow each other, which then are not copied."""
    first, count = int(rows[0]), len(rows)
    if torch.equal(rows, torch.arange(first, first + count)):
        return slice(first, first + count)
    return rows


def unpacked(data: Tensor) -> Tensor:
    """uint8 [n, m] -> [n, 2 m]: low halves of the bytes, each followed by the high one."""
    return torch.stack((data & 15, data >> 4), dim=-1).flatten(1)


def nibbles(data: Tensor) -> Tensor:
    """Four bits a weight, in order from the low half of each byte: uint8 [n, cols / 2] ->
    [n, cols / 32, 16], of which byte i has weights i and i + 16 of the block, as GGML has them.
    """
    first, second = data.view(len(data), -1, 2, 8).unbind(2)
    even, odd = first & 15 | second << 4, first >> 4 | second & 0xF0
    return torch.stack((even, odd), dim=-1).flatten(2)
