"""The shape of a model from a GGUF file's keys. Knows key names, not tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from strata.files import ModelFile
from strata.models import rope
from strata.models.config import (
    ArchConfig,
    DeltaShape,
    ExpertShape,
    IndexerShape,
    NgramHash,
    NgramShape,
    count,
    positive,
)
from strata.types import ModelError

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
# What further kinds of layers need to say.
EXPERTS = frozenset(
    {
        "expert_count",
        "expert_used_count",
        "expert_feed_forward_length",
        "expert_shared_feed_forward_length",
        "expert_weights_norm",
    }
)
RECURRENT = frozenset(
    {
        "attention.recurrent_layers",
        "full_attention_interval",
        "nextn_predict_layers",
        "ssm.conv_kernel",
        "ssm.state_size",
        "ssm.group_count",
        "ssm.time_step_rank",
        "ssm.inner_size",
        "rope.dimension_sections",  # of images' positions; a text's tokens have one position
    }
)
STREAMS = frozenset(
    {
        "hyper_connection.count",
        "hyper_connection.low_rank",
        "attention.indexer.head_count",
        "attention.indexer.key_length",
        "attention.indexer.top_k",
        "attention.compress_ratios",
        "embedding_length_per_layer_input",
        "ple.layers",
        "ple.ngram_size",
        "ple.heads_per_ngram",
        "ple.conv_kernel",
        "ple.eos_token_id",
        "ple.image_token_id",  # stands where a text has no image
        "ple.layer_multipliers",
        "ple.head_offsets",
        "ple.head_vocab_sizes",
    }
)
# Written by converters; they say nothing that answering text needs.
_GGUF_HARMLESS = {
    "attention.layer_norm_epsilon",
    "tensor_data_layout",
    "expert_shared_count",
}
# Keys that change the arithmetic, with the values under which they do not.
_GGUF_USUAL: Mapping[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "logit_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "expert_weights_scale": (0.0, 1.0),
    "expert_gating_func": (0, 1),  # softmax
    "expert_group_count": (0, 1),
    "expert_group_used_count": (0, 1),
}


def keys_of(file: ModelFile, also: Collection[str] = ()) -> dict[str, Any]:
    """The keys of the architecture, without its prefix. ModelError for one that is neither common
    nor among `also`.
    """
    prefix = file.architecture + "."
    keys = {
        key.removeprefix(prefix): file.metadata[key]
        for key in file.metadata
        if key.startswith(prefix)
    }
    for key, value in keys.items():
        if key in _GGUF_READ or key in _GGUF_HARMLESS or key in also:
            continue
        if value not in _GGUF_USUAL.get(key, (0, None, False, "")):
            raise ModelError(
                f"the model file sets {prefix}{key} = {value!r}, which Strata does not support"
            )
    return keys


def read(
    file: ModelFile,
    also: Collection[str] = (),
    *,
    normalise: bool = True,
    sigmoid_gate: bool = False,
) -> ArchConfig:
    """The shape of a GGUF model: all that its keys say. Raises ModelError.

    The family says which keys it has besides the common ones, and what they leave out: whether
    the chosen experts' probabilities are normalised, how recurrent layers' output is gated.
    """
    keys = keys_of(file, also)
    hidden, heads = count(keys, "embedding_length"), count(keys, "attention.head_count")
    head_dim = count(keys, "attention.key_length", hidden // heads)
    if count(keys, "attention.value_length", head_dim) != head_dim:
        raise ModelError("keys and values of different lengths are not supported")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError(f"{file.path} has no tensor token_embd.weight: it is not a whole model")
    experts = _experts(keys, normalise)
    drafts = keys.get("nextn_predict_layers") or 0
    layers = count(keys, "block_count") - drafts
    streams = "hyper_connection.count" in keys
    return ArchConfig(
        name=str(file.metadata.get("general.name") or file.path.stem),
        architecture=file.architecture,
        layers=layers,
        hidden=hidden,
        ffn=count(keys, "feed_forward_length") if experts is None else 0,
        heads=heads,
        kv_heads=count(keys, "attention.head_count_kv", heads),
        head_dim=head_dim,
        vocab=embedding.shape[0],
        context=count(keys, "context_length"),
        eps=positive(keys, "attention.layer_norm_rms_epsilon", None),
        rope=rope.from_gguf(keys, head_dim, _rope_divisors(file)),
        tied="output.weight" not in file.tensors,
        experts=experts,
        recurrent=_recurrent(keys, layers),
        delta=_delta(keys, sigmoid_gate),
        indexer=_indexer(keys),
        streams=count(keys, "hyper_connection.count") if streams else 1,
        stream_rank=count(keys, "hyper_connection.low_rank") if streams else 0,
        ngram=_ngram(keys),
        drafts=drafts,
    )


def _experts(keys: Mapping[str, Any], normalise: bool) -> ExpertShape | None:
    if not keys.get("expert_count"):
        return None
    if keys.get("expert_weights_norm", normalise) != normalise:
        raise ModelError("expert_weights_norm is not what models of this architecture do")
    size = "expert_feed_forward_length"  # some architectures say it as the dense ones do
    shared = keys.get("expert_shared_feed_forward_length")
    return ExpertShape(
        count=count(keys, "expert_count"),
        top_k=count(keys, "expert_used_count"),
        ffn=count(keys, size if keys.get(size) else "feed_forward_length"),
        shared=count(keys, "expert_shared_feed_forward_length") if shared else 0,
        normalise=normalise,
    )


def _recurrent(keys: Mapping[str, Any], layers: int) -> tuple[bool, ...]:
    if "ssm.state_size" not in keys:
        return ()
    given = keys.get("attention.recurrent_layers")
    if isinstance(given, list) and len(given) >= layers:
        return tuple(bool(each) for each in given[:layers])
    interval = count(keys, "full_attention_interval", 4)
    return tuple((i + 1) % interval != 0 for i in range(layers))


def _delta(keys: Mapping[str, Any], sigmoid_gate: bool) -> DeltaShape | None:
    if "ssm.state_size" not in keys:
        return None
    dim, v_heads = count(keys, "ssm.state_size"), count(keys, "ssm.time_step_rank")
    if count(keys, "ssm.inner_size") != dim * v_heads:
        raise ModelError("recurrent layers with keys and values of different lengths")
    return DeltaShape(
        k_heads=count(keys, "ssm.group_count"),
        v_heads=v_heads,
        dim=dim,
        kernel=count(keys, "ssm.conv_kernel"),
        sigmoid_gate=sigmoid_gate,
    )


def _indexer(keys: Mapping[str, Any]) -> IndexerShape | None:
    if "attention.indexer.head_count" not in keys:
        return None
    ratios = {ratio for ratio in keys.get("attention.compress_ratios") or () if ratio}
    if len(ratios) != 1:
        raise ModelError(
            f"attention.compress_ratios has the ratios {sorted(ratios)}, of which there must be one"
        )
    return IndexerShape(
        heads=count(keys, "attention.indexer.head_count"),
        dim=count(keys, "attention.indexer.key_length"),
        budget=count(keys, "attention.indexer.top_k"),
        ratio=ratios.pop(),
    )


def _ngram(keys: Mapping[str, Any]) -> NgramShape | None:
    layers = keys.get("ple.layers")
    if not layers:
        return None
    if "ple.eos_token_id" not in keys:
        raise ModelError("the model file does not say ple.eos_token_id, which ends an n-gram")
    if len(layers) != 1:
        raise ModelError("n-gram embeddings of more than one layer in a GGUF are not supported")
    size, heads = count(keys, "ple.ngram_size"), count(keys, "ple.heads_per_ngram")
    lengths = {"layer_multipliers": size, "head_vocab_sizes": 0, "head_offsets": 0}
    lists = {name: tuple(keys.get(f"ple.{name}") or ()) for name in lengths}
    for name, given in lists.items():
        if len(given) != (lengths[name] or (size - 1) * heads):
            raise ModelError(f"ple.{name} has {len(given)} numbers: the model file is damaged")
    own = NgramHash(lists["layer_multipliers"], lists["head_vocab_sizes"], lists["head_offsets"])
    return NgramShape(
        size=size,
        heads=heads,
        dim=count(keys, "embedding_length_per_layer_input"),
        kernel=count(keys, "ple.conv_kernel"),
        eos=int(keys["ple.eos_token_id"]),
        hashes={layers[0]: own},
    )


def _rope_divisors(file: ModelFile) -> npt.NDArray[np.float32] | None:
    entry = file.tensors.get("rope_freqs.weight")
    if entry is None:
        return None
    if entry.format != 0:
        raise ModelError("rope_freqs.weight is not stored as F32")
    return entry.data.view(np.float32)
