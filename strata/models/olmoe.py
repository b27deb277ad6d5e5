"""OLMoE: the llama shape with a mixture of experts in every layer.

Queries and keys are normed over all their heads together. Probabilities of the chosen experts
are used as they are unless the config normalises them.
"""

from __future__ import annotations

from dataclasses import replace

from strata.files import ModelFile
from strata.kernels import Kernels
from strata.models import config_gguf, config_hf, experts, qwen3
from strata.models.config import ArchConfig
from strata.models.config_hf import HfDefaults
from strata.models.decoder import Decoder
from strata.models.layers import Attention, Layer, attention
from strata.models.weights import Names, Weights
from strata.types import ProgressSink

DEFAULTS = HfDefaults(eps=1e-5, context=4096, sparse=True)
NAMES: Names = {**qwen3.NAMES, **experts.NAMES}


def read_config(file: ModelFile) -> ArchConfig:
    """The shape of an OLMoE model. Raises ModelError."""
    if file.kind == "gguf":
        return config_gguf.read(file, config_gguf.EXPERTS, normalise=False)
    config = config_hf.text_part(file)
    shape = config_hf.experts(config, normalise=False, ffn="intermediate_size")
    return replace(config_hf.read(file, DEFAULTS), experts=shape)


def layer(weights: Weights, config: ArchConfig, number: int) -> Layer:
    """One layer."""
    plain = attention(weights, config, number)
    q_norm = weights.vector("q_norm", number, config.heads * config.head_dim)
    k_norm = weights.vector("k_norm", number, config.kv_heads * config.head_dim)
    projections = replace(plain, q_norm=q_norm, k_norm=k_norm)
    return (Attention(projections), experts.feed_forward(weights, config, number))


def build(file: ModelFile, kernels: Kernels, progress: ProgressSink) -> Decoder:
    """The whole model. Raises ModelError."""
    config, weights = read_config(file), Weights(file, NAMES)
    layers = [layer(weights, config, number) for number in range(config.layers)]
    return Decoder(config, weights, layers, kernels, progress)
