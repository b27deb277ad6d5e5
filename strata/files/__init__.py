"""Model files on disk: GGUF files and Hugging Face folders, seen as one thing.

Knows bytes, names, shapes and metadata; knows no torch, no text and no arithmetic. Tensor data
are read-only views of the mapped file: opening a model reads its headers only. A `ModelFile` never
changes after it was opened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from strata.types import ModelError

# Types that weights may have, and the plain ones that occur beside them.
WEIGHTS = (
    *("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K"),
    *("Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL"),
    *("IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4"),
)
_PLAIN = ("I8", "I16", "I32", "I64", "F64")
_SUPPORTED = ", ".join(WEIGHTS)
# Numbers of GGML types of which quantised tensors of a folder are made, and our own for those that
# GGML has not.
I32, I64, E4M3, U8 = 26, 27, 1002, 1003


@dataclass(frozen=True, slots=True, eq=False)
class TensorEntry:
    """One tensor of a file.

    `format` is the GGML type number, `shape` in C order (rows, cols), `data` the raw bytes:
    one dimension, read-only, mapped, from byte `offset` of `path` on.
    """

    name: str
    format: int
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8] = field(repr=False)
    path: Path
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.data.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class ModelFile:
    """A model on disk.

    kind "gguf": `metadata` maps each key to its python value. kind "folder": `metadata` has
    "config", "generation_config", "tokenizer_config" (dicts, empty where the file is missing)
    and "chat_template" (str or None).
    """

    kind: str
    path: Path
    architecture: str
    metadata: Mapping[str, Any] = field(repr=False)
    tensors: Mapping[str, TensorEntry] = field(repr=False)


def tensor_bytes(name: str, format: int, shape: tuple[int, ...]) -> int:
    """Bytes that a tensor takes. ModelError for a type or a row length that cannot be."""
    label = type_name(format)
    if label not in WEIGHTS + _PLAIN:
        raise ModelError(f"tensor {name!r} has type {label}; supported: {_SUPPORTED}")
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType(format)]
    if (shape[-1] if shape else 1) % block:
        raise ModelError(
            f"tensor {name!r} has rows of {shape[-1]} elements, which {label} cannot hold"
            f" (blocks of {block}): the file is damaged"
        )
    return prod(shape) // block * size


def type_name(format: int) -> str:
    """The name of a GGML type number, for messages; the bare number if unknown."""
    try:
        return GGMLQuantizationType(format).name
    except ValueError:
        return f"number {format}"


def quantisation(file: ModelFile) -> str:
    """The types that hold most of a model's bytes, as "Q4_K 81 %, Q6_K 19 %"."""
    held: Counter[str] = Counter()
    for tensor in file.tensors.values():
        held[type_name(tensor.format)] += tensor.nbytes
    whole = sum(held.values())
    parts = ((name, 100 * count / whole) for name, count in held.most_common(3))
    return ", ".join(f"{name} {part:.0f} %" for name, part in parts if part >= 1)


def map_file(path: Path) -> npt.NDArray[np.uint8]:
    """The bytes of a file, mapped read-only. ModelError when it cannot be opened."""
    try:
        if path.stat().st_size == 0:
            raise ModelError(f"{path} is empty: download it again")
        return np.memmap(path, dtype=np.uint8, mode="r")
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error


def open_model(path: Path) -> ModelFile:
    """Open a GGUF file (any part of a split one) or a Hugging Face folder.

    ModelError says what is wrong and what to do.
    """
    from strata.files import folder, gguf

    path = Path(path)
    if not path.exists():
        raise ModelError(f"there is no model at {path}: give a GGUF file or a Hugging Face folder")
    if path.is_dir():
        return folder.open_folder(path)
    if path.suffix == ".safetensors":
        raise ModelError(f"{path} holds weights only: give its folder, {path.parent}")
    return gguf.open_gguf(path)
