"""Weights: the tensors of a file under the names the model files use.

A family's name table maps its own short names to GGUF and Hugging Face ones.
Nothing is copied: matrices are views of the mapped file. Every tensor that is
taken is noted, so that `finish` can tell of tensors nobody asked for: those
would change the arithmetic if the model were complete.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping

import numpy as np
import torch
from torch import Tensor

from strata.files import ModelFile, TensorEntry
from strata.kernels.quant import QTensor, dequantise, quantised
from strata.types import ModelError

# short name -> (GGUF name, Hugging Face name); {} stands for the layer's number
Names = Mapping[str, tuple[str, str]]

# Not weights: the first is read with the config, the second is recomputed by everyone.
_IGNORED = ("rope_freqs.weight", ".rotary_emb.inv_freq")


class Weights:
    """Tensors of `file` by short name; counts what was taken."""

    def __init__(self, file: ModelFile, names: Names) -> None:
        self.file = file
        self.nbytes = 0
        self._column = 0 if file.kind == "gguf" else 1
        self._names = names
        self._taken: set[str] = set()

    def name(self, short: str, layer: int | None = None) -> str:
        """The file's name of a tensor."""
        return self._names[short][self._column].format(layer)

    def has(self, short: str, layer: int | None = None) -> bool:
        """Whether the file has the tensor."""
        return self.name(short, layer) in self.file.tensors

    def matrix(self, short: str, layer: int | None, rows: int, cols: int) -> QTensor:
        """A weight matrix as it is stored. ModelError when missing or of another shape."""
        entry = self._take(short, layer, (rows, cols))
        try:
            return quantised(_tensor(entry), entry.format, rows, cols)
        except ModelError as error:
            raise ModelError(f"tensor {entry.name!r}: {error}") from error

    def vector(self, short: str, layer: int | None, size: int) -> Tensor:
        """A vector as float32 [size]. ModelError when missing or of another shape."""
        entry = self._take(short, layer, (size,))
        try:
            whole = quantised(_tensor(entry), entry.format, 1, size)
        except ModelError as error:
            raise ModelError(f"tensor {entry.name!r}: {error}") from error
        return dequantise(whole).reshape(size)

    def finish(self, unused: Collection[str] = ()) -> None:
        """Complain of tensors that nobody took, except those named in `unused`."""
        left = self.file.tensors.keys() - self._taken - set(unused)
        left = {name for name in left if not name.endswith(_IGNORED)}
        if left:
            some = ", ".join(sorted(left)[:4]) + (", ..." if len(left) > 4 else "")
            raise ModelError(
                f"{self.file.path} has {len(left)} tensors that the architecture"
                f" {self.file.architecture} does not use here: {some}"
            )

    def _take(self, short: str, layer: int | None, shape: tuple[int, ...]) -> TensorEntry:
        name = self.name(short, layer)
        entry = self.file.tensors.get(name)
        if entry is None:
            raise ModelError(f"{self.file.path} has no tensor {name!r}: it is not complete")
        if entry.shape != shape:
            raise ModelError(f"tensor {name!r} has the shape {entry.shape}, not {shape}")
        if name not in self._taken:
            self._taken.add(name)
            self.nbytes += entry.data.nbytes
        return entry


def _tensor(entry: TensorEntry) -> Tensor:
    """The bytes as a tensor, without a copy. torch warns of read-only memory: nobody writes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(np.asarray(entry.data))
