"""ArchConfig: the shape of a decoder, from GGUF keys or a config.json.

Knows key names, not tensors. Anything in a file that would change the arithmetic and is not
implemented is a ModelError that names the key: a model that loads is a model that answers as its
authors meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strata.files import ModelFile
from strata.kernels.rope import RopeSpec
from strata.models import rope
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
    rope: RopeSpec
    tied: bool


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a family assumes when config.json leaves a key out; head_dim None: hidden / heads."""

    head_dim: int | None = None
    eps: float | None = 1e-6
    theta: float = 10000.0
    context: int | None = 32768


# field -> GGUF key without the architecture's prefix, key of config.json
_KEYS: Mapping[str, tuple[str, str]] = {
    "layers": ("block_count", "num_hidden_layers"),
    "hidden": ("embedding_length", "hidden_size"),
    "ffn": ("feed_forward_length", "intermediate_size"),
    "heads": ("attention.head_count", "num_attention_heads"),
    "kv_heads": ("attention.head_count_kv", "num_key_value_heads"),
    "head_dim": ("attention.key_length", "head_dim"),
    "vocab": ("vocab_size", "vocab_size"),
    "context": ("context_length", "max_position_embeddings"),
    "eps": ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
}
# Written by converters; they say nothing that a dense decoder needs.
_GGUF_HARMLESS = {"attention.layer_norm_epsilon", "tensor_data_layout"}
_GGUF_KNOWN = {key for key, _ in _KEYS.values()} | rope.GGUF_KEYS | _GGUF_HARMLESS
_GGUF_KNOWN |= {"attention.value_length"}
# Keys that change the arithmetic, with the values under which they do not (of other GGUF keys:
# zero and nothing; in a config.json also null).
_GGUF_USUAL: Mapping[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    **dict.fromkeys(("logit_scale", "embedding_scale", "residual_scale"), (0.0, 1.0)),
}
_HF_USUAL: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    **dict.fromkeys(("mlp_bias", "parallel_residual", "is_encoder_decoder"), (False,)),
    **dict.fromkeys(("use_sliding_window", "use_qk_norm", "use_mrope"), (False,)),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping", "clip_qkv"), ()),
    **dict.fromkeys(("attention_multiplier", "attention_chunk_size"), ()),
    **dict.fromkeys(("embedding_multiplier", "residual_multiplier"), (1,)),
    **dict.fromkeys(("logits_scaling", "logit_scale"), (1,)),
    "num_experts": (0,),
    "num_local_experts": (0, 1),
    "no_rope_layers": ([],),
}


def read_config(file: ModelFile, defaults: Defaults) -> ArchConfig:
    """The shape of a model. `defaults` are for a config.json. Raises ModelError."""
    gguf = file.kind == "gguf"
    if gguf:
        keys, defaults = _gguf_keys(file), Defaults(eps=None, context=None)
    else:
        keys = _hf_keys(file)

    def count(field: str, default: int | None = None) -> int:
        return _count(keys, _KEYS[field][not gguf], default)

    hidden, heads = count("hidden"), count("heads")
    kv_heads = count("kv_heads", heads)
    head_dim = count("head_dim", defaults.head_dim or hidden // heads)
    if heads % kv_heads:
        raise ModelError(f"{heads} attention heads cannot share {kv_heads} key/value heads")
    if gguf and _count(keys, "attention.value_length", head_dim) != head_dim:
        raise ModelError("keys and values of different lengths are not supported")
    return ArchConfig(
        name=str(file.metadata.get("general.name") or file.path.stem) if gguf else file.path.name,
        architecture=file.architecture,
        layers=count("layers"),
        hidden=hidden,
        ffn=count("ffn"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=_gguf_vocab(file) if gguf else count("vocab"),
        context=count("context", defaults.context),
        eps=_not_negative(keys, _KEYS["eps"][not gguf], defaults.eps),
        rope=rope.from_gguf(keys, head_dim, file.tensors.get("rope_freqs.weight"))
        if gguf
        else rope.from_hf(keys, head_dim, defaults.theta),
        tied="output.weight" not in file.tensors if gguf else bool(keys.get("tie_word_embeddings")),
    )


def _gguf_keys(file: ModelFile) -> Mapping[str, Any]:
    """The keys of the architecture, without its prefix. ModelError for one not understood."""
    prefix = file.architecture + "."
    names = [key for key in file.metadata if key.startswith(prefix)]
    keys = {name.removeprefix(prefix): file.metadata[name] for name in names}
    for key, value in keys.items():
        if key not in _GGUF_KNOWN and value not in _GGUF_USUAL.get(key, (0, None, False, "")):
            raise ModelError(
                f"the model file sets {prefix}{key} = {value!r}, which Strata does not support"
            )
    return keys


def _gguf_vocab(file: ModelFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2 or not embedding.shape[0]:
        raise ModelError(f"{file.path} has no tensor token_embd.weight: it is not a whole model")
    return embedding.shape[0]


def _hf_keys(file: ModelFile) -> Mapping[str, Any]:
    """The keys of config.json. ModelError for one whose value is not supported."""
    config: Mapping[str, Any] = file.metadata["config"]
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
    return config


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


def _not_negative(keys: Mapping[str, Any], key: str, default: float | None) -> float:
    value = keys.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ModelError(f"{key} is {value!r} in the model file, not a number")
    return float(value)
