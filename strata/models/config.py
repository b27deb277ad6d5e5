"""ArchConfig: the shape of a decoder, from GGUF keys or a config.json.

Knows key names, not tensors. Anything in a file that would change the
arithmetic and is not implemented is a ModelError that names the key: a model
that loads is a model that answers as its authors meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from strata.files import ModelFile
from strata.models import rope
from strata.models.rope import Rope
from strata.types import ModelError


@dataclass(frozen=True, slots=True)
class ArchConfig:
    """The shape of a dense decoder. `tied`: the output matrix is the embedding."""

    name: str
    architecture: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    eps: float
    rope: Rope
    tied: bool

    def __post_init__(self) -> None:
        for key in ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "context"):
            value = getattr(self, key)
            if value <= 0:
                raise ModelError(f"the model file says {key} = {value}; it must be positive")
        if self.heads % self.kv_heads:
            raise ModelError(
                f"{self.heads} attention heads cannot share {self.kv_heads} key/value heads"
            )
        if self.rope.dims % 2 or not 0 < self.rope.dims <= self.head_dim:
            raise ModelError(
                f"rotary embedding of {self.rope.dims} dimensions does not fit heads of"
                f" {self.head_dim}"
            )


# -------------------------------------------------------------------- GGUF

_GGUF_READ = rope.GGUF_KEYS | {
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "vocab_size",
}
# Written by converters; they say nothing that a dense decoder needs.
_GGUF_HARMLESS = {"attention.layer_norm_epsilon", "tensor_data_layout"}
# Keys that change the arithmetic, with the values under which they do not.
_GGUF_USUAL: Mapping[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "logit_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
}


def gguf_keys(file: ModelFile) -> dict[str, Any]:
    """The keys of the architecture, without its prefix. ModelError for one not understood."""
    prefix = file.architecture + "."
    keys = {
        key.removeprefix(prefix): file.metadata[key]
        for key in file.metadata
        if key.startswith(prefix)
    }
    for key, value in keys.items():
        if key in _GGUF_READ or key in _GGUF_HARMLESS:
            continue
        if value not in _GGUF_USUAL.get(key, (0, None, False, "")):
            raise ModelError(
                f"the model file sets {prefix}{key} = {value!r}, which Strata does not support"
            )
    return keys


def from_gguf(file: ModelFile) -> ArchConfig:
    """The shape of a GGUF model. Raises ModelError."""
    keys = gguf_keys(file)
    hidden, heads = _count(keys, "embedding_length"), _count(keys, "attention.head_count")
    head_dim = _count(keys, "attention.key_length", hidden // heads)
    if _count(keys, "attention.value_length", head_dim) != head_dim:
        raise ModelError("keys and values of different lengths are not supported")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError(f"{file.path} has no tensor token_embd.weight: it is not a whole model")
    return ArchConfig(
        name=str(file.metadata.get("general.name") or file.path.stem),
        architecture=file.architecture,
        layers=_count(keys, "block_count"),
        hidden=hidden,
        ffn=_count(keys, "feed_forward_length"),
        heads=heads,
        kv_heads=_count(keys, "attention.head_count_kv", heads),
        head_dim=head_dim,
        vocab=embedding.shape[0],
        context=_count(keys, "context_length"),
        eps=_positive(keys, "attention.layer_norm_rms_epsilon", None),
        rope=rope.from_gguf(keys, head_dim, _rope_divisors(file)),
        tied="output.weight" not in file.tensors,
    )


def _rope_divisors(file: ModelFile) -> npt.NDArray[np.float32] | None:
    entry = file.tensors.get("rope_freqs.weight")
    if entry is None:
        return None
    if entry.format != 0:
        raise ModelError("rope_freqs.weight is not stored as F32")
    return entry.data.view(np.float32)


# ------------------------------------------------------------ Hugging Face

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


def from_hf(file: ModelFile, defaults: HfDefaults) -> ArchConfig:
    """The shape of a Hugging Face model. Raises ModelError."""
    config: Mapping[str, Any] = file.metadata["config"]
    _refuse_unsupported(config)
    hidden, heads = _count(config, "hidden_size"), _count(config, "num_attention_heads")
    head_dim = _count(config, "head_dim", defaults.head_dim or hidden // heads)
    return ArchConfig(
        name=file.path.name,
        architecture=file.architecture,
        layers=_count(config, "num_hidden_layers"),
        hidden=hidden,
        ffn=_count(config, "intermediate_size"),
        heads=heads,
        kv_heads=_count(config, "num_key_value_heads", heads),
        head_dim=head_dim,
        vocab=_count(config, "vocab_size"),
        context=_count(config, "max_position_embeddings", defaults.context),
        eps=_positive(config, "rms_norm_eps", defaults.eps),
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


# ------------------------------------------------------------------ values


def _count(keys: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A whole number. ModelError when it is missing or something else."""
    value = keys.get(key)
    value = default if value is None else value
    if value is None:
        raise ModelError(f"the model file does not say {key}")
    if isinstance(value, list):
        raise ModelError(f"{key} differs from layer to layer, which is not supported")
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ModelError(f"{key} is {value!r} in the model file, not a positive whole number")
    return value


def _positive(keys: Mapping[str, Any], key: str, default: float | None) -> float:
    value = keys.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ModelError(f"{key} is {value!r} in the model file, not a number")
    return float(value)
