"""The shape of a model from a GGUF file's keys. Knows key names, not tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from strata.files import ModelFile
from strata.models import rope
from strata.models.config import ArchConfig, count, positive
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
# Written by converters; they say nothing that a dense decoder needs.
_GGUF_HARMLESS = {"attention.layer_norm_epsilon", "tensor_data_layout"}
# Keys that change the arithmetic, with the values under which they do not.
_GGUF_USUAL: Mapping[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "logit_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
}


def keys_of(file: ModelFile) -> dict[str, Any]:
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


def read(file: ModelFile) -> ArchConfig:
    """The shape of a GGUF model. Raises ModelError."""
    keys = keys_of(file)
    hidden, heads = count(keys, "embedding_length"), count(keys, "attention.head_count")
    head_dim = count(keys, "attention.key_length", hidden // heads)
    if count(keys, "attention.value_length", head_dim) != head_dim:
        raise ModelError("keys and values of different lengths are not supported")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError(f"{file.path} has no tensor token_embd.weight: it is not a whole model")
    return ArchConfig(
        name=str(file.metadata.get("general.name") or file.path.stem),
        architecture=file.architecture,
        layers=count(keys, "block_count"),
        hidden=hidden,
        ffn=count(keys, "feed_forward_length"),
        heads=heads,
        kv_heads=count(keys, "attention.head_count_kv", heads),
        head_dim=head_dim,
        vocab=embedding.shape[0],
        context=count(keys, "context_length"),
        eps=positive(keys, "attention.layer_norm_rms_epsilon", None),
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
