"""Weights: the tensors of a file under the names the model files use.

A family's name table maps its own short names to GGUF and Hugging Face ones. Nothing is copied:
matrices are views of the mapped file, or made of it when they are used. Every tensor that is taken
is noted, so that `finish` can tell of tensors nobody asked for: those would change the arithmetic
if the model were complete.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from math import prod

import numpy as np
from torch import Tensor

from strata.files import I64, ModelFile, TensorEntry
from strata.kernels.quant import QTensor, dequantise
from strata.memory.row_reader import TablePart
from strata.models.converted import Converted, matrix
from strata.types import ModelError

_log = logging.getLogger(__name__)

# short name -> (GGUF name, Hugging Face name); {} stands for the layer's number, a second {} for
# that of an expert or a part of a table
Names = Mapping[str, tuple[str, str]]

# Not weights: the first is read with the config, the second is recomputed by everyone.
_IGNORED = ("rope_freqs.weight", ".rotary_emb.inv_freq")
_OUTER, _INNER = "model.", "model.language_model."  # of Hugging Face names


class Weights:
    """Tensors of `file` by short name; counts what was taken: `nbytes` of all of it, of which
    `expert_nbytes` of routed experts.
    """

    def __init__(
        self,
        file: ModelFile,
        names: Names,
        *,
        centred: Collection[str] = (),
        ignored: Mapping[str, str] | None = None,
    ) -> None:
        """`centred` are the short names of norms that a Hugging Face checkpoint stores less one.
        `ignored` maps beginnings of names to what those tensors are, which nobody needs.
        """
        self.file = file
        self.nbytes = self.expert_nbytes = 0
        self._column = 0 if file.kind == "gguf" else 1
        self._names = names
        self._centred = frozenset(centred if file.kind == "folder" else ())
        self._ignored = ignored or {}
        self._nested = any(name.startswith(_INNER) for name in file.tensors)
        self._taken: set[str] = set()

    def name(self, short: str, layer: int | None = None, part: int = 0) -> str:
        """The file's name of a tensor, of which a multimodal checkpoint has a longer form."""
        name = self._names[short][self._column].format(layer, part)
        if self._nested and name.startswith(_OUTER):
            return _INNER + name.removeprefix(_OUTER)
        return name

    def has(self, short: str, layer: int | None = None) -> bool:
        """Whether the file has the tensor (the first one, where it comes in parts)."""
        return short in self._names and self.name(short, layer) in self.file.tensors

    def matrix(self, short: str, layer: int | None, rows: int, cols: int, part: int = 0) -> QTensor:
        """A weight matrix as it is stored. ModelError when missing or of another shape."""
        return matrix(self._take(short, layer, (rows, cols), part), rows, cols)

    def stack(
        self, short: str, layer: int | None, count: int, rows: int, cols: int
    ) -> list[QTensor]:
        """`count` experts' matrices: tensors of their own when the name has a place for their
        number, else parts of one tensor [count, rows, cols], not copied either. They count as
        `expert_nbytes` besides.
        """
        before = self.nbytes
        if self._numbered(short):
            parts = [self.matrix(short, layer, rows, cols, part) for part in range(count)]
        else:
            whole = matrix(self._take(short, layer, (count, rows, cols)), count * rows, cols)
            parts = [whole.cut(i * rows, rows) for i in range(count)]
        self.expert_nbytes += self.nbytes - before
        return parts

    def table(
        self, short: str, layer: int | None, cols: int
    ) -> tuple[list[QTensor], tuple[TablePart, ...]]:
        """A matrix of any number of rows, or several that follow each other, when the name has a
        place for a number; and where they lie. To be read there: it does not count as memory.
        """
        matrices: list[QTensor] = []
        parts: list[TablePart] = []
        before = self.nbytes
        while (entry := self.file.tensors.get(self.name(short, layer, len(parts)))) is not None:
            if isinstance(entry, Converted):
                raise ModelError(f"the table {entry.name!r} is quantised, which is not supported")
            rows = prod(entry.shape) // cols
            matrices.append(self.matrix(short, layer, rows, cols, len(parts)))
            parts.append(TablePart(entry.path, entry.offset, rows))
            if not self._numbered(short):
                break
        self.nbytes = before
        return matrices, tuple(parts)

    def vector(self, short: str, layer: int | None, size: int) -> Tensor:
        """A vector as float32 [size]. ModelError when missing or of another shape."""
        whole = dequantise(matrix(self._take(short, layer, (size,)), 1, size)).reshape(size)
        return whole + 1 if short in self._centred else whole

    def values(self, short: str, layer: int | None, rows: int, cols: int) -> Tensor:
        """A matrix that is no factor of a product, as float32 [rows, cols]."""
        return dequantise(self.matrix(short, layer, rows, cols))

    def integers(self, short: str, layer: int | None, size: int) -> tuple[int, ...]:
        """Whole numbers of 64 bits. ModelError when missing or anything else."""
        entry = self._take(short, layer, (size,))
        if entry.format != I64:
            raise ModelError(f"tensor {entry.name!r} does not hold whole numbers of 64 bits")
        return tuple(np.asarray(entry.data).view("<i8").tolist())

    def finish(self, unused: Collection[str] = ()) -> None:
        """Complain of tensors that nobody took, except those named in `unused` and those that
        the family ignores, of which the log tells.
        """
        left = self.file.tensors.keys() - self._taken - set(unused)
        left = {name for name in left if not (name.endswith(_IGNORED) or self._nothing(name))}
        reasons = {name: self._reason(name) for name in left}
        for reason, count in Counter(filter(None, reasons.values())).items():
            _log.warning("%s: %d tensors of %s are not used", self.file.path, count, reason)
        left = {name for name, reason in reasons.items() if reason is None}
        if left:
            some = ", ".join(sorted(left)[:4]) + (", ..." if len(left) > 4 else "")
            raise ModelError(
                f"{self.file.path} has {len(left)} tensors that the architecture"
                f" {self.file.architecture} does not use here: {some}"
            )

    def _numbered(self, short: str) -> bool:
        """Whether the tensor comes in parts with names of their own."""
        return self._names[short][self._column].count("{}") > 1

    def _nothing(self, name: str) -> bool:
        """Whether it is a bias of zeros, as quantisers add them."""
        return name.endswith(".bias") and not np.any(self.file.tensors[name].data)

    def _reason(self, name: str) -> str | None:
        for prefix, reason in self._ignored.items():
            if name.startswith(prefix):
                return reason
        return None

    def _take(
        self, short: str, layer: int | None, shape: tuple[int, ...], part: int = 0
    ) -> TensorEntry:
        name = self.name(short, layer, part)
        entry = self.file.tensors.get(name)
        if entry is None:
            raise ModelError(f"{self.file.path} has no tensor {name!r}: it is not complete")
        if _extents(entry.shape) != _extents(shape):
            raise ModelError(f"tensor {name!r} has the shape {entry.shape}, not {shape}")
        if name not in self._taken:
            self._taken.add(name)
            self.nbytes += entry.nbytes
        return entry


def _extents(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Without those of 1, which formats write or leave out."""
    return tuple(extent for extent in shape if extent != 1)
