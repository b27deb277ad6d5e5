"""Qwen2 and Qwen2.5, dense: the llama shape with biases on q, k and v.

A GGUF keeps the rows of q and k as they are in the checkpoint.
"""

from __future__ import annotations

from strata.files import ModelFile
from strata.kernels import Kernels
from strata.models import config as arch
from strata.models import llama
from strata.models.config import ArchConfig, HfDefaults
from strata.models.layers import BIASES, AttentionLayer, Decoder, attention, mlp
from strata.models.weights import Names, Weights
from strata.types import ProgressSink

DEFAULTS = HfDefaults()
NAMES: Names = llama.NAMES


def read_config(file: ModelFile) -> ArchConfig:
    """The shape of a Qwen2 model. Raises ModelError."""
    return arch.from_gguf(file) if file.kind == "gguf" else arch.from_hf(file, DEFAULTS)


def layer(weights: Weights, config: ArchConfig, number: int) -> AttentionLayer:
    """One layer."""
    projections = attention(weights, config, number, BIASES)
    return AttentionLayer(projections, mlp(weights, config, number))


def build(file: ModelFile, kernels: Kernels, progress: ProgressSink) -> Decoder:
    """The whole model. Raises ModelError."""
    config, weights = read_config(file), Weights(file, NAMES)
    layers = [layer(weights, config, number) for number in range(config.layers)]
    return Decoder(config, weights, layers, kernels, progress)
