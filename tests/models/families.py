"""Tiny random checkpoints of every hybrid and sparse family, and transformers' logits for them.

Parameters that transformers begins with zeros or ones are random too, so that a test can see
whether they are used.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

VOCAB = 97
EOS = 5
LENGTH = 200

_ATTENTION = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.15,
    "tie_word_embeddings": False,
}
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_SHARED = {"shared_expert_intermediate_size": 24}
_DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "head_dim": 16,
}
_MROPE = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
_MROPE |= {"mrope_section": [2, 1, 1], "mrope_interleaved": True}
_HYBRID = {"num_hidden_layers": 3, "layer_types": ["linear_attention"] * 2 + ["full_attention"]}
_NGRAM = {
    "ple_layer_ids": [2],
    "ple_embed_dim": 32,
    "heads_per_ngram": 2,
    "ngram_vocab_size_base": 60,
    "make_ngram_vocab_size_divisible_by": 8,
    "split_ngram_parts": 4,
}
_FLASH = {
    "hc_count": 4,
    "hc_lowrank": 12,
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 32,
    "indexer_compress_ratio": 4,
    "eos_token_id": [EOS, 7],
    "rope_parameters": _MROPE,
    **_NGRAM,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "Qwen3Moe": {
        **_ATTENTION,
        **_EXPERTS,
        "head_dim": 16,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
    },
    "Olmoe": {
        **_ATTENTION,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "pad_token_id": None,
        "eos_token_id": EOS,
    },
    "Qwen3Next": {
        **_ATTENTION,
        **_EXPERTS,
        **_SHARED,
        **_DELTA,
        **_HYBRID,
        "intermediate_size": 40,
    },
    "Qwen3_5Text": {
        **_ATTENTION,
        **_DELTA,
        **_HYBRID,
        "intermediate_size": 40,
        "rope_parameters": _MROPE,
    },
    "Qwen3_5MoeText": {
        **_ATTENTION,
        **_EXPERTS,
        **_SHARED,
        **_DELTA,
        **_HYBRID,
        "rope_parameters": _MROPE,
    },
    "Qwen4ExpText": {**_ATTENTION, **_EXPERTS, **_SHARED, **_DELTA, **_HYBRID, **_FLASH},
}
FLASH = "Qwen4ExpText"


@dataclass(frozen=True)
class Case:
    """A checkpoint: transformers' name of the config, changes to the smallest settings, a seed."""

    family: str
    changes: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    dtype: torch.dtype = torch.float32
    nested: bool = False  # as the language model of a multimodal one

    @property
    def settings(self) -> dict[str, Any]:
        return {**SETTINGS[self.family], **self.changes}


def tokens(seed: int, length: int = LENGTH) -> list[int]:
    """Random tokens, in which the end of a text occurs often."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, VOCAB, (length,), generator=generator)
    drawn[torch.rand(length, generator=generator) < 0.1] = EOS
    return drawn.tolist()


def make(case: Case, folder: Path) -> Tensor:
    """Save the checkpoint; transformers' logits for `tokens(case.seed)`, float32."""
    torch.manual_seed(1000 + case.seed)
    config = getattr(transformers, f"{case.family}Config")(**case.settings)
    name = f"{case.family.removesuffix('Text')}ForCausalLM"
    model = getattr(transformers, name)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # norms, biases and decays
                parameter += 0.2 * torch.randn_like(parameter)
            elif parameter.std() < 1e-3 or parameter.dim() == 3:  # convolutions, experts
                parameter += 0.15 * torch.randn_like(parameter)
    model.to(case.dtype).save_pretrained(folder)
    stored = type(model).from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        logits: Tensor = stored(torch.tensor([tokens(case.seed)]), use_cache=False).logits[0]
    del model, stored
    gc.collect()
    return logits
