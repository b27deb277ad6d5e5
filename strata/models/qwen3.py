"""Qwen3, dense: the llama shape with RMS norms on each head of q and k.

Heads need not divide the hidden size. A GGUF keeps the rows of q and k as they
are in the checkpoint.
"""

from __future__ import annotations

from strata.files import ModelFile
from strata.kernels import Kernels
from strata.models import config_gguf, config_hf, llama
from strata.models.config import ArchConfig
from strata.models.config_hf import HfDefaults
from strata.models.decoder import Decoder
from strata.models.layers import BIASES, HEAD_NORMS, Attention, Layer, Mlp, attention, mlp
from strata.models.weights import Names, Weights
from strata.types import ProgressSink

DEFAULTS = HfDefaults(head_dim=128)
NAMES: Names = {
    **llama.NAMES,
    "q_norm": ("blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight"),
    "k_norm": ("blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight"),
}


def read_config(file: ModelFile) -> ArchConfig:
    """The shape of a Qwen3 model. Raises ModelError."""
    return config_gguf.read(file) if file.kind == "gguf" else config_hf.read(file, DEFAULTS)


def layer(weights: Weights, config: ArchConfig, number: int) -> Layer:
    """One layer."""
    biases = BIASES if weights.has("q_bias", number) else ()
    projections = attention(weights, config, number, HEAD_NORMS + biases)
    return (Attention(projections), Mlp(mlp(weights, config, number)))


def build(file: ModelFile, kernels: Kernels, progress: ProgressSink) -> Decoder:
    """The whole model. Raises ModelError."""
    config, weights = read_config(file), Weights(file, NAMES)
    layers = [layer(weights, config, number) for number in range(config.layers)]
    return Decoder(config, weights, layers, kernels, progress)
