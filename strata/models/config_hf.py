"""The shape of a model from a Hugging Face config.json. Knows key names, not tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strata.files import ModelFile
from strata.models import rope
from strata.models.config import ArchConfig, DeltaShape, ExpertShape, count, positive
from strata.types import ModelError

# Keys that change the arithmetic, with the values under which they do not.
# (a key that is absent or null never does)
_HF_USUAL: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "mlp_bias": (False,),
    "use_sliding_window": (False,),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "attention_multiplier": (),
    "embedding_multiplier": (1,),
    "residual_multiplier": (1,),
    "logits_scaling": (1,),
    "logit_scale": (1,),
    "clip_qkv": (),
    "use_qk_norm": (False,),
    "num_experts": (0,),
    "num_local_experts": (0, 1),
    "attention_chunk_size": (),
    "no_rope_layers": ([],),
    "use_mrope": (False,),
    "parallel_residual": (False,),
    "attn_output_gate": (False,),
    "output_gate_type": ("silu", "swish"),
    "is_encoder_decoder": (False,),
}


_EXPERTS = ("num_experts", "num_local_experts")


@dataclass(frozen=True, slots=True)
class HfDefaults:
    """What a family assumes when config.json leaves a key out (head_dim None: hidden / heads),
    and what it allows.

    partial: the share of a head that the rotary embedding turns. mrope: images have positions
    of their own. sparse: the feed-forward is a mixture of experts. kinds: names of layers, and
    whether they are recurrent. usual: more keys and values for the table above.
    """

    head_dim: int | None = None
    eps: float = 1e-6
    theta: float = 10000.0
    context: int = 32768
    partial: float = 1.0
    mrope: bool = False
    sparse: bool = False
    kinds: Mapping[str, bool] = field(default_factory=lambda: {"full_attention": False})
    usual: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


def text_part(file: ModelFile) -> Mapping[str, Any]:
    """The config of the language model: all of config.json, or its part of a multimodal one."""
    whole: Mapping[str, Any] = file.metadata["config"]
    inner = whole.get("text_config")
    if not isinstance(inner, dict):
        return whole
    shared = ("tie_word_embeddings", "quantization_config")
    return {**inner, **{key: whole[key] for key in shared if key in whole}}


def read(file: ModelFile, defaults: HfDefaults) -> ArchConfig:
    """The shape of a Hugging Face model, less what `experts`, `delta` and the family itself read.
    Raises ModelError.
    """
    config = text_part(file)
    _refuse_unsupported(config, defaults)
    hidden, heads = count(config, "hidden_size"), count(config, "num_attention_heads")
    head_dim = count(config, "head_dim", defaults.head_dim or hidden // heads)
    layers = count(config, "num_hidden_layers")
    dense = "intermediate_size" in config or not defaults.sparse
    rotary = rope.from_hf(config, head_dim, defaults.theta, defaults.partial, defaults.mrope)
    return ArchConfig(
        name=file.path.name,
        architecture=file.architecture,
        layers=layers,
        hidden=hidden,
        ffn=count(config, "intermediate_size") if dense else 0,
        heads=heads,
        kv_heads=count(config, "num_key_value_heads", heads),
        head_dim=head_dim,
        vocab=count(config, "vocab_size"),
        context=count(config, "max_position_embeddings", defaults.context),
        eps=positive(config, "rms_norm_eps", defaults.eps),
        rope=rotary,
        tied=bool(config.get("tie_word_embeddings", False)),
        recurrent=_recurrent(config, layers, defaults),
    )


def experts(
    config: Mapping[str, Any],
    normalise: bool,
    ffn: str = "moe_intermediate_size",
    shared: str | None = None,
) -> ExpertShape:
    """The mixture of experts. `normalise` is the family's default; `ffn` and `shared` name the
    keys of the experts' sizes. Raises ModelError.
    """
    layers, step = count(config, "num_hidden_layers"), count(config, "decoder_sparse_step", 1)
    plain = set(config.get("mlp_only_layers") or ())
    given = config.get("norm_topk_prob")
    return ExpertShape(
        count=count(config, next((key for key in _EXPERTS if key in config), _EXPERTS[0])),
        top_k=count(config, "num_experts_per_tok"),
        ffn=count(config, ffn),
        shared=0 if shared is None else count(config, shared),
        normalise=normalise if given is None else bool(given),
        dense=tuple(i for i in range(layers) if i in plain or (i + 1) % step),
    )


def delta(config: Mapping[str, Any], sigmoid_gate: bool = False) -> DeltaShape:
    """The Gated DeltaNet layers. Raises ModelError."""
    dim = count(config, "linear_key_head_dim")
    if count(config, "linear_value_head_dim") != dim:
        raise ModelError("recurrent layers with keys and values of different lengths")
    return DeltaShape(
        k_heads=count(config, "linear_num_key_heads"),
        v_heads=count(config, "linear_num_value_heads"),
        dim=dim,
        kernel=count(config, "linear_conv_kernel_dim", 4),
        sigmoid_gate=sigmoid_gate,
    )


def _recurrent(config: Mapping[str, Any], layers: int, defaults: HfDefaults) -> tuple[bool, ...]:
    """Of each layer, whether it is recurrent; () for a family without such layers."""
    given = config.get("layer_types")
    stray = set(given or ()) - defaults.kinds.keys()
    if stray:
        raise ModelError(f"layers of the kind {', '.join(sorted(stray))} are not supported")
    if not any(defaults.kinds.values()):
        return ()
    if given is None:
        interval = count(config, "full_attention_interval", 4)
        return tuple((i + 1) % interval != 0 for i in range(layers))
    if len(given) != layers:
        raise ModelError(f"config.json has {len(given)} layer_types for {layers} layers")
    return tuple(defaults.kinds[kind] for kind in given)


def _refuse_unsupported(config: Mapping[str, Any], defaults: HfDefaults) -> None:
    for key, usual in {**_HF_USUAL, **defaults.usual}.items():
        value = config.get(key)
        if value is None or value in usual or (defaults.sparse and key in _EXPERTS):
            continue
        raise ModelError(
            f"config.json sets {key} = {value!r}, which Strata does not support"
            f" for {config.get('model_type')}"
        )
