"""What is refused, with which words; progress; recommended sampling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from strata.files import ModelFile, open_model
from strata.kernels import choose
from strata.memory.arena import SlotArena
from strata.memory.layout import page_layout
from strata.models import loader
from strata.types import Backend, ModelError

SHAPE = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
}


def load(path: Path, **options: Any) -> loader.Model:
    return loader.load(open_model(path), choose(Backend.REFERENCE, "cpu", 1), **options)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen3")
    Qwen3ForCausalLM(Qwen3Config(**SHAPE, tie_word_embeddings=False)).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    """A folder of its own for a test to damage."""
    for path in pristine.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in config.items() if v != "gone"}))


def change_tensors(folder: Path, change: Any) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def test_shape_and_memory(folder: Path) -> None:
    model = load(folder)
    assert (model.architecture, model.vocab_size, model.context_length) == ("qwen3", 40, 32768)
    stored = (folder / "model.safetensors").stat().st_size
    assert 0 < stored - model.weight_bytes < 5000  # all but the header
    k, v = model.memory(16)[1].page
    assert (k.name, k.shape, v.name, v.shape) == ("0.k", (1, 16, 16), "0.v", (1, 16, 16))
    assert len(model.memory(16)) == 2 and model.memory(16)[0].state == ()


def test_progress_is_told(folder: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    model = load(folder, progress=lambda *step: told.append(step))
    before = model.memory(16)
    model.bind(SlotArena(2, page_layout(before).nbytes), None, 16)
    assert told[0] == ("weights", 0, 2) and told[-1] == ("weights", 2, 2)
    assert model.memory(16) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mamba"}, "'mamba' is not supported; supported: llama, qwen2, qwen3"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"use_sliding_window": True}, "use_sliding_window = True"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "kind sliding_attention"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping = 30.0"),
        ({"quantization_config": {"quant_method": "eetq"}}, "quantised with eetq"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "rope type 'longrope'"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope type 'dynamic'"),
        ({"rope_parameters": {"rope_type": "linear"}}, "factor must be a positive number"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2, "x": 1}}, "with x is not supp"),
        ({"rope_parameters": {"mrope_section": [1, 2, 3]}}, "with mrope_section is not supp"),
        ({"hidden_size": "gone"}, "does not say hidden_size"),
        ({"hidden_size": "32"}, "hidden_size is '32'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"rms_norm_eps": True}, "rms_norm_eps is True"),
        ({"num_key_value_heads": 3}, "2 attention heads cannot share 3"),
        ({"num_attention_heads": [2, 4]}, "differs from layer to layer"),
        ({"intermediate_size": 64}, r"'model.layers.0.mlp.gate_proj.weight' has the shape \(48"),
        ({"num_hidden_layers": 3}, "no tensor 'model.layers.2"),
        ({"num_hidden_layers": 1}, "11 tensors that the architecture qwen3 does not use"),
    ],
)
def test_configurations_that_are_refused(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    change_config(folder, **changes)
    with pytest.raises(ModelError, match=message):
        load(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_max_length": 7, "unsloth_fixed": True, "final_logit_softcapping": None},
        {"num_experts": 0, "layer_types": ["full_attention"] * 2, "sliding_window": 4096},
        {"rope_parameters": None, "rope_theta": 1e6},
    ],
)
def test_keys_that_change_nothing_are_no_obstacle(folder: Path, changes: dict[str, Any]) -> None:
    change_config(folder, **changes)
    assert load(folder).vocab_size == 40


def test_a_missing_tensor_is_named(folder: Path) -> None:
    change_tensors(folder, lambda t: t.pop("model.layers.1.self_attn.k_norm.weight"))
    with pytest.raises(ModelError, match=r"no tensor 'model.layers.1.self_attn.k_norm.weight'"):
        load(folder)


def test_a_tensor_that_nobody_uses_is_named(folder: Path) -> None:
    change_tensors(folder, lambda t: t.update({"model.layers.0.mlp.bonus": torch.ones(2)}))
    with pytest.raises(ModelError, match=r"model.layers.0.mlp.bonus"):
        load(folder)


def test_a_weight_of_integers_is_refused(folder: Path) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    change_tensors(folder, lambda t: t.update({name: torch.zeros(48, 32, dtype=torch.int64)}))
    with pytest.raises(ModelError, match=r"up_proj.weight.*not supported; supported are F32"):
        load(folder)


def test_a_tied_model_may_store_its_head(folder: Path) -> None:
    change_config(folder, tie_word_embeddings=True)
    untied = load(folder)
    change_tensors(folder, lambda t: t.pop("lm_head.weight"))
    assert load(folder).weight_bytes == untied.weight_bytes


# -------------------------------------------------------------------- GGUF


def tiny_gguf(path: Path, extra: dict[str, Any], arch: str = "qwen3") -> Path:
    """A whole model of one layer, zeros throughout; `extra` adds or replaces keys."""
    writer = gguf.GGUFWriter(path, arch)
    keys: dict[str, Any] = {
        "block_count": 1,
        "context_length": 64,
        "embedding_length": 32,
        "feed_forward_length": 32,
        "attention.head_count": 2,
        "attention.head_count_kv": 1,
        "attention.layer_norm_rms_epsilon": 1e-6,
        **extra,
    }
    for key, value in keys.items():
        if isinstance(value, bool):
            writer.add_bool(f"{arch}.{key}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{arch}.{key}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"{arch}.{key}", value)
        elif isinstance(value, list):
            writer.add_array(f"{arch}.{key}", value)
        elif value is not None:
            writer.add_string(f"{arch}.{key}", value)
    shapes = {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32)}
    shapes |= {"ffn_gate": (32, 32), "ffn_up": (32, 32), "ffn_down": (32, 32)}
    vectors = {"attn_norm": (32,), "ffn_norm": (32,), "attn_q_norm": (16,), "attn_k_norm": (16,)}
    for name, shape in {**shapes, **vectors}.items():
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros(shape, np.float32))
    writer.add_tensor("token_embd.weight", np.zeros((40, 32), np.float32))
    writer.add_tensor("output_norm.weight", np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"attention.sliding_window": 512}, "qwen3.attention.sliding_window = 512"),
        ({"expert_count": 8}, "qwen3.expert_count = 8"),
        ({"logit_scale": 0.25}, "qwen3.logit_scale = 0.25"),
        ({"attention.causal": False}, "qwen3.attention.causal = False"),
        ({"something.new": "x"}, "qwen3.something.new = 'x'"),
        ({"rope.scaling.type": "longrope"}, "rope scaling 'longrope'"),
        ({"rope.scaling.yarn_log_multiplier": 0.1}, "yarn_log_multiplier"),
        ({"rope.dimension_count": 18}, "18 dimensions does not fit heads of 16"),
        ({"rope.dimension_count": 7}, "7 dimensions does not fit"),
        ({"attention.value_length": 8}, "keys and values of different lengths"),
        ({"attention.head_count_kv": [1, 1]}, "differs from layer to layer"),
        ({"feed_forward_length": None}, "does not say feed_forward_length"),
        ({"attention.layer_norm_rms_epsilon": None}, "layer_norm_rms_epsilon is None"),
        ({"embedding_length": 64}, r"attn_q_norm.weight' has the shape \(16,\), not \(32,"),
    ],
)
def test_ggufs_that_are_refused(tmp_path: Path, extra: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(tiny_gguf(tmp_path / "m.gguf", extra))


@pytest.mark.parametrize(
    "extra", [{}, {"vocab_size": 40}, {"expert_count": 0, "attention.causal": True}]
)
def test_ggufs_that_are_accepted(tmp_path: Path, extra: dict[str, Any]) -> None:
    model = load(tiny_gguf(tmp_path / "m.gguf", extra))
    assert (model.context_length, model.vocab_size, model.name) == (64, 40, "m")


def test_head_norms_are_refused_in_a_llama(tmp_path: Path) -> None:
    """The same tensors under an architecture whose arithmetic has no place for them."""
    with pytest.raises(ModelError, match=r"blk.0.attn_k_norm.weight"):
        load(tiny_gguf(tmp_path / "m.gguf", {}, arch="llama"))


def test_biases_are_required_in_a_qwen2(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no tensor 'blk.0.attn_q.bias'"):
        load(tiny_gguf(tmp_path / "m.gguf", {}, arch="qwen2"))


# ---------------------------------------------------------------- sampling


def test_sampling_of_a_folder() -> None:
    given = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.1, "x": 1}

    def recommended(**more: Any) -> dict[str, float]:
        metadata = {"generation_config": {**given, **more}}
        return loader.sampling_defaults(ModelFile("folder", Path(), "llama", metadata, {}))

    expected = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.1}
    assert recommended() == recommended(do_sample=True) == expected
    assert recommended(do_sample=False) == {}
    assert recommended(temperature=None, top_k="20", top_p=-1, repetition_penalty=True) == {}


def test_sampling_of_a_gguf() -> None:
    metadata = {"general.sampling.temp": 0.7, "general.sampling.top_k": 40, "general.name": "x"}
    file = ModelFile("gguf", Path(), "llama", metadata, {})
    assert loader.sampling_defaults(file) == {"temperature": 0.7, "top_k": 40}
