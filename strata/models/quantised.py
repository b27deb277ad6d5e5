"""Quantised checkpoints in safetensors: FP8, int4 and MXFP4 as they are published.

There a quantised matrix is several tensors. `joined` makes one of them, whose rows become a
format of strata.kernels.quant when they are asked for: bits move, and no value is rounded. What
no such format holds (rows of no whole number of blocks, groups below 32, scales of more than 16
significant bits) becomes float32.

Int4 is in strata.models.int4. Of X.weight [rows, cols], or a stack X of such matrices, there are:

FP8     `X.weight` E4M3 and `X.weight_scale_inv` or `X.weight_scale`: one value, one a row, or
        one a block (`weight_block_size`; the last ones may be smaller)
MXFP4   `X_blocks` u8 [..., rows, cols / 32, 16] and `X_scales` u8 (as gpt-oss has them), or
        `X.weight_packed` u8 [rows, cols / 2] and `X.weight_scale` u8 (compressed-tensors):
        E2M1, the first weight in a byte's low half; scales 2^(byte - 127)

Scales of activations are left: activations are not rounded to 8 bits here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from strata.files import E4M3, I32, U8, ModelFile, TensorEntry
from strata.kernels.quant import Format, e4m3
from strata.models import int4
from strata.models.config_hf import text_part
from strata.models.converted import Converted, converted, floats, nibbles, raw, refuse, run, take
from strata.types import ModelError

_METHODS = ("fp8", "fbgemm_fp8", "mxfp4", "gptq", "awq", "auto-round", "compressed-tensors")
_LEFT = ("input_scale", "activation_scale", ".k_scale", ".v_scale", ".q_scale")


def joined(file: ModelFile) -> ModelFile:
    """The file with one tensor for each quantised matrix of a folder. Raises ModelError for what
    is quantised in another way.
    """
    if file.kind != "folder":
        return file
    config = text_part(file).get("quantization_config") or {}
    method = config.get("quant_method")
    if config and method not in _METHODS:
        raise ModelError(
            f"the checkpoint is quantised with {method}; from safetensors Strata reads"
            f" {', '.join(_METHODS)}, F32, F16 and BF16: take another file of this model"
        )
    left = dict(file.tensors)
    if config:
        left = {name: entry for name, entry in left.items() if not name.endswith(_LEFT)}
    made: dict[str, TensorEntry] = {}
    ints: dict[str, int4.Matrix] = {}
    for name, entry in file.tensors.items():
        if name not in left:
            continue  # a part of another
        base = name.removesuffix("_packed").removesuffix("_blocks")
        if entry.format == E4M3 and ".ngram_embedding." in name:
            continue  # read by the row, where it lies; its scale is the family's affair
        if entry.format == E4M3:
            made[name] = _fp8(left, entry, _block(config))
        elif base != name and entry.format == U8:
            made[base] = _mxfp4(left, entry, base)
        elif entry.format == I32 and name.endswith((".qweight", ".weight_packed")):
            base = name.rpartition(".")[0] + ".weight"
            ints[base] = int4.take_matrix(left, base, config)
    return replace(file, tensors=left | made | int4.converted_all(ints))


def _block(config: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and columns of a block of FP8 weights with one scale."""
    size = config.get("weight_block_size")
    for group in (config.get("config_groups") or {}).values():
        size = size or (group.get("weights") or {}).get("block_structure")
    rows, cols = size or (128, 128)
    return int(rows), int(cols)


def _fp8(left: dict[str, TensorEntry], entry: TensorEntry, block: tuple[int, int]) -> Converted:
    name = entry.name
    suffix = next((end for end in ("_scale_inv", "_scale") if name + end in left), "_scale_inv")
    scale = take(left, name + suffix, name)
    *lead, rows, cols = entry.shape
    height, width, across = _grid(scale, prod(lead), rows, cols, block)
    down = -(-rows // height)
    kind = Format.F32 if cols % 128 or (across > 1 and width % 128) else Format.F8

    def make(chosen: Tensor) -> Tensor:
        weights = raw(entry).view(-1, cols)[run(chosen)]
        at = chosen // rows * down + chosen % rows // height
        scales = floats(scale).view(-1, across)[at]
        if kind is Format.F32:
            whole = e4m3(weights) * scales.repeat_interleave(width, 1)[:, :cols]
            return whole.view(torch.uint8).flatten()
        scales = scales.repeat_interleave(-(-width // 128), 1)[:, : cols // 128, None]
        out = torch.empty(len(weights), cols // 128, 132, dtype=torch.uint8)
        out[..., :4] = scales.contiguous().view(torch.uint8)
        out[..., 4:] = weights.view(len(weights), -1, 128)
        return out.flatten()

    return converted(entry, name, kind, entry.shape, make)


def _grid(
    scale: TensorEntry, count: int, rows: int, cols: int, block: tuple[int, int]
) -> tuple[int, int, int]:
    """Rows and columns that share a scale, and scales across, for `count` matrices."""
    height, width = block
    down, across = -(-rows // height), -(-cols // width)
    if scale.shape[-2:] == (down, across) and prod(scale.shape) == count * down * across:
        return height, width, across
    if prod(scale.shape) == count:
        return rows, cols, 1
    if prod(scale.shape) == count * rows and rows in scale.shape[-2:]:
        return 1, cols, 1
    raise refuse(scale.name, scale.shape)


def _mxfp4(left: dict[str, TensorEntry], entry: TensorEntry, base: str) -> Converted:
    left.pop(entry.name)
    both = entry.name.endswith("_blocks")
    scale = take(left, f"{base}_scales" if both else f"{base}_scale", base)
    shape = (*entry.shape[:-2], entry.shape[-2] * 32) if both else ()
    shape = shape or (*entry.shape[:-1], entry.shape[-1] * 2)
    blocks = shape[-1] // 32
    if scale.format != U8 or scale.shape != (*shape[:-1], blocks) or shape[-1] % 32:
        raise refuse(scale.name, scale.shape)

    def make(chosen: Tensor) -> Tensor:
        some = run(chosen)
        scales = raw(scale).view(-1, blocks, 1)[some]
        weights = raw(entry).view(-1, blocks * 16)[some]
        return torch.cat((scales, nibbles(weights)), dim=2).flatten()

    return converted(entry, base, Format.MXFP4, shape, make)
