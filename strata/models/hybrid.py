"""Gated DeltaNet layers: the builder that their families share, and the names they have in common.

The four projections come apart from the rest, because the families store them differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strata.kernels.delta import DeltaWeights
from strata.kernels.quant import QTensor
from strata.kernels.residual import Residual
from strata.models import config_gguf, llama
from strata.models.config import ArchConfig, DeltaShape
from strata.models.layers import pre_norm
from strata.models.weights import Names, Weights


@dataclass(frozen=True, slots=True)
class Projections:
    """What a Gated DeltaNet makes of its input, in the terms of strata.kernels.delta."""

    qkv: QTensor
    z: QTensor
    beta: QTensor
    alpha: QTensor


def shape(config: ArchConfig) -> DeltaShape:
    """The shape of the recurrent layers, in a family that has them."""
    assert config.delta is not None
    return config.delta


def projections(weights: Weights, config: ArchConfig, layer: int) -> Projections:
    """The projections, each a matrix of its own."""
    s, hidden = shape(config), config.hidden
    inner = s.v_heads * s.dim
    return Projections(
        qkv=weights.matrix("delta_qkv", layer, 2 * s.k_heads * s.dim + inner, hidden),
        z=weights.matrix("delta_z", layer, inner, hidden),
        beta=weights.matrix("delta_beta", layer, s.v_heads, hidden),
        alpha=weights.matrix("delta_alpha", layer, s.v_heads, hidden),
    )


def delta(
    weights: Weights,
    config: ArchConfig,
    layer: int,
    inputs: Projections,
    residual: Residual | None = None,
    tiled: bool = False,
) -> DeltaWeights:
    """The Gated DeltaNet of a layer. `residual`: "attention_norm" by default. `tiled`: a GGUF of
    the family orders value heads so that key heads repeat as a whole.
    """
    s = shape(config)
    channels = (2 * s.k_heads + s.v_heads) * s.dim
    decay = weights.vector("delta_decay", layer, s.v_heads)
    if weights.file.kind == "folder":  # its logarithm; a GGUF holds the decay itself
        decay = -decay.exp()
    return DeltaWeights(
        residual=residual or pre_norm(weights, config, layer, "attention_norm"),
        qkv=inputs.qkv,
        z=inputs.z,
        beta=inputs.beta,
        alpha=inputs.alpha,
        conv=weights.values("delta_conv", layer, channels, s.kernel),
        decay=decay,
        dt_bias=weights.vector("delta_dt", layer, s.v_heads),
        norm=weights.vector("delta_norm", layer, s.dim),
        eps=config.eps,
        out=weights.matrix("delta_out", layer, config.hidden, s.v_heads * s.dim),
        k_heads=s.k_heads,
        v_heads=s.v_heads,
        dim=s.dim,
        tiled=tiled and weights.file.kind == "gguf",
        sigmoid_gate=s.sigmoid_gate,
    )


GGUF_KEYS = config_gguf.EXPERTS | config_gguf.RECURRENT
# Stored less one in a Hugging Face checkpoint: all norms but that of the Gated DeltaNet's output.
CENTRED = ("attention_norm", "mlp_norm", "q_norm", "k_norm", "output_norm")

_LINEAR = "model.layers.{}.linear_attn."
NAMES: Names = {
    **llama.NAMES,
    "q_norm": ("blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight"),
    "k_norm": ("blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight"),
    "mlp_norm": (
        "blk.{}.post_attention_norm.weight",
        "model.layers.{}.post_attention_layernorm.weight",
    ),
    "delta_qkv": ("blk.{}.attn_qkv.weight", _LINEAR + "in_proj_qkv.weight"),
    "delta_z": ("blk.{}.attn_gate.weight", _LINEAR + "in_proj_z.weight"),
    "delta_beta": ("blk.{}.ssm_beta.weight", _LINEAR + "in_proj_b.weight"),
    "delta_alpha": ("blk.{}.ssm_alpha.weight", _LINEAR + "in_proj_a.weight"),
    "delta_conv": ("blk.{}.ssm_conv1d.weight", _LINEAR + "conv1d.weight"),
    "delta_decay": ("blk.{}.ssm_a", _LINEAR + "A_log"),
    "delta_dt": ("blk.{}.ssm_dt.bias", _LINEAR + "dt_bias"),
    "delta_norm": ("blk.{}.ssm_norm.weight", _LINEAR + "norm.weight"),
    "delta_out": ("blk.{}.ssm_out.weight", _LINEAR + "out_proj.weight"),
}
_DRAFTS = "the head that drafts tokens"


def ignored(config: ArchConfig) -> Mapping[str, str]:
    """Tensors that answering text does not need, by the beginning of their names: what they are."""
    images = "the part that sees images"
    checkpoint = {"mtp.": _DRAFTS, "model.visual.": images, "visual.": images}
    return checkpoint | {f"blk.{config.layers + i}.": _DRAFTS for i in range(config.drafts)}
