"""The llama family: Llama 2 and 3, SmolLM2, and others that share its shape; in a GGUF also with
experts (Mixtral).

Pre-norm attention with grouped keys, rotary embedding, SwiGLU; optional biases
on q, k and v. In a GGUF the rows of q and k are ordered for a rotation of
neighbouring dimensions.
"""

from __future__ import annotations

from strata.files import ModelFile
from strata.kernels import Kernels
from strata.models import config_gguf, config_hf, experts
from strata.models.config import ArchConfig
from strata.models.config_hf import HfDefaults
from strata.models.decoder import Decoder
from strata.models.layers import BIASES, Attention, Layer, attention
from strata.models.weights import Names, Weights
from strata.types import ProgressSink

DEFAULTS = HfDefaults(context=2048)


def read_config(file: ModelFile) -> ArchConfig:
    """The shape of a llama model. Raises ModelError."""
    return (
        config_gguf.read(file, config_gguf.EXPERTS)
        if file.kind == "gguf"
        else config_hf.read(file, DEFAULTS)
    )


def layer(weights: Weights, config: ArchConfig, number: int) -> Layer:
    """One layer."""
    biases = BIASES if weights.has("q_bias", number) else ()
    attend = Attention(attention(weights, config, number, biases), weights.file.kind == "gguf")
    return (attend, experts.feed_forward(weights, config, number))


def build(file: ModelFile, kernels: Kernels, progress: ProgressSink) -> Decoder:
    """The whole model. Raises ModelError."""
    config, weights = read_config(file), Weights(file, {**NAMES, **experts.NAMES})
    layers = [layer(weights, config, number) for number in range(config.layers)]
    return Decoder(config, weights, layers, kernels, progress)


NAMES: Names = {
    "embedding": ("token_embd.weight", "model.embed_tokens.weight"),
    "attention_norm": ("blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight"),
    "q": ("blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight"),
    "k": ("blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight"),
    "v": ("blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight"),
    "o": ("blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight"),
    "q_bias": ("blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias"),
    "k_bias": ("blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias"),
    "v_bias": ("blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias"),
    "mlp_norm": ("blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight"),
    "gate": ("blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight"),
    "up": ("blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight"),
    "down": ("blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight"),
    "output_norm": ("output_norm.weight", "model.norm.weight"),
    "output": ("output.weight", "lm_head.weight"),
}
