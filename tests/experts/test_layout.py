"""Where records lie, what an index refuses, and which models have the same fingerprint."""

from __future__ import annotations

import json
import mmap
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from packing import EXPERTS, GAP, PRINT, SIZES, CopyingKernels, contents, model

from strata.experts.fingerprint import fingerprint_of
from strata.experts.layout import INDEX, RECORDS, ExpertLayout, Index
from strata.experts.pack import pack
from strata.files import ModelFile, TensorEntry
from strata.kernels.moe import Expert
from strata.kernels.quant import Format, QTensor
from strata.types import StorageError

KERNELS = CopyingKernels()


def test_records_follow_each_other_in_whole_pages() -> None:
    layers = model()[1]
    layout = ExpertLayout.of(layers, KERNELS)
    end = 0
    for place, (layer, ffn, hidden) in zip(layout.places, SIZES, strict=True):
        size = 3 * ffn * hidden * 2 + 2 * GAP
        assert (place.layer, place.count, place.offset) == (layer, EXPERTS, end)
        assert place.form.nbytes == size
        assert place.record % 4096 == 0 and size <= place.record < size + 4096
        end += EXPERTS * place.record
    assert layout.nbytes == end and layout.experts == EXPERTS
    assert layout.sizes().tolist() == [p.record for p in layout.places for _ in range(EXPERTS)]


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    pack(model()[1], KERNELS, tmp_path, PRINT)
    return tmp_path


def opened(folder: Path, fingerprint: str = PRINT, packing: str = KERNELS.packing):
    layout = ExpertLayout.of(model()[1], KERNELS)
    return Index.load(folder).open(folder, fingerprint, layout, packing)


def test_an_index_says_what_was_packed(packed: Path) -> None:
    layers = model()[1]
    index, whole = Index.load(packed), contents(layers)
    assert index.layout == ExpertLayout.of(layers, KERNELS)
    assert (index.fingerprint, index.packing) == (PRINT, KERNELS.packing)
    assert (packed / RECORDS).read_bytes() == whole
    records = opened(packed)
    at = 0
    for number, size in enumerate(index.layout.sizes().tolist()):
        into = torch.empty(size + 4096, dtype=torch.uint8)
        into = into[-into.data_ptr() % 4096 :][:size]
        records.read(number, into)
        assert into.numpy().tobytes() == whole[at : at + size]
        at += size


def change(folder: Path, old: str, new: str) -> None:
    text = (folder / INDEX).read_text()
    assert old in text
    (folder / INDEX).write_text(text.replace(old, new, 1))


def cut(folder: Path) -> None:
    with open(folder / RECORDS, "r+b") as file:
        file.truncate(file.seek(0, 2) - 4096)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut, r"cut short: .* has \d+ of \d+ bytes"),
        (lambda folder: (folder / RECORDS).unlink(), "lacks its experts.bin"),
        (lambda folder: (folder / INDEX).unlink(), "cannot be read .No such file"),
        (lambda folder: (folder / INDEX).write_text("[1, 2"), "damaged index"),
        (lambda folder: (folder / INDEX).write_text("[1, 2]"), "damaged index"),
        (lambda folder: (folder / INDEX).write_bytes(b"\xff\xfe"), "damaged index"),
        (lambda folder: change(folder, '"version": 1', '"version": 9'), "another version"),
        (lambda folder: change(folder, '\\"layer\\": 5', '\\"layer\\": 6'), "checksum is wrong"),
    ],
)
def test_a_damaged_folder_says_what_to_do(
    packed: Path, damage: Callable[[Path], None], said: str
) -> None:
    opened(packed).close()
    damage(packed)
    with pytest.raises(StorageError, match=said) as raised:
        opened(packed)
    assert str(packed) in str(raised.value) and "strata pack --force" in str(raised.value)


def test_records_of_others_are_refused(packed: Path) -> None:
    with pytest.raises(StorageError, match="of another model"):
        opened(packed, fingerprint="e" * 64)
    with pytest.raises(StorageError, match="packed for copy 1, but the kernels are native avx2"):
        opened(packed, packing="native avx2")
    index = Index.load(packed)
    fewer = replace(index.layout, places=index.layout.places[:2])
    with pytest.raises(StorageError, match="does not have the records"):
        index.open(packed, PRINT, fewer, KERNELS.packing)
    replace(index, sums=index.sums[:-1]).save(packed)
    with pytest.raises(StorageError, match="does not have the records"):
        opened(packed)


# ------------------------------------------------------------------ fingerprints


def print_of(change: Callable[[dict[str, TensorEntry]], None] = lambda t: None) -> str:
    file, layers = model()
    tensors = dict(file.tensors)
    change(tensors)
    return fingerprint_of(replace(file, tensors=tensors), layers)


def test_a_fingerprint_depends_on_the_model_alone() -> None:
    assert len(print_of()) == 64
    file, layers = model()
    moved = replace(file, path=Path("elsewhere"), tensors=dict(reversed(file.tensors.items())))
    assert fingerprint_of(moved, layers) == print_of()


@pytest.mark.parametrize("changes", [{"name": "x"}, {"format": 1}, {"shape": (3, 24, 40)}])
def test_a_fingerprint_sees_every_header(changes: dict) -> None:
    def alter(tensors: dict[str, TensorEntry]) -> None:
        entry = replace(tensors.pop("up.5"), **changes)
        tensors[entry.name] = entry

    assert print_of(alter) != print_of()


@pytest.mark.parametrize("layer", range(len(SIZES)))
@pytest.mark.parametrize("matrix", ["gate", "up", "down"])
def test_a_fingerprint_sees_other_weights_of_the_same_shape(layer: int, matrix: str) -> None:
    file, layers = model()
    for expert in layers[layer][1]:
        getattr(expert, matrix).data.add_(1)
    assert fingerprint_of(file, layers) != print_of()


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_a_fingerprint_of_a_huge_model_is_cheap(tmp_path: Path) -> None:
    """16 GiB of experts in a file with holes, of which little is looked at."""
    layers_, experts, rows, cols = 8, 128, 2048, 2048
    size = rows * cols * 2
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(2 * layers_ * experts * size)
    whole = torch.from_numpy(np.memmap(tmp_path / "huge", np.uint8, "r"))
    parts = [QTensor(part, Format.BF16, rows, cols) for part in whole.view(-1, size)]
    mixtures = [
        (n, [Expert(parts[2 * i], parts[2 * i + 1], parts[2 * i]) for i in range(at, at + experts)])
        for n, at in enumerate(range(0, layers_ * experts, experts))
    ]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    assert fingerprint_of(ModelFile("gguf", tmp_path, "", {}, {}), mixtures)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    around = 16 * mmap.PAGESIZE  # the system maps so much at a fault
    assert faults < len(whole) / around / 4


def test_an_index_is_plain_json(packed: Path) -> None:
    whole = json.loads((packed / INDEX).read_text())
    assert json.loads(whole["body"])["packing"] == KERNELS.packing
