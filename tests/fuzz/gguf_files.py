"""Fuzzes the reader of GGUF files (atheris, a libFuzzer): any bytes are a model or a ModelError.

`python tests/fuzz/gguf_files.py CORPUS -max_total_time=60`. The corpus begins with small whole
files; every tensor of a file that opens is read to its end.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["strata.files"]):
    from strata.files import gguf as reader

import gguf
import numpy as np

from strata.types import ModelError

_TYPES = ("F32", "F16", "Q8_0", "Q4_K", "Q6_K", "IQ2_XS", "MXFP4")
_FILE = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)) / "m.gguf"


def seed(path: Path, *, version: int, types: tuple[str, ...]) -> None:
    """A file with a value of each kind and a tensor of each type."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint16("split.count", 1)
    writer.add_uint32("llama.block_count", 1)
    writer.add_float32("a.f32", 0.5)
    writer.add_uint64("a.u64", 2**63)
    writer.add_bool("a.bool", True)
    writer.add_array("a.words", ["a", "é", ""])
    writer.add_array("a.numbers", [1, -2, 3])
    writer.add_custom_alignment(64)
    for name in types:
        kind = gguf.GGMLQuantizationType[name]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        data = np.zeros((2, 256 // block * size), np.uint8)
        writer.add_tensor(f"t.{name}", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    data = bytearray(path.read_bytes())
    data[4] = version
    path.write_bytes(data)


def one(data: bytes) -> None:
    """Opens a file of these bytes and reads all that it promises."""
    _FILE.write_bytes(data)
    try:
        model = reader.open_gguf(_FILE)
    except ModelError as error:
        assert str(error).strip()
        return
    for tensor in model.tensors.values():
        assert tensor.data.size <= len(data)
        int(tensor.data.sum(dtype=np.uint64))  # a page beyond the file would end the process


def main() -> None:
    """The corpus, then libFuzzer."""
    corpus = Path(sys.argv[1])
    corpus.mkdir(parents=True, exist_ok=True)
    for version in (2, 3):
        seed(corpus / f"whole{version}.gguf", version=version, types=_TYPES[: 2 * version])
    seed(corpus / "bare.gguf", version=3, types=())
    atheris.Setup([sys.argv[0], *sys.argv[1:], "-max_len=4096", "-timeout=10"], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
