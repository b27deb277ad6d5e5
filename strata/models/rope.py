"""Rotary position embedding: from a model's settings to frequencies.

Pure arithmetic on a few dozen numbers. Scaling follows transformers' modeling_rope_utils and, for
GGUF keys, llama.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from strata.files import TensorEntry
from strata.kernels.rope import RopeSpec
from strata.types import ModelError

Floats = npt.NDArray[np.float64]


def plain(theta: float, dims: int, head_dim: int) -> Floats:
    """The unscaled frequencies theta^(-2i / dims). ModelError if `dims` do not fit a head."""
    if dims % 2 or not 0 < dims <= head_dim:
        raise ModelError(f"rotary embedding of {dims} dimensions does not fit heads of {head_dim}")
    return np.asarray(theta ** (-np.arange(0, dims, 2, dtype=np.float64) / dims))


def llama3(
    frequencies: Floats, factor: float, low_factor: float, high_factor: float, original: float
) -> Floats:
    """Llama 3.1: long waves are stretched by `factor`, short ones kept, a ramp between."""
    turns = original * frequencies / (2 * math.pi)  # how often a wave fits into the old context
    keep = np.clip((turns - low_factor) / (high_factor - low_factor), 0.0, 1.0)
    return np.asarray((1 - keep) * frequencies / factor + keep * frequencies)


def yarn(
    theta: float,
    frequencies: Floats,
    factor: float,
    original: float,
    beta_fast: float,
    beta_slow: float,
    truncate: bool = True,
) -> Floats:
    """YaRN (arXiv 2309.00071): a ramp over the dimensions between kept and stretched."""
    dims = 2 * len(frequencies)

    def dimension(turns: float) -> float:
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(beta_fast), dimension(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    steps = np.arange(dims // 2, dtype=np.float64)
    stretch = np.clip((steps - low) / max(high - low, 0.001), 0.0, 1.0)
    return np.asarray(frequencies * (1 - stretch) + frequencies / factor * stretch)


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """YaRN's factor on cosine and sine."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _spec(frequencies: Floats, magnitude: float = 1.0) -> RopeSpec:
    narrow = torch.from_numpy(frequencies.astype(np.float32))
    return RopeSpec(2 * len(frequencies), narrow, magnitude)


_ORIGINAL = "original_max_position_embeddings"
_HF_COMMON = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
_YARN = {"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}
_HF_KEYS = {
    "default": _HF_COMMON,
    "linear": _HF_COMMON | {"factor"},
    "llama3": _HF_COMMON | {"factor", "low_freq_factor", "high_freq_factor", _ORIGINAL},
    "yarn": _HF_COMMON | _YARN | {"factor", _ORIGINAL},
}


def from_hf(config: Mapping[str, Any], head_dim: int, theta: float) -> RopeSpec:
    """RoPE of a config.json, in its old (`rope_scaling`) or new form (`rope_parameters`).

    `theta` is the family's default. ModelError for types and keys that are not
    understood, since each of them changes the arithmetic.
    """
    given = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    kind = given.get("rope_type") or given.get("type") or "default"
    if kind not in _HF_KEYS:
        raise ModelError(
            f"rope type {kind!r} is not supported; supported: {', '.join(sorted(_HF_KEYS))}"
        )
    stray = {key for key, value in given.items() if value is not None} - _HF_KEYS[kind]
    if stray:
        raise ModelError(f"rope type {kind!r} with {', '.join(sorted(stray))} is not supported")
    theta = float(given.get("rope_theta") or config.get("rope_theta") or theta)
    partial = given.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    base = plain(theta, int(head_dim * partial), head_dim)
    if kind == "default":
        return _spec(base)
    factor = _number(given, "factor")
    if kind == "linear":
        return _spec(base / factor)
    original = config.get(_ORIGINAL) or given.get(_ORIGINAL)
    original = original or config.get("max_position_embeddings")
    if original is None:
        raise ModelError(f"rope type {kind!r} needs {_ORIGINAL}")
    if kind == "llama3":
        low, high = _number(given, "low_freq_factor"), _number(given, "high_freq_factor")
        return _spec(llama3(base, factor, low, high, original))
    fast, slow = given.get("beta_fast") or 32.0, given.get("beta_slow") or 1.0
    truncate = given.get("truncate") is not False
    scaled = yarn(theta, base, factor, original, fast, slow, truncate)
    return _spec(scaled, _hf_yarn_magnitude(given, factor))


def _hf_yarn_magnitude(given: Mapping[str, Any], factor: float) -> float:
    if given.get("attention_factor") is not None:
        return float(given["attention_factor"])
    above, below = given.get("mscale"), given.get("mscale_all_dim")
    if above and below:
        return yarn_magnitude(factor, above) / yarn_magnitude(factor, below)
    return yarn_magnitude(factor)


def _number(given: Mapping[str, Any], key: str) -> float:
    value = given.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ModelError(f"the rope setting {key} must be a positive number, not {value!r}")
    return float(value)


GGUF_KEYS = {"rope.dimension_count", "rope.freq_base", "rope.scale_linear"} | {
    f"rope.scaling.{name}"
    for name in (
        *("type", "factor", "attn_factor", "original_context_length", "finetuned"),
        *("yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow"),
    )
}


def from_gguf(keys: Mapping[str, Any], head_dim: int, divisors: TensorEntry | None) -> RopeSpec:
    """RoPE of GGUF keys, given without their architecture prefix. Raises ModelError.

    `divisors` is the tensor rope_freqs.weight, which divides each frequency (that
    is how a GGUF spells llama3's scaling).
    """
    theta = float(keys.get("rope.freq_base", 10000.0))
    base = plain(theta, int(keys.get("rope.dimension_count", head_dim)), head_dim)
    if divisors is not None:
        if divisors.format != 0 or divisors.shape != base.shape:
            raise ModelError(f"rope_freqs.weight is not stored as {base.size} values of F32")
        base = base / divisors.data.view(np.float32)
    factor = float(keys.get("rope.scaling.factor") or keys.get("rope.scale_linear") or 1.0)
    kind = keys.get("rope.scaling.type", "linear")
    if kind == "none":
        return _spec(base)
    if kind == "linear":
        return _spec(base / factor)
    if kind != "yarn":
        raise ModelError(f"rope scaling {kind!r} is not supported; supported: none, linear, yarn")
    original = keys.get("rope.scaling.original_context_length") or keys["context_length"]
    fast = keys.get("rope.scaling.yarn_beta_fast", 32.0)
    slow = keys.get("rope.scaling.yarn_beta_slow", 1.0)
    magnitude = yarn_magnitude(factor)
    for key in ("rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"):
        magnitude *= keys.get(key, 1.0)
    return _spec(yarn(theta, base, factor, original, fast, slow), magnitude)
