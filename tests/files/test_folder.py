"""Hugging Face folders: every dtype without a copy, shards, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from strata.files import open_model
from strata.types import ModelError

TENSORS = {
    "a.f32": torch.randn(3, 5),
    "a.f16": torch.randn(4, 6).half(),
    "a.bf16": torch.randn(7, 2).bfloat16(),
    "a.vector": torch.randn(9),
    "a.i64": torch.arange(4),
}
NUMBERS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 30, torch.int64: 27}


def write(folder: Path, *, shards: int = 1, config: dict[str, Any] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config or {"model_type": "llama"}))
    if shards == 1:
        save_file(TENSORS, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    weight_map = {}
    for i in range(shards):
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {k: v for j, (k, v) in enumerate(TENSORS.items()) if j % shards == i}
        save_file(part, folder / name)
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize("shards", [1, 3])
def test_tensors_are_those_that_were_saved(tmp_path: Path, shards: int) -> None:
    model = open_model(write(tmp_path / "m", shards=shards))
    assert model.kind == "folder" and model.architecture == "llama"
    assert set(model.tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        entry = model.tensors[name]
        assert entry.format == NUMBERS[tensor.dtype]
        assert entry.shape == tuple(tensor.shape)
        assert not entry.data.flags.writeable
        assert entry.data.tobytes() == tensor.contiguous().view(torch.uint8).numpy().tobytes()


def test_metadata(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    model = open_model(folder)
    assert model.metadata["generation_config"] == {} and model.metadata["chat_template"] is None
    (folder / "generation_config.json").write_text('{"temperature": 0.6}')
    templates = [{"name": "tools", "template": "T"}, {"name": "default", "template": "D"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
    model = open_model(folder)
    assert model.metadata["generation_config"] == {"temperature": 0.6}
    assert model.metadata["chat_template"] == "D"
    (folder / "chat_template.jinja").write_text("own file")
    assert open_model(folder).metadata["chat_template"] == "own file"
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match="cannot read"):
        open_model(folder)


def test_missing_shards_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ModelError, match=r"missing in .*: model-00002-of-00003.safetensors$"):
        open_model(folder)


def test_every_truncation_is_a_model_error(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    whole = (folder / "model.safetensors").read_bytes()
    for length in range(0, len(whole), 31):
        (folder / "model.safetensors").write_bytes(whole[:length])
        with pytest.raises(ModelError, match=r"cut short|empty"):
            open_model(folder)


def test_unsupported_dtype_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    save_file({"w": torch.zeros(2, dtype=torch.float8_e5m2)}, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"'w' .* F8_E5M2; supported in safetensors: F32, F16, BF"):
        open_model(folder)


def test_folders_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config.json"):
        open_model(tmp_path)
    (tmp_path / "some.gguf").touch()
    with pytest.raises(ModelError, match=r"give one of them: some.gguf"):
        open_model(tmp_path)
    (tmp_path / "config.json").write_text("{}x")
    with pytest.raises(ModelError, match="cannot read"):
        open_model(tmp_path)
    (tmp_path / "config.json").write_text('{"a": 1}')
    with pytest.raises(ModelError, match="no model_type"):
        open_model(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ModelError, match=r"no \*.safetensors"):
        open_model(tmp_path)


def test_a_weights_file_alone_points_at_its_folder(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    with pytest.raises(ModelError, match="give its folder"):
        open_model(folder / "model.safetensors")
