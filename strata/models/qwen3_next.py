"""Qwen3-Next: three Gated DeltaNet layers, then one of gated attention; experts throughout.

Attention rotates a quarter of each head and multiplies its output by the sigmoid of a gate. A
shared expert runs for every token. A Hugging Face checkpoint joins the projections of a
recurrent layer by key head.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from strata.files import ModelFile
from strata.kernels import Kernels
from strata.kernels.quant import QTensor
from strata.models import config_gguf, config_hf, experts, hybrid
from strata.models.config import ArchConfig, DeltaShape
from strata.models.config_hf import HfDefaults
from strata.models.decoder import Decoder
from strata.models.hybrid import CENTRED, Projections, ignored
from strata.models.layers import HEAD_NORMS, Attention, Delta, Layer, attention
from strata.models.weights import Names, Weights
from strata.types import ProgressSink

DEFAULTS = HfDefaults(
    head_dim=256,
    partial=0.25,
    sparse=True,
    kinds={"linear_attention": True, "full_attention": False},
    usual={"attn_output_gate": (True,)},
)
NAMES: Names = {
    **hybrid.NAMES,
    **experts.NAMES,
    "delta_qkvz": ("blk.{}.ssm_in.weight", "model.layers.{}.linear_attn.in_proj_qkvz.weight"),
    "delta_ba": ("blk.{}.ssm_ba.weight", "model.layers.{}.linear_attn.in_proj_ba.weight"),
}


def read_config(file: ModelFile) -> ArchConfig:
    """The shape of a Qwen3-Next model. Raises ModelError."""
    if file.kind == "gguf":
        return config_gguf.read(file, hybrid.GGUF_KEYS)
    config = config_hf.text_part(file)
    shared = "shared_expert_intermediate_size"
    return replace(
        config_hf.read(file, DEFAULTS),
        experts=config_hf.experts(config, normalise=True, shared=shared),
        delta=config_hf.delta(config),
    )


def layer(weights: Weights, config: ArchConfig, number: int) -> Layer:
    """One layer."""
    after = experts.feed_forward(weights, config, number)
    if config.recurrent[number]:
        inputs = projections(weights, config, number)
        return (Delta(hybrid.delta(weights, config, number, inputs)), after)
    return (Attention(attention(weights, config, number, HEAD_NORMS, gated=True)), after)


def projections(weights: Weights, config: ArchConfig, number: int) -> Projections:
    """Those of a recurrent layer, whose rows a checkpoint orders by key head: of each, its query,
    its key, then values and gates of its value heads; and beta, alpha of its value heads. Most
    GGUF files hold the former apart and in order.
    """
    s, hidden = hybrid.shape(config), config.hidden
    group = s.v_heads // s.k_heads
    gates = weights.matrix("delta_ba", number, 2 * s.v_heads, hidden)
    beta, alpha = torch.arange(gates.rows).view(s.k_heads, 2, group).unbind(1)
    qkv, z = _values_and_gates(weights, s, number, hidden)
    return Projections(
        qkv=qkv,
        z=z,
        beta=gates.pick(beta.reshape(-1)),
        alpha=gates.pick(alpha.reshape(-1)),
    )


def _values_and_gates(
    weights: Weights, s: DeltaShape, number: int, hidden: int
) -> tuple[QTensor, QTensor]:
    inner, narrow = s.v_heads * s.dim, s.k_heads * s.dim
    if weights.file.kind == "gguf" and weights.has("delta_qkv", number):
        qkv = weights.matrix("delta_qkv", number, 2 * narrow + inner, hidden)
        return qkv, weights.matrix("delta_z", number, inner, hidden)
    group = s.v_heads // s.k_heads
    first, second = 2 * s.dim, (2 + group) * s.dim  # where values and gates of a key head begin
    joined = weights.matrix("delta_qkvz", number, 2 * (narrow + inner), hidden)
    rows = torch.arange(joined.rows).view(s.k_heads, -1)
    parts = (rows[:, : s.dim], rows[:, s.dim : first], rows[:, first:second])
    qkv = joined.pick(torch.cat([part.reshape(-1) for part in parts]))
    return qkv, joined.pick(rows[:, second:].reshape(-1))


def build(file: ModelFile, kernels: Kernels, progress: ProgressSink) -> Decoder:
    """The whole model. Raises ModelError."""
    config = read_config(file)
    weights = Weights(file, NAMES, centred=CENTRED, ignored=ignored(config))
    layers = [layer(weights, config, number) for number in range(config.layers)]
    return Decoder(config, weights, layers, kernels, progress)
