"""Tiny random checkpoints of every hybrid and sparse family, and transformers' logits for them.

Parameters that transformers begins with zeros or ones are random too, so that a test can see
whether they are used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

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
    "initializer_range": 0.1,
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
    "rms_norm_eps": 1e-4,  # with 1e-6 an output that is almost zero magnifies rounding 1000 times
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
    "initializer_range": 0.15,
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
_VISION = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "out_hidden_size": 32,
    "patch_size": 4,
    "num_position_embeddings": 16,
}


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


def _heads(count: int, kv: int, hidden: int = 32) -> dict[str, int]:
    return {"num_attention_heads": count, "num_key_value_heads": kv, "hidden_size": hidden}


def _delta_heads(keys: int, values: int) -> dict[str, int]:
    return {"linear_num_key_heads": keys, "linear_num_value_heads": values}


def _experts(count: int, top: int, **more: Any) -> dict[str, Any]:
    return {"num_experts": count, "num_experts_per_tok": top, **more}


MOE, OLMOE, NEXT = "Qwen3Moe", "Olmoe", "Qwen3Next"
DENSE, SPARSE, FLASH = "Qwen3_5Text", "Qwen3_5MoeText", "Qwen4ExpText"
_TYPES = "layer_types"
_LINEAR, _FULL = "linear_attention", "full_attention"
CASES: dict[str, Case] = {
    "qwen3moe": Case(MOE),
    "qwen3moe-5-heads-one-kv": Case(MOE, {**_heads(5, 1), "tie_word_embeddings": True}, 1),
    "qwen3moe-one-expert": Case(MOE, _experts(1, 1), 2),
    "qwen3moe-all-experts": Case(MOE, _experts(4, 4, norm_topk_prob=True), 3, torch.bfloat16),
    "qwen3moe-dense-layers": Case(MOE, {"mlp_only_layers": [2], "decoder_sparse_step": 2}, 4),
    "olmoe": Case(OLMOE),
    "olmoe-3-heads-one-kv": Case(OLMOE, {**_heads(3, 1, 48), "norm_topk_prob": True}, 1),
    "olmoe-all-experts": Case(OLMOE, _experts(5, 5), 2, torch.float16),
    "qwen3next": Case(NEXT),
    "qwen3next-odd-heads": Case(NEXT, {**_heads(5, 1), **_delta_heads(3, 3)}, 1),
    "qwen3next-3-values-a-key": Case(
        NEXT, {**_delta_heads(2, 6), "linear_conv_kernel_dim": 2}, 2, torch.bfloat16
    ),
    "qwen3next-one-expert": Case(NEXT, _experts(1, 1), 3),
    "qwen3next-dense-layers": Case(
        NEXT, {_TYPES: None, "full_attention_interval": 2, "mlp_only_layers": [1]}, 4
    ),
    "qwen3next-all-experts": Case(NEXT, _experts(4, 4, norm_topk_prob=False), 5),
    "qwen35": Case(DENSE),
    "qwen35-odd-heads": Case(
        DENSE, {**_heads(3, 3, 48), **_delta_heads(1, 3), "tie_word_embeddings": True}, 1
    ),
    "qwen35-multimodal": Case(DENSE, {_TYPES: [_FULL, _LINEAR, _LINEAR]}, 2, nested=True),
    "qwen35moe": Case(SPARSE),
    "qwen35moe-one-kv-one-expert": Case(SPARSE, {**_heads(4, 1), **_experts(1, 1)}, 1),
    "qwen35moe-multimodal": Case(SPARSE, _experts(5, 5), 2, torch.bfloat16, nested=True),
    "flash": Case(FLASH),
    "flash-without-ngrams": Case(FLASH, {"ple_layer_ids": []}, 1),
    "flash-within-budget": Case(FLASH, {"indexer_budget": 200, "output_gate_type": "sigmoid"}, 2),
    "flash-small-budget": Case(
        FLASH, {"indexer_budget": 4, "indexer_compress_ratio": 2, "indexer_n_heads": 3}, 3
    ),
    "flash-two-ngram-layers": Case(
        FLASH, {"ple_layer_ids": [1, 2], "ngram_size": 4, "ple_embed_dim": 48, "seed": 77}, 4
    ),
    "flash-odd-heads": Case(
        FLASH, {**_heads(5, 1), **_delta_heads(3, 9), "hc_count": 3, "ple_conv_kernel_size": 3}, 5
    ),
    "flash-multimodal": Case(
        FLASH, {**_experts(4, 4), "output_gate_type": "sigmoid"}, 6, torch.bfloat16, nested=True
    ),
}


def tokens(seed: int, length: int = LENGTH) -> list[int]:
    """Random tokens, in which the end of a text occurs often."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, VOCAB, (length,), generator=generator)
    drawn[torch.rand(length, generator=generator) < 0.1] = EOS
    return drawn.tolist()


def make(case: Case, folder: Path, **saving: Any) -> Tensor:
    """Save the checkpoint; transformers' logits for `tokens(case.seed)`, float32 [n, vocab]."""
    torch.manual_seed(1000 + case.seed)
    name = case.family.removesuffix("Text")
    if case.nested:
        kind = getattr(transformers, f"{name}ForConditionalGeneration")
        whole = getattr(transformers, f"{name}Config")
        config = whole(text_config=case.settings, vision_config=_VISION)
    else:
        kind = getattr(transformers, f"{name}ForCausalLM")
        config = getattr(transformers, f"{case.family}Config")(**case.settings)
    model = kind(config)
    _stir(model)
    model.to(case.dtype).save_pretrained(folder, **saving)
    stored = kind.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad(), mock.patch.object(torch.Tensor, "topk", _earlier):
        logits: Tensor = stored(torch.tensor([tokens(case.seed)]), use_cache=False).logits[0]
    return logits


def _earlier(scores: Tensor, k: int, dim: int = -1) -> Any:
    """topk, which leaves open what it takes of equal values: the earlier one. transformers' block
    indexer calls it, where equal scores are common, since no score is below zero.
    """
    ranked = scores.sort(dim=dim, descending=True, stable=True)
    values, indices = (part.narrow(dim, 0, k) for part in ranked)
    return torch.return_types.topk((values, indices))


@torch.no_grad()
def _stir(model: torch.nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if name.endswith("A_log"):  # memories of one to a hundred tokens
            parameter.uniform_(-5, 0.5)
        elif parameter.dim() == 1:  # norms and biases
            parameter += 0.2 * torch.randn_like(parameter)
        elif parameter.dim() == 3 and parameter.shape[1] == 1:  # convolutions
            parameter.copy_(0.5 * torch.randn_like(parameter))
        elif name.endswith("gate.weight"):  # of experts: a choice that no rounding changes
            parameter.copy_(torch.randn_like(parameter))
