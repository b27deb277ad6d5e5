"""Qwen3.5 and 3.6, dense and with experts: Qwen3-Next's layers with projections apart.

Text only: what a multimodal checkpoint holds for images is left in the file, and the rotary
embedding turns by a token's one position.
"""

from __future__ import annotations

from dataclasses import replace

from strata.files import ModelFile
from strata.kernels import Kernels
from strata.models import config_gguf, config_hf, experts, hybrid
from strata.models.config import ArchConfig
from strata.models.config_hf import HfDefaults
from strata.models.decoder import Decoder
from strata.models.hybrid import CENTRED, ignored
from strata.models.layers import HEAD_NORMS, Attention, Delta, Layer, attention
from strata.models.weights import Names, Weights
from strata.types import ProgressSink

DENSE = HfDefaults(
    head_dim=256,
    partial=0.25,
    mrope=True,
    kinds={"linear_attention": True, "full_attention": False},
    usual={"attn_output_gate": (True,)},
)
SPARSE = replace(
    DENSE,
    sparse=True,
    usual={
        **DENSE.usual,
        "norm_topk_prob": (True,),
        "mlp_only_layers": ([],),
        "decoder_sparse_step": (1,),
    },
)
NAMES: Names = {**hybrid.NAMES, **experts.NAMES}


def read_config(file: ModelFile) -> ArchConfig:
    """The shape of a Qwen3.5 model, which has experts when the file says so. Raises ModelError."""
    if file.kind == "gguf":
        return config_gguf.read(file, hybrid.GGUF_KEYS)
    config = config_hf.text_part(file)
    if "moe" not in file.architecture:
        return replace(config_hf.read(file, DENSE), delta=config_hf.delta(config))
    shared = "shared_expert_intermediate_size"
    return replace(
        config_hf.read(file, SPARSE),
        experts=config_hf.experts(config, normalise=True, shared=shared),
        delta=config_hf.delta(config),
    )


def layer(weights: Weights, config: ArchConfig, number: int) -> Layer:
    """One layer."""
    after = experts.feed_forward(weights, config, number)
    if config.recurrent[number]:
        inputs = hybrid.projections(weights, config, number)
        return (Delta(hybrid.delta(weights, config, number, inputs, tiled=True)), after)
    return (Attention(attention(weights, config, number, HEAD_NORMS, gated=True)), after)


def build(file: ModelFile, kernels: Kernels, progress: ProgressSink) -> Decoder:
    """The whole model. Raises ModelError."""
    config = read_config(file)
    weights = Weights(file, NAMES, centred=CENTRED, ignored=ignored(config))
    layers = [layer(weights, config, number) for number in range(config.layers)]
    return Decoder(config, weights, layers, kernels, progress)
