"""A small model with experts, kernels that pack them by copying, and packing that is killed.

    python packing.py FOLDER

packs into folders below FOLDER, killed at every call that leaves a trace on the disk, goes on, and
prints for each how many experts were packed after the kill; exit 1 when the outcome differs.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from strata.experts.layout import ExpertLayout, Index, Layers
from strata.experts.pack import pack
from strata.files import ModelFile, TensorEntry
from strata.kernels.moe import Expert, ExpertForm
from strata.kernels.quant import Format, QTensor

EXPERTS = 3
SIZES = ((2, 40, 24), (5, 56, 24), (6, 40, 24))  # layer, ffn, hidden
GAP = 100  # bytes between matrices that nobody writes
PRINT = "f" * 64


class CopyingKernels:
    """The part of `Kernels` that packing needs. Counts what it packs."""

    packing = "copy 1"

    def __init__(self) -> None:
        self._order = list[Expert]()

    @property
    def packed(self) -> int:
        return len(self._order)

    def expert_form(self, expert: Expert) -> ExpertForm:
        sizes = [q.data.numel() for q in (expert.gate, expert.up, expert.down)]
        offsets = (0, sizes[0] + GAP, sizes[0] + sizes[1] + 2 * GAP)
        formats = tuple(int(q.format) for q in (expert.gate, expert.up, expert.down))
        rows, cols = expert.gate.rows, expert.gate.cols
        return ExpertForm(formats, rows, cols, offsets, offsets[2] + sizes[2])

    def pack_expert(self, expert: Expert, record: torch.Tensor) -> None:
        self._order.append(expert)
        form = self.expert_form(expert)
        assert record.shape == (form.nbytes,)
        for q, at in zip((expert.gate, expert.up, expert.down), form.offsets, strict=True):
            record[at : at + q.data.numel()] = q.data


def model(seed: int = 0) -> tuple[ModelFile, Layers]:
    """Random experts, and the file that they seem to come from."""
    rng = np.random.default_rng(seed)
    layers, tensors = list[tuple[int, list[Expert]]](), dict[str, TensorEntry]()

    def stack(name: str, rows: int, cols: int) -> list[QTensor]:
        data = rng.integers(0, 256, EXPERTS * rows * cols * 2, np.uint8)
        tensors[name] = TensorEntry(
            name, int(Format.BF16), (EXPERTS, rows, cols), data, Path("toy"), 0
        )
        parts = torch.from_numpy(data).view(EXPERTS, -1)
        return [QTensor(part, Format.BF16, rows, cols) for part in parts]

    for layer, ffn, hidden in SIZES:
        gate, up = (stack(f"{name}.{layer}", ffn, hidden) for name in ("gate", "up"))
        layers.append((layer, list(map(Expert, gate, up, stack(f"down.{layer}", hidden, ffn)))))
    return ModelFile("gguf", Path("models/toy.gguf"), "toy", {}, tensors), layers


def contents(layers: Layers) -> bytes:
    """What the record file must hold, worked out from the layers alone."""
    whole = bytearray()
    for _, experts in layers:
        for expert in experts:
            parts = [bytes(q.data.numpy()) for q in (expert.gate, expert.up, expert.down)]
            whole += bytes(GAP).join(parts)
            whole += bytes(-len(whole) % 4096)
    return bytes(whole)


TRACES = ("pwrite", "fsync", "replace", "unlink", "truncate", "mkdir")  # of `os`


@contextmanager
def killed_at(number: int) -> Iterator[None]:
    """Kills this process before the call of that number that leaves a trace on the disk."""
    count = 0

    def wrapped(call):
        def counted(*args, **kwargs):
            nonlocal count
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counted

    for name in TRACES:
        setattr(os, name, wrapped(getattr(os, name)))
    yield


def killed(folder: Path, number: int) -> bool:
    """Packs in a process of its own that is killed; whether it came to that."""
    child = os.fork()
    if child == 0:
        with killed_at(number):
            pack(model()[1], CopyingKernels(), folder, PRINT)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0, status
    return status != 0


def main(root: Path) -> int:
    """Every place for a kill, and after every other one a second kill of what goes on."""
    layers, number = model()[1], 0
    while True:
        number += 1
        folder = root / str(number)
        if not killed(folder, number):
            return 0
        if number % 2:
            killed(folder, number // 2 + 1)
        kernels = CopyingKernels()
        pack(layers, kernels, folder, PRINT)
        layout = ExpertLayout.of(layers, kernels)
        records = Index.load(folder).open(folder, PRINT, layout, kernels.packing)
        left = sorted(path.name for path in folder.iterdir())
        if records.path.read_bytes() != contents(layers) or len(left) != 3:
            print(f"killed at {number}: {left}", file=sys.stderr)
            return 1
        print(kernels.packed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
