"""Int4 as GPTQ, AWQ and compressed-tensors publish it: weight = scale (q - zero), q of four bits.

A scale and a zero serve `group` neighbours of a row. Eight q are in an int32, bits 4 i .. 4 i + 3
of which are said to be its place i. Tensors of X.weight [rows, cols]:

GPTQ    qweight [cols / 8, rows]: place i has row 8 j + i of the transposed matrix; qzeros
        [groups, rows / 8], less one unless `checkpoint_format` is gptq_v2; scales [groups, rows];
        g_idx [cols], the group of each column
AWQ     qweight [cols, rows / 8], qzeros [groups, rows / 8]: the rows 0 2 4 6 1 3 5 7 of eight are
        in places 0 to 7; scales [groups, rows]
compressed-tensors   weight_packed [rows, cols / 8]; weight_scale [rows, groups]; where zeros are
        not all 8, weight_zero_point [rows / 8, groups]; weight_shape

Rows become Q4_0 where all zeros are 8, else I4.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from strata.files import I32, I64, TensorEntry
from strata.kernels.quant import Format
from strata.models.converted import (
    Converted,
    converted,
    floats,
    nibbles,
    raw,
    refuse,
    run,
    take,
    unpacked,
)
from strata.types import ModelError

_AWQ_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]  # of rows 0 to 7


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """One matrix. The functions take row numbers, int64 [n].

    weights: uint8 [n, cols / 2], the first of two in a byte's low half. scales: float32, zeros:
    int32, both [n, groups].
    """

    entry: TensorEntry
    rows: int
    cols: int
    groups: int
    weights: Callable[[Tensor], Tensor]
    scales: Callable[[Tensor], Tensor]
    zeros: Callable[[Tensor], Tensor]

    @property
    def group(self) -> int:
        """Weights of a row that share a scale."""
        return self.cols // self.groups


def take_matrix(left: dict[str, TensorEntry], name: str, config: Mapping[str, Any]) -> Matrix:
    """Takes the tensors of the matrix `name` from `left`. Raises ModelError."""
    method, stem = config.get("quant_method"), name.removesuffix("weight")
    if method == "compressed-tensors":
        return _compressed(left, name)
    bits = config.get("bits", config.get("w_bit"))
    if bits != 4:
        raise ModelError(f"weights of {bits} bits ({method}) are not supported; of 4 bits they are")
    layout = config.get("packing_format") if method == "auto-round" else method
    part = {end: take(left, stem + end, name) for end in ("qweight", "qzeros", "scales")}
    if layout in ("gptq", "auto_round:auto_gptq"):
        order = left.pop(stem + "g_idx", None)
        older = config.get("checkpoint_format", "gptq") == "gptq"
        return _gptq(part, order, older)
    if layout not in ("awq", "auto_round:auto_awq") or config.get("version", "gemm") != "gemm":
        raise ModelError(f"{name!r}: {method} with {layout}, {config.get('version')} is not read")
    return _awq(part)


def converted_all(matrices: Mapping[str, Matrix]) -> dict[str, Converted]:
    """Each matrix in the narrowest format that holds it and the same matrices of its layer's other
    experts, which must all have one.
    """
    kinds: dict[str, list[Format]] = defaultdict(list)
    likes = {name: re.sub(r"\.experts\.\d+\.", ".experts.", name) for name in matrices}
    for name, m in matrices.items():
        kinds[likes[name]].append(_narrowest(m))
    widest = {like: max(all_, key=_WIDER.index) for like, all_ in kinds.items()}
    return {
        name: converted(m.entry, name, kind, (m.rows, m.cols), partial(_make, m, kind))
        for name, m in matrices.items()
        for kind in [widest[likes[name]]]
    }


# ------------------------------------------------------------------ layouts


def _gptq(part: Mapping[str, TensorEntry], order: TensorEntry | None, older: bool) -> Matrix:
    entry, (groups, rows) = part["qweight"], part["scales"].shape
    cols = entry.shape[0] * 8
    _check(part, groups, rows, cols, entry.shape == (cols // 8, rows))
    if order is not None and order.data.size:
        usual = torch.arange(cols, dtype=torch.int32) // (cols // groups)
        if not torch.equal(_words(order).flatten(), usual):
            raise ModelError(
                f"tensor {order.name!r} gives columns to groups in an order of their own"
                " (desc_act), which is not supported: take a checkpoint without desc_act"
            )
    return Matrix(
        entry, rows, cols, groups,
        lambda some: _words(entry)[:, run(some)].T.contiguous().view(torch.uint8),
        lambda some: floats(part["scales"])[:, run(some)].T,
        lambda some: _places(part["qzeros"])[:, run(some)].T.int() + int(older),
    )  # fmt: skip


def _awq(part: Mapping[str, TensorEntry]) -> Matrix:
    entry, (groups, rows) = part["qweight"], part["scales"].shape
    cols = entry.shape[0]
    _check(part, groups, rows, cols, entry.shape == (cols, rows // 8))

    def weights(some: Tensor) -> Tensor:
        whole = _places(entry, _AWQ_PLACES)[:, run(some)].T
        return whole[:, ::2] | whole[:, 1::2] << 4

    return Matrix(
        entry, rows, cols, groups, weights,
        lambda some: floats(part["scales"])[:, run(some)].T,
        lambda some: _places(part["qzeros"], _AWQ_PLACES)[:, run(some)].T.int(),
    )  # fmt: skip


def _compressed(left: dict[str, TensorEntry], name: str) -> Matrix:
    entry, scale = (take(left, name + end, name) for end in ("_packed", "_scale"))
    size = take(left, name + "_shape", name)
    if size.format not in (I32, I64) or size.shape != (2,):
        raise refuse(size.name, size.shape)
    rows, cols = raw(size).view(torch.int64 if size.format == I64 else torch.int32).tolist()
    groups = scale.shape[-1]
    if entry.shape != (rows, cols // 8) or cols % 8:
        raise ModelError(f"tensor {name!r}: packed weights of other than 4 bits are not supported")
    if scale.shape != (rows, groups) or cols % groups:
        raise refuse(scale.name, scale.shape)
    if name + "_g_idx" in left:
        raise ModelError(f"{name!r} has an order of columns (actorder), which is not supported")
    zero = left.pop(name + "_zero_point", None)
    if zero is not None and zero.shape != (-(-rows // 8), groups):
        raise refuse(zero.name, zero.shape)

    def zeros(some: Tensor) -> Tensor:
        if zero is None:
            return torch.full((len(some), groups), 8, dtype=torch.int32)
        down = _words(zero).T.contiguous().view(torch.uint8)
        return unpacked(down)[:, run(some)].T.int()

    return Matrix(
        entry, rows, cols, groups,
        lambda some: _words(entry)[run(some)].contiguous().view(torch.uint8),
        lambda some: floats(scale)[run(some)],
        zeros,
    )  # fmt: skip


def _check(
    part: Mapping[str, TensorEntry], groups: int, rows: int, cols: int, packed: bool
) -> None:
    zeros = part["qzeros"]
    if not packed:
        raise refuse(part["qweight"].name, part["qweight"].shape)
    if zeros.shape != (groups, rows // 8) or zeros.format != I32 or rows % 8 or cols % groups:
        raise refuse(zeros.name, zeros.shape)


def _words(entry: TensorEntry) -> Tensor:
    if entry.format != I32:
        raise refuse(entry.name, entry.shape)
    return raw(entry).view(torch.int32).view(entry.shape)


def _places(entry: TensorEntry, order: list[int] | None = None) -> Tensor:
    """int32 [n, m] -> uint8 [n, 8 m]: of each word the places in order, or in this order."""
    bits = unpacked(_words(entry).view(torch.uint8))
    if order is None:
        return bits
    return bits.view(len(bits), -1, 8)[:, :, order].flatten(1)


# ------------------------------------------------------------------ rows

_WIDER = [Format.Q4_0, Format.I4, Format.F32]


def _narrowest(m: Matrix) -> Format:
    every = torch.arange(m.rows)
    scales = m.scales(every)
    if m.cols % 32 or m.group % 32 or (scales.contiguous().view(torch.int32) & 255).any():
        return Format.F32
    if bool((m.zeros(every) == 8).all()) and torch.equal(scales.half().float(), scales):
        return Format.Q4_0
    return Format.I4


def _make(m: Matrix, kind: Format, rows: Tensor) -> Tensor:
    scales, zeros, weights = m.scales(rows), m.zeros(rows), m.weights(rows)
    if kind is Format.F32:
        scales, zeros = (x.repeat_interleave(m.group, 1) for x in (scales, zeros))
        whole = scales * (unpacked(weights).int() - zeros).float()
        return whole.contiguous().view(torch.uint8).flatten()
    if kind is Format.Q4_0:
        head = scales.half().unsqueeze(-1)
    else:
        head = (scales.contiguous().view(torch.int32) | zeros).unsqueeze(-1)
    head = head.contiguous().view(torch.uint8).repeat_interleave(m.group // 32, 1)
    return torch.cat((head, nibbles(weights)), dim=2).flatten()
