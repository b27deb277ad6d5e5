"""From a model file to a Decoder: the families, and recommended sampling.

All of them: pre-norm attention with grouped keys, rotary embedding, SwiGLU. A family is a function
that builds a layer, and what a config.json of it may leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from strata.files import ModelFile
from strata.kernels import Kernels
from strata.models.config import ArchConfig, Defaults, read_config
from strata.models.layers import AttentionLayer, Decoder, attention_layer, half_split
from strata.models.weights import Names, Weights
from strata.types import ModelError, ProgressSink, silent

_NAMES: Names = {
    "embedding": ("token_embd.weight", "model.embed_tokens.weight"),
    "attention_norm": ("blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight"),
    "q": ("blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight"),
    "k": ("blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight"),
    "v": ("blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight"),
    "o": ("blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight"),
    "q_bias": ("blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias"),
    "k_bias": ("blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias"),
    "v_bias": ("blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias"),
    "q_norm": ("blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight"),
    "k_norm": ("blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight"),
    "mlp_norm": ("blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight"),
    "gate": ("blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight"),
    "up": ("blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight"),
    "down": ("blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight"),
    "output_norm": ("output_norm.weight", "model.norm.weight"),
    "output": ("output.weight", "lm_head.weight"),
}


BIASES = ("q_bias", "k_bias", "v_bias")
HEAD_NORMS = ("q_norm", "k_norm")


def llama(weights: Weights, config: ArchConfig, number: int) -> AttentionLayer:
    """Llama 2 and 3, SmolLM2, and others that share their shape. Biases are optional.

    In a GGUF the rows of q and k are ordered for a rotation of neighbouring dimensions.
    """
    biases = BIASES if weights.has("q_bias", number) else ()
    layer = attention_layer(weights, config, number, biases)
    return half_split(layer) if weights.gguf else layer


def qwen2(weights: Weights, config: ArchConfig, number: int) -> AttentionLayer:
    """Qwen2 and Qwen2.5: biases on q, k and v; rows as in the checkpoint, also in a GGUF."""
    return attention_layer(weights, config, number, BIASES)


def qwen3(weights: Weights, config: ArchConfig, number: int) -> AttentionLayer:
    """Qwen3: RMS norms on each head of q and k; heads need not divide the hidden size."""
    biases = BIASES if weights.has("q_bias", number) else ()
    return attention_layer(weights, config, number, (*HEAD_NORMS, *biases))


# The names are those of GGUF's general.architecture and of config.json's model_type.
FAMILIES: Mapping[str, tuple[Callable[[Weights, ArchConfig, int], AttentionLayer], Defaults]] = {
    "llama": (llama, Defaults(context=2048)),
    "qwen2": (qwen2, Defaults()),
    "qwen3": (qwen3, Defaults(head_dim=128)),
}


def load(file: ModelFile, kernels: Kernels, *, progress: ProgressSink = silent) -> Decoder:
    """Build the model of a file for the given kernels.

    `progress` is told ("weights", layers done, layers). Raises ModelError for what is unknown,
    damaged or would be computed wrongly.
    """
    if file.architecture not in FAMILIES:
        raise ModelError(
            f"the architecture {file.architecture!r} is not supported; supported:"
            f" {', '.join(FAMILIES)}"
        )
    layer, defaults = FAMILIES[file.architecture]
    config, weights = read_config(file, defaults), Weights(file, _NAMES)
    layers = [layer(weights, config, number) for number in range(config.layers)]
    return Decoder(config, weights, layers, kernels, progress)


# our name -> GGUF key, key of generation_config.json
_SAMPLING: Mapping[str, tuple[str, str]] = {
    "temperature": ("general.sampling.temp", "temperature"),
    "top_p": ("general.sampling.top_p", "top_p"),
    "top_k": ("general.sampling.top_k", "top_k"),
    "min_p": ("general.sampling.min_p", "min_p"),
    "repetition_penalty": ("general.sampling.penalty_repeat", "repetition_penalty"),
}


def sampling_defaults(file: ModelFile) -> dict[str, float]:
    """What the model's authors recommend: fields of `Sampling` -> values; {} when they say nothing.

    A generation_config.json that turns sampling off recommends nothing.
    """
    given: Mapping[str, Any] = file.metadata
    if file.kind == "folder":
        given = file.metadata["generation_config"]
        if given.get("do_sample") is False:
            return {}
    found: dict[str, float] = {}
    for name, keys in _SAMPLING.items():
        value = given.get(keys[file.kind == "folder"])
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            found[name] = int(value) if name == "top_k" else float(value)
    return found
