"""GGUF files, versions 2 and 3, whole or split into parts.

Type numbers come from the `gguf` package. Its GGUFReader makes several numpy
objects of every array element and takes two seconds for a vocabulary of 49,152;
this reader walks the string lengths once (a few hundredths of a second) and
makes python lists only of the arrays that someone asks for.

Invariant: no offset leaves the file. Every read is checked, so that a truncated
file ends in a ModelError and never in an exception of numpy or struct.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUF_DEFAULT_ALIGNMENT, GGUFValueType

from strata.files import LazyMapping, ModelFile, TensorEntry, map_file, tensor_bytes
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
_U64 = struct.Struct("<Q")
_MAX_DIMS = 4


class _Damaged(ModelError):
    """The bytes do not follow the format. Carries a sentence without the path."""


@dataclass
class _Reader:
    """A place in the bytes of one file."""

    data: memoryview
    at: int = 0

    def scalar(self, code: str) -> Any:
        """The next value of a struct code."""
        size = struct.calcsize(code)
        if self.at + size > len(self.data):
            raise _Damaged("it ends inside its header")
        (value,) = struct.unpack_from(code, self.data, self.at)
        self.at += size
        return value

    def span(self, size: int) -> int:
        """Skip `size` bytes; returns where they begin."""
        start = self.at
        if size > len(self.data) - start:
            raise _Damaged("it ends inside its header")
        self.at = start + size
        return start

    def string(self) -> str:
        """The next string: a length of 8 bytes and UTF-8."""
        size = self.scalar("<Q")
        start = self.span(size)
        return _text(self.data, start, size)


def _text(data: memoryview, start: int, size: int) -> str:
    try:
        return str(data[start : start + size], "utf-8")
    except UnicodeDecodeError as error:
        raise _Damaged(f"a string at byte {start} is not UTF-8") from error


def _strings(data: memoryview, start: int, count: int) -> list[str]:
    """`count` strings from byte `start` on; their extent was checked before."""
    out = []
    unpack = _U64.unpack_from
    for _ in range(count):
        (size,) = unpack(data, start)
        start += 8
        out.append(_text(data, start, size))
        start += size
    return out


def _skip_strings(reader: _Reader, count: int) -> int:
    """Move past `count` strings; returns where they begin."""
    start = at = reader.at
    data, unpack = reader.data, _U64.unpack_from
    try:
        for _ in range(count):
            at += 8 + unpack(data, at)[0]
    except (struct.error, OverflowError) as error:  # a length beyond the end, or beyond any file
        raise _Damaged("it ends inside its header") from error
    reader.span(at - start)
    return start


def _numbers(data: memoryview, start: int, count: int, code: str) -> list[Any]:
    """`count` numbers of a struct code from byte `start` on."""
    return list(np.frombuffer(data, np.dtype(code), count, start).tolist())


def _value(reader: _Reader, kind: int) -> Callable[[], Any]:
    """Move past a metadata value; returns a function that makes it."""
    if kind == GGUFValueType.STRING:
        size = reader.scalar("<Q")
        return partial(_text, reader.data, reader.span(size), size)
    if kind == GGUFValueType.ARRAY:
        item, count = reader.scalar("<I"), reader.scalar("<Q")
        if item == GGUFValueType.STRING:
            return partial(_strings, reader.data, _skip_strings(reader, count), count)
        if item == GGUFValueType.ARRAY:
            raise _Damaged("it holds an array of arrays, which no model uses")
        code = _code(item)
        start = reader.span(count * struct.calcsize(code))
        return partial(_numbers, reader.data, start, count, code)
    value = reader.scalar(_code(kind))
    return lambda: value


def _code(kind: int) -> str:
    if kind not in _SCALARS:
        raise _Damaged(f"it holds a metadata value of unknown type {kind}")
    return _SCALARS[kind]


@dataclass(frozen=True)
class _Part:
    """One file, parsed."""

    metadata: LazyMapping
    tensors: dict[str, TensorEntry]


def _parse(path: Path) -> _Part:
    data = map_file(path)
    if bytes(data[:4]) != b"GGUF":
        raise ModelError(f"{path} is not a GGUF file (it does not begin with the letters GGUF)")
    reader = _Reader(data.data, 4)
    try:
        return _parse_body(reader, data)
    except _Damaged as error:
        raise ModelError(f"{path} is damaged or was cut short: {error}") from error
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def _parse_body(reader: _Reader, data: npt.NDArray[np.uint8]) -> _Part:
    version = reader.scalar("<I")
    if version not in (2, 3):
        # A big-endian file shows its version in the upper half.
        seen = "big-endian order" if version & 0xFFFF == 0 else f"version {version}"
        raise ModelError(f"a GGUF of {seen}; versions 2 and 3, little-endian, are supported")
    tensor_count, key_count = reader.scalar("<Q"), reader.scalar("<Q")
    makers: dict[str, Callable[[], Any]] = {}
    for _ in range(key_count):
        key = reader.string()
        if key in makers:
            raise _Damaged(f"the key {key!r} occurs twice")
        makers[key] = _value(reader, reader.scalar("<I"))
    metadata = LazyMapping(makers)
    infos = [_tensor_header(reader) for _ in range(tensor_count)]
    align = metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
    if not isinstance(align, int) or align <= 0 or align & (align - 1):
        raise _Damaged(f"general.alignment is {align!r}, not a power of two")
    base = (reader.at + align - 1) // align * align
    return _Part(metadata, _tensor_views(infos, base, data))


_Header = tuple[str, tuple[int, ...], int, int]  # name, shape in C order, format, offset


def _tensor_header(reader: _Reader) -> _Header:
    name = reader.string()
    dims = reader.scalar("<I")
    if dims > _MAX_DIMS:
        raise _Damaged(f"the tensor {name!r} has {dims} dimensions")
    shape = tuple(reader.scalar("<Q") for _ in range(dims))[::-1]
    return name, shape, reader.scalar("<I"), reader.scalar("<Q")


def _tensor_views(
    headers: list[_Header], base: int, data: npt.NDArray[np.uint8]
) -> dict[str, TensorEntry]:
    tensors: dict[str, TensorEntry] = {}
    plain = data.view(np.ndarray)
    for name, shape, format, offset in headers:
        if name in tensors:
            raise _Damaged(f"the tensor {name!r} occurs twice")
        start, size = base + offset, tensor_bytes(name, format, shape)
        if start + size > len(data):
            raise _Damaged(
                f"the tensor {name!r} needs bytes {start} to {start + size}"
                f" but the file has {len(data)}; download it again"
            )
        tensors[name] = TensorEntry(name, format, shape, plain[start : start + size])
    return tensors


def part_paths(path: Path) -> list[Path]:
    """All parts of a split file, given any of them; the file itself when it is whole.

    ModelError names the parts that are missing.
    """
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
    paths = part_paths(path)
    parts = [_parse(each) for each in paths]
    metadata = parts[0].metadata
    declared = metadata.get("split.count", 0) or 1
    if declared != len(paths):
        raise ModelError(
            f"{path.name} says that it is one of {declared} files; name them"
            f" NAME-00001-of-{declared:05}.gguf and keep them in one folder"
        )
    tensors: dict[str, TensorEntry] = {}
    for each, part in zip(paths, parts, strict=True):
        twice = tensors.keys() & part.tensors.keys()
        if twice:
            raise ModelError(f"{each.name} repeats the tensor {min(twice)!r} of an earlier part")
        tensors.update(part.tensors)
    expected = metadata.get("split.tensors.count", len(tensors))
    if len(paths) > 1 and expected != len(tensors):
        raise ModelError(
            f"the parts of {path.name} hold {len(tensors)} tensors, not {expected}:"
            " they are not all of one model"
        )
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelError(f"{path} has no general.architecture: it is not a language model")
    return ModelFile("gguf", paths[0], architecture, metadata, tensors)
