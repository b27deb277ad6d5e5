"""Folders that `strata synth` writes: transformers and Strata read the same model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from strata.synth import folder
from strata.synth.shape import FAMILIES, Shape

SHAPE = Shape(
    layers=4,
    hidden=64,
    heads=4,
    kv_heads=2,
    head_dim=32,
    ffn=96,
    experts=6,
    top_k=2,
    expert_ffn=32,
    shared_ffn=48,
    vocab=600,
    key_heads=2,
    value_heads=4,
    state_dim=16,
    stream_rank=16,
    index_dim=32,
    index_budget=16,
    ngram_heads=2,
    ngram_vocab=50,
)
SHAPES = dict.fromkeys(FAMILIES, SHAPE) | {"olmoe": replace(SHAPE, kv_heads=4, head_dim=16)}
TOKENS = torch.randint(0, 600, (50,), generator=torch.Generator().manual_seed(5)).tolist()


@pytest.mark.parametrize("name", FAMILIES)
def test_transformers_reads_the_folder(name: str, tmp_path: Path, load: Callable[..., Any]) -> None:
    """With no weight missing or left, the same tokens, and the logits that Strata gives."""
    folder.write(tmp_path, FAMILIES[name], SHAPES[name], "F32", 1, lambda *_: None)
    model, found = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(found.values()), found
    with torch.no_grad():
        logits = model.eval()(torch.tensor([TOKENS])).logits[0]
    assert logits.std() > 1
    assert (load(tmp_path, "reference", 64).logits(TOKENS) - logits).abs().max() < 1e-3
