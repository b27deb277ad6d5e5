"""Rotary position embedding: from a model's settings to frequencies.

Pure arithmetic on a few dozen numbers. The result is all that a kernel needs:
pair i of the first `dims` dimensions of a head turns by `position *
frequencies[i]`, and cosine and sine are multiplied by `magnitude`. Scaling
follows transformers' modeling_rope_utils and, for GGUF keys, llama.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from strata.types import ModelError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Rope:
    """`frequencies` float32 [dims / 2], in radians per token."""

    dims: int
    frequencies: npt.NDArray[np.float32] = field(repr=False)
    magnitude: float = 1.0


def plain(theta: float, dims: int) -> Floats:
    """The unscaled frequencies theta^(-2i / dims)."""
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
    dims: int,
    frequencies: Floats,
    factor: float,
    original: float,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> Floats:
    """YaRN (arXiv 2309.00071): a ramp over the dimensions between kept and stretched."""

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


def _finish(dims: int, frequencies: Floats, magnitude: float = 1.0) -> Rope:
    return Rope(dims, frequencies.astype(np.float32), magnitude)


# ------------------------------------------------------------ Hugging Face

_HF_KEYS = {
    "default": set(),
    "linear": {"factor"},
    "llama3": {
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    },
    "yarn": {
        "factor",
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
    },
}
_HF_COMMON = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}


# Of images' rows and columns; a text's tokens turn by their one position.
_HF_MROPE = {"mrope_section", "mrope_interleaved"}


def from_hf(
    config: Mapping[str, Any],
    head_dim: int,
    theta: float,
    partial: float = 1.0,
    mrope: bool = False,
) -> Rope:
    """RoPE of a config.json, in its old (`rope_scaling`) or new form (`rope_parameters`).

    `theta` and `partial`, the share of a head that turns, are the family's defaults; with `mrope`
    it may say where an image's positions go. ModelError for types and keys that are not
    understood, since each of them changes the arithmetic.
    """
    given = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    kind = given.get("rope_type") or given.get("type") or "default"
    if mrope and kind == "mrope":
        kind = "default"
    if kind not in _HF_KEYS:
        raise ModelError(
            f"rope type {kind!r} is not supported; supported: {', '.join(sorted(_HF_KEYS))}"
        )
    stray = {key for key, value in given.items() if value is not None}
    stray -= _HF_KEYS[kind] | _HF_COMMON | (_HF_MROPE if mrope else set())
    if stray:
        raise ModelError(f"rope type {kind!r} with {', '.join(sorted(stray))} is not supported")
    theta = float(given.get("rope_theta") or config.get("rope_theta") or theta)
    share = given.get("partial_rotary_factor") or config.get("partial_rotary_factor") or partial
    dims = int(head_dim * share)
    base = plain(theta, dims)
    original = (
        config.get("original_max_position_embeddings")
        or given.get("original_max_position_embeddings")
        or config.get("max_position_embeddings")
    )
    if kind == "default":
        return _finish(dims, base)
    factor = _number(given, "factor")
    if kind == "linear":
        return _finish(dims, base / factor)
    if original is None:
        raise ModelError(f"rope type {kind!r} needs original_max_position_embeddings")
    if kind == "llama3":
        low, high = _number(given, "low_freq_factor"), _number(given, "high_freq_factor")
        return _finish(dims, llama3(base, factor, low, high, original))
    fast, slow = given.get("beta_fast") or 32.0, given.get("beta_slow") or 1.0
    truncate = given.get("truncate") is not False
    scaled = yarn(theta, dims, base, factor, original, fast, slow, truncate)
    return _finish(dims, scaled, _hf_yarn_magnitude(given, factor))


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


# -------------------------------------------------------------------- GGUF

GGUF_KEYS = frozenset(
    {
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scale_linear",
        "rope.scaling.type",
        "rope.scaling.factor",
        "rope.scaling.attn_factor",
        "rope.scaling.original_context_length",
        "rope.scaling.finetuned",
        "rope.scaling.yarn_attn_factor",
        "rope.scaling.yarn_beta_fast",
        "rope.scaling.yarn_beta_slow",
    }
)


def from_gguf(
    keys: Mapping[str, Any], head_dim: int, divisors: npt.NDArray[np.float32] | None
) -> Rope:
    """RoPE of GGUF keys, given without their architecture prefix.

    `divisors` is the tensor rope_freqs.weight, which divides each frequency (that
    is how a GGUF spells llama3's scaling). Raises ModelError.
    """
    dims = int(keys.get("rope.dimension_count", head_dim))
    theta = float(keys.get("rope.freq_base", 10000.0))
    base = plain(theta, dims)
    if divisors is not None:
        if divisors.shape != base.shape:
            raise ModelError(f"rope_freqs.weight has {divisors.size} values, not {base.size}")
        base = base / divisors
    factor = float(keys.get("rope.scaling.factor") or keys.get("rope.scale_linear") or 1.0)
    kind = keys.get("rope.scaling.type", "linear")
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return _finish(dims, base)
    if kind == "linear":
        return _finish(dims, base / factor)
    if kind != "yarn":
        raise ModelError(f"rope scaling {kind!r} is not supported; supported: none, linear, yarn")
    original = keys.get("rope.scaling.original_context_length") or keys["context_length"]
    fast = keys.get("rope.scaling.yarn_beta_fast", 32.0)
    slow = keys.get("rope.scaling.yarn_beta_slow", 1.0)
    magnitude = yarn_magnitude(factor)
    for key in ("rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"):
        magnitude *= keys.get(key, 1.0)
    return _finish(dims, yarn(theta, dims, base, factor, original, fast, slow), magnitude)
