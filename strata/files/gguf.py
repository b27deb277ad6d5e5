"""GGUF files, versions 2 and 3, whole or split into parts.

Type numbers come from the `gguf` package. Its GGUFReader makes several numpy objects of every
array element and takes two seconds for a vocabulary of 49,152; this reader makes plain lists.

Invariant: no offset leaves the file. Every read is checked, so that a truncated file ends in a
ModelError and never in an exception of numpy or struct.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUF_DEFAULT_ALIGNMENT, GGUFValueType

from strata.files import ModelFile, TensorEntry, map_file, tensor_bytes
from strata.types import ModelError

_SPLIT_NAME = re.compile(r"^(?P<stem>.*)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf$")

_SCALARS: dict[int, str] = {
    GGUFValueType.UINT8: "<B",
    GGUFValueType.INT8: "<b",
    GGUFValueType.UINT16: "<H",
    GGUFValueType.INT16: "<h",
    GGUFValueType.UINT32: "<I",
    GGUFValueType.INT32: "<i",
    GGUFValueType.FLOAT32: "<f",
    GGUFValueType.BOOL: "<?",
    GGUFValueType.UINT64: "<Q",
    GGUFValueType.INT64: "<q",
    GGUFValueType.FLOAT64: "<d",
}
_MAX_DIMS = 4


class _Damaged(ModelError):
    """The bytes do not follow the format. Carries a sentence without the path."""


class _Reader:
    """A place in the bytes of one file, behind the four letters that it begins with."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 4

    def numbers(self, code: str, count: int = 1) -> list[Any]:
        """The next numbers of a struct code."""
        start, size = self.at, count * struct.calcsize(code)
        if size > len(self.data) - start:
            raise _Damaged("it ends inside its header")
        self.at += size
        return list(np.frombuffer(self.data, np.dtype(code), count, start).tolist())

    def number(self, code: str) -> Any:
        """The next number of a struct code."""
        return self.numbers(code)[0]

    def strings(self, count: int = 1) -> list[str]:
        """The next strings: each a length of 8 bytes and UTF-8."""
        out, data, at = [], self.data, self.at
        unpack = struct.Struct("<Q").unpack_from
        try:
            for _ in range(count):
                start = at + 8
                at = start + unpack(data, at)[0]
                out.append(str(data[start:at], "utf-8"))
        except UnicodeDecodeError as error:
            raise _Damaged(f"a string at byte {start} is not UTF-8") from error
        except (struct.error, OverflowError):  # a length beyond the end, or beyond any file
            at = len(data) + 1
        if at > len(data):
            raise _Damaged("it ends inside its header")
        self.at = at
        return out

    def value(self, kind: int) -> Any:
        """The next metadata value, of a type of the format."""
        if kind == GGUFValueType.STRING:
            return self.strings()[0]
        if kind != GGUFValueType.ARRAY:
            return self.number(_code(kind))
        item, count = self.number("<I"), self.number("<Q")
        if item == GGUFValueType.ARRAY:
            raise _Damaged("it holds an array of arrays, which no model uses")
        if item == GGUFValueType.STRING:
            return self.strings(count)
        return self.numbers(_code(item), count)


def _code(kind: int) -> str:
    if kind not in _SCALARS:
        raise _Damaged(f"it holds a metadata value of unknown type {kind}")
    return _SCALARS[kind]


_Part = tuple[dict[str, Any], dict[str, TensorEntry]]  # metadata and tensors of one file


def _parse(path: Path) -> _Part:
    data = map_file(path)
    if bytes(data[:4]) != b"GGUF":
        raise ModelError(f"{path} is not a GGUF file (it does not begin with the letters GGUF)")
    try:
        return _parse_body(_Reader(data.data), data.view(np.ndarray), path)
    except _Damaged as error:
        raise ModelError(f"{path} is damaged or was cut short: {error}") from error
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def _parse_body(reader: _Reader, data: npt.NDArray[np.uint8], path: Path) -> _Part:
    version = reader.number("<I")
    if version not in (2, 3):
        # A big-endian file shows its version in the upper half.
        seen = "big-endian order" if version & 0xFFFF == 0 else f"version {version}"
        raise ModelError(f"a GGUF of {seen}; versions 2 and 3, little-endian, are supported")
    tensor_count, key_count = reader.number("<Q"), reader.number("<Q")
    metadata: dict[str, Any] = {}
    for _ in range(key_count):
        key = reader.strings()[0]
        if key in metadata:
            raise _Damaged(f"the key {key!r} occurs twice")
        metadata[key] = reader.value(reader.number("<I"))
    headers = [_tensor_header(reader) for _ in range(tensor_count)]
    align = metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
    if not isinstance(align, int) or align <= 0 or align & (align - 1):
        raise _Damaged(f"general.alignment is {align!r}, not a power of two")
    base = (reader.at + align - 1) // align * align
    tensors: dict[str, TensorEntry] = {}
    for name, shape, format, offset in headers:
        if name in tensors:
            raise _Damaged(f"the tensor {name!r} occurs twice")
        start, size = base + offset, tensor_bytes(name, format, shape)
        if start + size > len(data):
            raise _Damaged(
                f"the tensor {name!r} needs bytes {start} to {start + size}"
                f" but the file has {len(data)}; download it again"
            )
        own = data[start : start + size]
        tensors[name] = TensorEntry(name, format, shape, own, path, start)
    return metadata, tensors


def _tensor_header(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape in C order, format and offset."""
    name, dims = reader.strings()[0], reader.number("<I")
    if dims > _MAX_DIMS:
        raise _Damaged(f"the tensor {name!r} has {dims} dimensions")
    shape = tuple(reader.numbers("<Q", dims)[::-1])
    return name, shape, reader.number("<I"), reader.number("<Q")


def _part_paths(path: Path) -> list[Path]:
    """All parts of a split file, given any of them; the file itself when it is whole."""
    match = _SPLIT_NAME.match(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    names = [f"{match['stem']}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1)]
    missing = [name for name in names if not (path.parent / name).exists()]
    if missing or not names:
        raise ModelError(
            f"{path.name} is part of a model of {count} files; missing in {path.parent}:"
            f" {', '.join(missing)}"
        )
    return [path.parent / name for name in names]


def open_gguf(path: Path) -> ModelFile:
    """Open a GGUF file, or all parts of one given any part. Raises ModelError."""
    paths = _part_paths(path)
    (metadata, tensors), *others = [_parse(each) for each in paths]
    declared = metadata.get("split.count", 0) or 1
    if not isinstance(declared, int):
        raise ModelError(f"{path} is damaged: split.count is {declared!r}, not a number of files")
    if declared != len(paths):
        raise ModelError(
            f"{path.name} says that it is one of {declared} files; name them"
            f" NAME-00001-of-{declared:05}.gguf and keep them in one folder"
        )
    for each, (_, more) in zip(paths[1:], others, strict=True):
        if twice := tensors.keys() & more.keys():
            raise ModelError(f"{each.name} repeats the tensor {min(twice)!r} of an earlier part")
        tensors |= more
    expected = metadata.get("split.tensors.count", len(tensors))
    if others and expected != len(tensors):
        raise ModelError(
            f"the parts of {path.name} hold {len(tensors)} tensors, not {expected}:"
            " they are not all of one model"
        )
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelError(f"{path} has no general.architecture: it is not a language model")
    return ModelFile("gguf", paths[0], architecture, metadata, tensors)
