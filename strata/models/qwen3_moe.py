"""Qwen3-MoE: Qwen3's attention, and a mixture of experts in all or most layers.

Probabilities of the chosen experts are used as they are unless the config normalises them.
"""

from __future__ import annotations

from dataclasses import replace

from strata.files import ModelFile
from strata.kernels import Kernels
from strata.models import config_gguf, config_hf, experts, qwen3
from strata.models.config import ArchConfig
from strata.models.config_hf import HfDefaults
from strata.models.decoder import Decoder
from strata.models.layers import HEAD_NORMS, Attention, Layer, attention
from strata.models.weights import Names, Weights
from strata.types import ProgressSink

DEFAULTS = HfDefaults(sparse=True)
NAMES: Names = {**qwen3.NAMES, **experts.NAMES}


def read_config(file: ModelFile) -> ArchConfig:
    """The shape of a Qwen3-MoE model. Raises ModelError."""
    if file.kind == "gguf":
        return config_gguf.read(file, config_gguf.EXPERTS)
    shape = config_hf.experts(config_hf.text_part(file), normalise=False)
    return replace(config_hf.read(file, DEFAULTS), experts=shape)


def layer(weights: Weights, config: ArchConfig, number: int) -> Layer:
    """One layer."""
    projections = attention(weights, config, number, HEAD_NORMS)
    return (Attention(projections), experts.feed_forward(weights, config, number))


def build(file: ModelFile, kernels: Kernels, progress: ProgressSink) -> Decoder:
    """The whole model. Raises ModelError."""
    config, weights = read_config(file), Weights(file, NAMES)
    layers = [layer(weights, config, number) for number in range(config.layers)]
    return Decoder(config, weights, layers, kernels, progress)
