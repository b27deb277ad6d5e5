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

from strata.files import ModelFile
from strata.kernels.quant import QTensor, dequantise, quantised
from strata.types import ModelError

# short name -> (GGUF name, Hugging Face name); {} stands for the layer's number
Names = Mapping[str, tuple[str, str]]

# Not weights: the first is read with the config, the second is recomputed by everyone.
_IGNORED = ("rope_freqs.weight", ".rotary_emb.inv_freq")


class Weights:
    """Tensors of `file` by short name; counts what was taken."""

    def __init__(self, file: ModelFile, names: Names) -> None:
        self.gguf = file.kind == "gguf"
        self.nbytes = 0
        self._file = file
        self._names = names
        self._taken: set[str] = set()

    def name(self, short: str, layer: int | None = None) -> str:
        """The file's name of a tensor."""
        return self._names[short][not self.gguf].format(layer)

    def has(self, short: str, layer: int | None = None) -> bool:
        """Whether the file has the tensor."""
        return self.name(short, layer) in self._file.tensors

    def matrix(self, short: str, layer: int | None, rows: int, cols: int) -> QTensor:
        """A weight matrix as it is stored. ModelError when missing or of another shape."""
        return self._take(short, layer, (rows, cols))

    def vector(self, short: str, layer: int | None, size: int) -> Tensor:
        """A vector as float32 [size]. ModelError when missing or of another shape."""
        return dequantise(self._take(short, layer, (size,))).reshape(size)

    def finish(self, unused: Collection[str] = ()) -> None:
        """Complain of tensors that nobody took, except those named in `unused`."""
        left = self._file.tensors.keys() - self._taken - set(unused)
        left = {name for name in left if not name.endswith(_IGNORED)}
        if left:
            some = ", ".join(sorted(left)[:4]) + (", ..." if len(left) > 4 else "")
            raise ModelError(
                f"{self._file.path} has {len(left)} tensors that the architecture"
                f" {self._file.architecture} does not use here: {some}"
            )

    def _take(self, short: str, layer: int | None, shape: tuple[int, ...]) -> QTensor:
        name = self.name(short, layer)
        entry = self._file.tensors.get(name)
        if entry is None:
            raise ModelError(f"{self._file.path} has no tensor {name!r}: it is not complete")
        if entry.shape != shape:
            raise ModelError(f"tensor {name!r} has the shape {entry.shape}, not {shape}")
        if name not in self._taken:
            self._taken.add(name)
            self.nbytes += entry.data.nbytes
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of read-only memory: nobody writes
            data = torch.from_numpy(np.asarray(entry.data))
        try:
            return quantised(data, entry.format, *(1, *shape)[-2:])
        except ModelError as error:
            raise ModelError(f"tensor {name!r}: {error}") from error
