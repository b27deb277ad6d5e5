"""The shape of a model from a Hugging Face config.json. Knows key names, not tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strata.files import ModelFile
from strata.models import rope
from strata.models.config import ArchConfig, count, positive
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
    "is_encoder_decoder": (False,),
}


@dataclass(frozen=True, slots=True)
class HfDefaults:
    """What a family assumes when config.json leaves a key out; None: hidden / heads."""

    head_dim: int | None = None
    eps: float = 1e-6
    theta: float = 10000.0
    context: int = 32768


def read(file: ModelFile, defaults: HfDefaults) -> ArchConfig:
    """The shape of a Hugging Face model. Raises ModelError."""
    config: Mapping[str, Any] = file.metadata["config"]
    _refuse_unsupported(config)
    hidden, heads = count(config, "hidden_size"), count(config, "num_attention_heads")
    head_dim = count(config, "head_dim", defaults.head_dim or hidden // heads)
    return ArchConfig(
        name=file.path.name,
        architecture=file.architecture,
        layers=count(config, "num_hidden_layers"),
        hidden=hidden,
        ffn=count(config, "intermediate_size"),
        heads=heads,
        kv_heads=count(config, "num_key_value_heads", heads),
        head_dim=head_dim,
        vocab=count(config, "vocab_size"),
        context=count(config, "max_position_embeddings", defaults.context),
        eps=positive(config, "rms_norm_eps", defaults.eps),
        rope=rope.from_hf(config, head_dim, defaults.theta),
        tied=bool(config.get("tie_word_embeddings", False)),
    )


def _refuse_unsupported(config: Mapping[str, Any]) -> None:
    quantised = config.get("quantization_config")
    if quantised:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else quantised
        raise ModelError(
            f"the checkpoint is quantised with {method}; from safetensors Strata reads"
            " F32, F16 and BF16: take a GGUF of this model instead"
        )
    for key, usual in _HF_USUAL.items():
        value = config.get(key)
        if value is not None and value not in usual:
            raise ModelError(
                f"config.json sets {key} = {value!r}, which Strata does not support"
                f" for {config.get('model_type')}"
            )
    kinds = set(config.get("layer_types") or ()) - {"full_attention"}
    if kinds:
        raise ModelError(f"layers of the kind {', '.join(sorted(kinds))} are not supported")
