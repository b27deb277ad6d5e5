"""Mixtures of experts: the builder that their families share, and the names they have in common.

Knows the ways in which files hold experts: one tensor for all of a layer, with gate and up
joined or apart, or tensors of each expert. Whatever the way, an expert is a view of the file.
"""

from __future__ import annotations

from strata.kernels.moe import Expert, MoeWeights
from strata.kernels.residual import Residual
from strata.models.config import ArchConfig, ExpertShape
from strata.models.layers import Mlp, Moe, mlp, pre_norm
from strata.models.weights import Names, Weights


def feed_forward(weights: Weights, config: ArchConfig, layer: int) -> Mlp | Moe:
    """The mixture of a layer, or its plain feed-forward where the config says so."""
    if config.experts is None or layer in config.experts.dense:
        return Mlp(mlp(weights, config, layer))
    return Moe(moe(weights, config, layer))


def moe(
    weights: Weights, config: ArchConfig, layer: int, residual: Residual | None = None
) -> MoeWeights:
    """The mixture of a layer. `residual`: "mlp_norm" by default."""
    shape = config.experts
    assert shape is not None
    return MoeWeights(
        residual=residual or pre_norm(weights, config, layer, "mlp_norm"),
        router=weights.matrix("router", layer, shape.count, config.hidden),
        experts=_experts(weights, config, shape, layer),
        top_k=shape.top_k,
        normalise=shape.normalise,
        shared=_shared(weights, config, shape, layer),
        shared_gate=weights.matrix("shared_router", layer, 1, config.hidden)
        if shape.shared
        else None,
    )


def _experts(weights: Weights, config: ArchConfig, shape: ExpertShape, layer: int) -> list[Expert]:
    count, ffn, hidden = shape.count, shape.ffn, config.hidden
    if weights.has("experts_gate_up", layer):
        both = weights.stack("experts_gate_up", layer, count, 2 * ffn, hidden)
        down = weights.stack("experts_down", layer, count, hidden, ffn)
        return [
            Expert(pair.cut(0, ffn), pair.cut(ffn, ffn), last)
            for pair, last in zip(both, down, strict=True)
        ]
    gate = weights.stack("expert_gate", layer, count, ffn, hidden)
    up = weights.stack("expert_up", layer, count, ffn, hidden)
    return list(map(Expert, gate, up, weights.stack("expert_down", layer, count, hidden, ffn)))


def _shared(weights: Weights, config: ArchConfig, shape: ExpertShape, layer: int) -> Expert | None:
    if not shape.shared:
        return None
    return Expert(
        gate=weights.matrix("shared_gate", layer, shape.shared, config.hidden),
        up=weights.matrix("shared_up", layer, shape.shared, config.hidden),
        down=weights.matrix("shared_down", layer, config.hidden, shape.shared),
    )


_MLP = "model.layers.{}.mlp."
NAMES: Names = {
    "router": ("blk.{}.ffn_gate_inp.weight", _MLP + "gate.weight"),
    "experts_gate_up": ("blk.{}.ffn_gate_up_exps.weight", _MLP + "experts.gate_up_proj"),
    "experts_down": ("blk.{}.ffn_down_exps.weight", _MLP + "experts.down_proj"),
    "expert_gate": ("blk.{}.ffn_gate_exps.weight", _MLP + "experts.{}.gate_proj.weight"),
    "expert_up": ("blk.{}.ffn_up_exps.weight", _MLP + "experts.{}.up_proj.weight"),
    "expert_down": ("blk.{}.ffn_down_exps.weight", _MLP + "experts.{}.down_proj.weight"),
    "shared_router": ("blk.{}.ffn_gate_inp_shexp.weight", _MLP + "shared_expert_gate.weight"),
    "shared_gate": ("blk.{}.ffn_gate_shexp.weight", _MLP + "shared_expert.gate_proj.weight"),
    "shared_up": ("blk.{}.ffn_up_shexp.weight", _MLP + "shared_expert.up_proj.weight"),
    "shared_down": ("blk.{}.ffn_down_shexp.weight", _MLP + "shared_expert.down_proj.weight"),
}
