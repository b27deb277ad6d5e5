"""Logits of random Hugging Face checkpoints against transformers on the same weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

TOKENS = torch.randint(0, 97, (90,), generator=torch.Generator().manual_seed(3)).tolist()
ROPE = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn2": {
        "rope_type": "yarn",
        "factor": 2.5,
        "original_max_position_embeddings": 64,
        "beta_fast": 20.0,
        "beta_slow": 2.0,
        "mscale": 1.3,
        "mscale_all_dim": 0.7,
    },
}


def rope(kind: str, theta: float = 10000.0) -> dict[str, Any]:
    return {"rope_parameters": {**ROPE[kind], "rope_theta": theta}}


# name -> family, changes to the smallest configuration, dtype of the file
CASES: dict[str, tuple[str, dict[str, Any], torch.dtype]] = {
    "llama": ("Llama", {}, torch.float32),
    "llama-f16": ("Llama", {}, torch.float16),
    "llama-bf16": ("Llama", {}, torch.bfloat16),
    "llama-tied": ("Llama", {"tie_word_embeddings": True}, torch.float32),
    "llama-9-heads": (
        "Llama",
        {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 72},
        torch.float32,
    ),
    "llama-one-kv": ("Llama", {"num_key_value_heads": 1}, torch.float32),
    "llama-all-kv": ("Llama", {"num_key_value_heads": 4}, torch.float32),
    "llama-head-24": ("Llama", {"head_dim": 24}, torch.float32),
    "llama-theta": (
        "Llama",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        torch.float32,
    ),
    "llama-linear": ("Llama", rope("linear"), torch.float32),
    "llama-llama3": ("Llama", rope("llama3", 5e5), torch.float32),
    "llama-yarn": ("Llama", rope("yarn"), torch.float32),
    "qwen2": ("Qwen2", {}, torch.float32),
    "qwen2-tied-bf16": ("Qwen2", {"tie_word_embeddings": True}, torch.bfloat16),
    "qwen2-yarn": ("Qwen2", rope("yarn2", 1e6), torch.float32),
    "qwen2-7-heads": (
        "Qwen2",
        {"num_attention_heads": 7, "num_key_value_heads": 1, "hidden_size": 56},
        torch.float32,
    ),
    "qwen3": ("Qwen3", {"head_dim": 16}, torch.float32),
    "qwen3-tied": ("Qwen3", {"head_dim": 32, "tie_word_embeddings": True}, torch.float32),
    "qwen3-5-heads-yarn": (
        "Qwen3",
        {
            "head_dim": 40,
            "num_attention_heads": 5,
            "num_key_value_heads": 5,
            **rope("yarn", 1e6),
        },
        torch.float32,
    ),
}


def checkpoint(folder: Path, family: str, changes: dict[str, Any], dtype: torch.dtype) -> Tensor:
    """Save a random model in `dtype`; its logits in float32."""
    torch.manual_seed(len(str(changes)))
    settings = {
        "vocab_size": 97,
        "hidden_size": 64,
        "intermediate_size": 80,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "initializer_range": 0.15,
        **changes,
    }
    config = getattr(transformers, f"{family}Config")(**settings)
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    for parameter in model.parameters():
        if parameter.dim() == 1:  # norms and biases, which begin as ones and zeros
            parameter.data += 0.2 * torch.randn_like(parameter)
    model.to(dtype).save_pretrained(folder)
    stored = type(model).from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        logits: Tensor = stored(torch.tensor([TOKENS])).logits[0]
    return logits


@pytest.mark.parametrize("case", CASES)
def test_reference_logits(case: str, tmp_path: Path, load: Callable[..., Any]) -> None:
    expected = checkpoint(tmp_path, *CASES[case])
    assert expected.std() > 0.5  # a comparison of almost equal logits would show nothing
    bench = load(tmp_path, "reference")
    for chunk in (None, 64, 7, 1):
        worst = (bench.logits(TOKENS, chunk) - expected).abs().max()
        assert worst < 1e-4, f"chunks of {chunk}: {worst}"


@pytest.mark.parametrize("case", CASES)
def test_native_logits(case: str, tmp_path: Path, load: Callable[..., Any]) -> None:
    """Keys and values are stored in f16, which is nearly all of the difference."""
    expected = checkpoint(tmp_path, *CASES[case])
    bench = load(tmp_path, "native")
    whole = bench.logits(TOKENS)
    p, q = expected.double().log_softmax(-1), whole.double().log_softmax(-1)
    assert (p.exp() * (p - q)).sum(-1).mean() < 2e-6
    assert (whole - expected).abs().max() < 1e-2 * expected.std()
    rounded = load(tmp_path, "reference", kv_dtype="float16").logits(TOKENS)
    assert (whole - rounded).abs().max() < 3e-3 * expected.std()
    for chunk in (64, 7, 1):
        assert torch.equal(bench.logits(TOKENS, chunk), whole), f"chunks of {chunk}"


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_old_form_of_rope_settings(backend: str, tmp_path: Path, load: Callable[..., Any]) -> None:
    """config.json as transformers before 5 wrote it: rope_theta and rope_scaling at the top."""
    expected = checkpoint(tmp_path, *CASES["llama-llama3"])
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    scaling["type"] = scaling.pop("rope_type")
    path.write_text(json.dumps({**config, "rope_scaling": scaling}))
    got = load(tmp_path, backend).logits(TOKENS)
    assert (got - expected).abs().max() < 1e-2 * expected.std()
