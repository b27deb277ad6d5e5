"""Writes a GGUF whose quantised matrices are stored in another format (Q4_0 by default).

llama.cpp has its fastest CPU kernels for Q4_0, and the default model ships as Q4_1: this makes
the file for the comparison at llama.cpp's best. Matrices are dequantised and quantised again by
the `gguf` package, so quality drops a little; the file is for measuring speed, not for use.

    python bench/requantise.py SOURCE.gguf TARGET.gguf [--format Q4_0]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter

KEPT = {GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.Q8_0}
FILE_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7}  # llama.cpp's general.file_type numbers


def copy_metadata(reader: GGUFReader, writer: GGUFWriter, file_type: int) -> None:
    """Every key of the source but those that the writer sets itself."""
    for key, item in reader.fields.items():
        if key.startswith("GGUF.") or key == gguf.Keys.General.ARCHITECTURE:
            continue
        kind = item.types[0]
        inner = item.types[-1] if kind == GGUFValueType.ARRAY else None
        value = file_type if key == gguf.Keys.General.FILE_TYPE else item.contents()
        writer.add_key_value(key, value, kind, sub_type=inner)


def requantise(source: Path, target: Path, format: str) -> None:
    """Writes `target`; matrices of `source` that are in KEPT formats are copied as they are."""
    wanted = GGMLQuantizationType[format]
    reader = GGUFReader(source)
    architecture = reader.fields[gguf.Keys.General.ARCHITECTURE].contents()
    part = target.with_name(target.name + ".part")
    writer = GGUFWriter(part, architecture)
    copy_metadata(reader, writer, FILE_TYPES.get(wanted.name, 0))
    for tensor in reader.tensors:
        data, kind = tensor.data, tensor.tensor_type
        if kind not in KEPT:
            plain = gguf.quants.dequantize(data, kind).astype(np.float32)
            data, kind = gguf.quants.quantize(plain, wanted), wanted
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(part, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--format", default="Q4_0", choices=sorted(FILE_TYPES))
    chosen = parser.parse_args()
    requantise(chosen.source, chosen.target, chosen.format)
    print(f"wrote {chosen.target} ({chosen.target.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
