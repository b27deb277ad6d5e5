"""Hugging Face folders: config.json, safetensors (one or many), tokenizer files.

The `safetensors` package checks each header (offsets inside the file, no holes, no overlaps); the
header is then read again for the offsets themselves, because numpy has no bfloat16 and the
package's numpy interface copies.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from strata.files import E4M3, I32, I64, U8, ModelFile, TensorEntry, map_file
from strata.types import ModelError

_DTYPES = {"F32": 0, "F16": 1, "BF16": 30, "I8": 24, "I16": 25, "I32": I32, "I64": I64, "F64": 28}
_DTYPES |= {"F8_E4M3": E4M3, "U8": U8, "F8_E8M0": U8}  # parts of quantised tensors
_INDEX = "model.safetensors.index.json"


def _read_text(path: Path) -> str | None:
    """A file's text, None when there is no such file. Raises ModelError."""
    try:
        return path.read_text(encoding="utf-8") if path.exists() else None
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, {} when there is no such file. Raises ModelError."""
    try:
        text = _read_text(path)
        value = {} if text is None else json.loads(text)
    except ValueError as error:
        raise ModelError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds {type(value).__name__}, not a JSON object")
    return value


def _shards(folder: Path) -> list[Path]:
    """The safetensors files of a folder, all of which exist. Raises ModelError."""
    index = _read_json(folder / _INDEX)
    if index:
        weight_map = index.get("weight_map")
        if not isinstance(weight_map, dict):
            raise ModelError(f"{folder / _INDEX} has no weight_map: it is damaged")
        names = sorted({str(name) for name in weight_map.values()})
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
        names = ["model.safetensors"] if "model.safetensors" in names else names
    if not names:
        raise ModelError(f"{folder} has no *.safetensors file; other weight files are not read")
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        raise ModelError(f"weights are missing in {folder}: {', '.join(missing)}")
    return [folder / name for name in names]


def _read_shard(path: Path) -> dict[str, TensorEntry]:
    data = map_file(path)
    try:
        with safe_open(path, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"{path} is damaged or was cut short ({error}); download it again"
        ) from error
    size = int.from_bytes(bytes(data[:8]), "little")
    header = json.loads(bytes(data[8 : 8 + size]))
    header.pop("__metadata__", None)
    plain = data.view(np.ndarray)
    tensors = {}
    for name, spec in header.items():
        if spec["dtype"] not in _DTYPES:
            raise ModelError(
                f"tensor {name!r} in {path.name} has type {spec['dtype']};"
                " supported in safetensors: F32, F16, BF16, F8_E4M3"
            )
        start, end = (8 + size + offset for offset in spec["data_offsets"])
        shape = tuple(int(extent) for extent in spec["shape"])
        tensors[name] = TensorEntry(
            name, _DTYPES[spec["dtype"]], shape, plain[start:end], path, start
        )
    return tensors


def _chat_template(folder: Path, tokenizer_config: dict[str, Any]) -> str | None:
    """The chat template: a file of its own, or the one in tokenizer_config.json."""
    own = _read_text(folder / "chat_template.jinja")
    if own is not None:
        return own
    template = _read_json(folder / "chat_template.json").get("chat_template")
    template = template or tokenizer_config.get("chat_template")
    if isinstance(template, list):  # [{"name": "default", "template": "..."}, ...]
        template = {entry.get("name"): entry.get("template") for entry in template}.get("default")
    return template if isinstance(template, str) else None


def open_folder(folder: Path) -> ModelFile:
    """Open a folder with config.json and safetensors. Raises ModelError."""
    config = _read_json(folder / "config.json")
    if not config:
        files = sorted(path.name for path in folder.glob("*.gguf"))
        hint = f"; it holds GGUF files, give one of them: {', '.join(files)}" if files else ""
        raise ModelError(f"{folder} has no config.json{hint}")
    architecture = config.get("model_type")
    if not isinstance(architecture, str):
        raise ModelError(f"{folder / 'config.json'} has no model_type: it is not a model's")
    tensors: dict[str, TensorEntry] = {}
    for shard in _shards(folder):
        for name, entry in _read_shard(shard).items():
            if name in tensors:
                raise ModelError(f"{shard.name} repeats the tensor {name!r} of another file")
            tensors[name] = entry
    tokenizer_config = _read_json(folder / "tokenizer_config.json")
    metadata = {
        "config": config,
        "generation_config": _read_json(folder / "generation_config.json"),
        "tokenizer_config": tokenizer_config,
        "chat_template": _chat_template(folder, tokenizer_config),
    }
    return ModelFile("folder", folder, architecture, metadata, tensors)
