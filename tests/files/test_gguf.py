"""GGUF files against the gguf package's own writer and reader, and damaged ones."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from strata.files import open_model, quantisation
from strata.types import ModelError

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
WORDS = [f"wörd{i}" for i in range(500)] + ["", "é", "漢字", "🙂"]


def random_bytes(kind: gguf.GGMLQuantizationType, rows: int, cols: int) -> np.ndarray:
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(int(kind))
    return rng.integers(0, 256, (rows, cols // block * size), dtype=np.uint8)


def write(path: Path, *, split: int = 0, types: list[str] = TYPES) -> Path:
    """A GGUF with metadata of every type and a tensor of each of `types`."""
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=split)
    writer.add_uint8("a.u8", 200)
    writer.add_int8("a.i8", -3)
    writer.add_uint16("a.u16", 60000)
    writer.add_int16("a.i16", -300)
    writer.add_uint32("a.u32", 4_000_000_000)
    writer.add_int32("a.i32", -70000)
    writer.add_float32("a.f32", 0.1)
    writer.add_uint64("a.u64", 2**63)
    writer.add_int64("a.i64", -(2**40))
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "grüße")
    writer.add_array("a.words", WORDS)
    writer.add_array("a.numbers", list(range(-5, 300)))
    writer.add_array("a.floats", [0.5, -1.25])
    writer.add_array("a.bools", [True, False])
    for name in types:
        kind = gguf.GGMLQuantizationType[name]
        data = random_bytes(kind, 3, 512)
        writer.add_tensor(f"t.{name}", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_agrees_with_the_package_reader(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    ours, theirs = open_model(path), gguf.GGUFReader(path)
    fields = {key: f for key, f in theirs.fields.items() if not key.startswith("GGUF.")}
    assert dict(ours.metadata) == {key: field.contents() for key, field in fields.items()}
    assert set(ours.tensors) == {t.name for t in theirs.tensors}
    for tensor in theirs.tensors:
        entry = ours.tensors[tensor.name]
        assert entry.format == tensor.tensor_type
        assert entry.shape == (3, 512)
        assert entry.data.dtype == np.uint8 and not entry.data.flags.writeable
        assert entry.data.tobytes() == tensor.data.tobytes()
    assert ours.kind == "gguf" and ours.architecture == "llama"


def test_default_model_agrees_with_the_package_reader(default_model: Path) -> None:
    ours, theirs = open_model(default_model), gguf.GGUFReader(default_model)
    for key, field in theirs.fields.items():
        if not key.startswith("GGUF."):
            assert ours.metadata[key] == field.contents(), key
    for tensor in theirs.tensors:
        entry = ours.tensors[tensor.name]
        assert entry.shape == tuple(tensor.shape[::-1].tolist())
        assert entry.data.ctypes.data - ours.tensors["token_embd.weight"].data.ctypes.data == (
            tensor.data_offset - theirs.tensors[0].data_offset
        )


def test_the_types_that_hold_a_model(default_model: Path) -> None:
    held: dict[str, int] = {}
    for tensor in gguf.GGUFReader(default_model).tensors:
        name = tensor.tensor_type.name
        held[name] = held.get(name, 0) + int(tensor.n_bytes)
    parts = sorted(((100 * n / sum(held.values()), name) for name, n in held.items()), reverse=True)
    told = ", ".join(f"{name} {part:.0f} %" for part, name in parts if part >= 1)
    assert quantisation(open_model(default_model)) == told and "Q4_1" in told


def test_version_2_reads_like_version_3(tmp_path: Path) -> None:
    data = bytearray(write(tmp_path / "m.gguf").read_bytes())
    struct.pack_into("<I", data, 4, 2)
    (tmp_path / "v2.gguf").write_bytes(data)
    assert open_model(tmp_path / "v2.gguf").metadata["a.words"] == WORDS


@pytest.mark.parametrize("version", [1, 4, 0x03000000])
def test_other_versions_are_refused(tmp_path: Path, version: int) -> None:
    data = bytearray(write(tmp_path / "m.gguf").read_bytes())
    struct.pack_into("<I", data, 4, version)
    (tmp_path / "v.gguf").write_bytes(data)
    with pytest.raises(ModelError, match="versions 2 and 3"):
        open_model(tmp_path / "v.gguf")


def test_every_truncation_is_a_model_error(tmp_path: Path) -> None:
    whole = write(tmp_path / "m.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in [*range(1, 400, 7), *range(400, len(whole), 997), len(whole) - 33]:
        cut.write_bytes(whole[:length])
        with pytest.raises(ModelError):
            open_model(cut)


def test_flipped_bytes_never_raise_anything_else(tmp_path: Path) -> None:
    whole = write(tmp_path / "m.gguf").read_bytes()
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(300):
        data = bytearray(whole)
        data[int(rng.integers(0, 12000)) % len(data)] ^= int(rng.integers(1, 256))
        (tmp_path / "f.gguf").write_bytes(data)
        try:
            dict(open_model(tmp_path / "f.gguf").metadata)
        except ModelError:
            refused += 1
    assert refused > 10


@pytest.mark.parametrize("given", [1, 2, 3])
def test_split_file_opens_from_any_part(tmp_path: Path, given: int) -> None:
    write(tmp_path / "m.gguf", split=4)
    assert len(list(tmp_path.iterdir())) == 3
    whole = open_model(write(tmp_path / "whole.gguf"))
    parts = open_model(tmp_path / f"m-0000{given}-of-00003.gguf")
    assert parts.path.name == "m-00001-of-00003.gguf"
    assert parts.metadata["a.words"] == WORDS
    assert {n: t.data.tobytes() for n, t in parts.tensors.items()} == {
        n: t.data.tobytes() for n, t in whole.tensors.items()
    }


def test_missing_parts_are_named(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", split=4)
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    with pytest.raises(ModelError, match=r"missing in .*: m-00002-of-00003.gguf$"):
        open_model(tmp_path / "m-00001-of-00003.gguf")


def test_a_part_under_another_name_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", split=4)
    (tmp_path / "m-00001-of-00003.gguf").rename(tmp_path / "renamed.gguf")
    with pytest.raises(ModelError, match="one of 3 files"):
        open_model(tmp_path / "renamed.gguf")


def test_parts_of_another_model_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", split=4)
    (tmp_path / "other").mkdir()
    write(tmp_path / "other" / "m.gguf", split=2, types=TYPES[:6])
    (tmp_path / "other" / "m-00003-of-00003.gguf").replace(tmp_path / "m-00003-of-00003.gguf")
    with pytest.raises(ModelError, match=r"repeats|not all of one model"):
        open_model(tmp_path / "m-00001-of-00003.gguf")


def test_unsupported_type_names_tensor_type_and_choices(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", types=["F32", "Q8_K"])
    with pytest.raises(ModelError, match=r"'t.Q8_K' has type Q8_K; supported: F32.*Q6_K.*IQ4_XS"):
        open_model(path)


@pytest.mark.parametrize("content", [b"", b"hello world, this is text", b"\0" * 4096])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=r"not a GGUF file|is empty"):
        open_model(tmp_path / "x.gguf")


def test_no_such_path(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no model at"):
        open_model(tmp_path / "nothing.gguf")


@pytest.mark.parametrize("count", ["three", 1.5, [2]])
def test_a_number_of_parts_that_is_none_is_refused(tmp_path: Path, count: object) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    kinds = {str: writer.add_string, float: writer.add_float32, list: writer.add_array}
    kinds[type(count)]("split.count", count)  # type: ignore[operator]
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelError, match=r"split.count is .*, not a number of files"):
        open_model(tmp_path / "m.gguf")
