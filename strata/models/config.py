"""ArchConfig: the shape of a decoder.

Knows neither files nor tensors: `config_gguf` and `config_hf` read it. Anything in a file
that would change the arithmetic and is not implemented is a ModelError there that names the
key: a model that loads is a model that answers as its authors meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strata.models.rope import Rope
from strata.types import ModelError


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """A mixture of experts: `ffn` neurons each; `shared` neurons of the expert that every token
    takes, 0 for none. `normalise`: the chosen probabilities are divided by their sum. `dense`
    are the layers (from 0) that have a plain feed-forward instead.
    """

    count: int
    top_k: int
    ffn: int
    shared: int
    normalise: bool
    dense: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.top_k > self.count:
            raise ModelError(
                f"the model file says that a token takes {self.top_k} of {self.count} experts"
            )


@dataclass(frozen=True, slots=True)
class DeltaShape:
    """Gated DeltaNet layers. `dim` of keys and of values; `kernel` taps of the convolution."""

    k_heads: int
    v_heads: int
    dim: int
    kernel: int
    sigmoid_gate: bool = False

    def __post_init__(self) -> None:
        if self.v_heads % self.k_heads:
            raise ModelError(
                f"{self.v_heads} value heads of the recurrent layers cannot share"
                f" {self.k_heads} key heads"
            )


@dataclass(frozen=True, slots=True)
class IndexerShape:
    """The block indexer of sparse attention: `budget` tokens seen, blocks of `ratio` tokens."""

    heads: int
    dim: int
    budget: int
    ratio: int

    def __post_init__(self) -> None:
        if self.budget % self.ratio:
            raise ModelError(
                f"the indexer's budget of {self.budget} tokens is no whole number of blocks"
                f" of {self.ratio}"
            )


@dataclass(frozen=True, slots=True)
class NgramHash:
    """The hashes of one layer, in the terms of strata.kernels.ngram: `size` multipliers; primes
    and first rows of the table for each hash.
    """

    multipliers: tuple[int, ...]
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NgramShape:
    """Hashed n-gram embeddings in the layers `hashes` (from 0): `heads` hashes for each length
    of 2 to `size` tokens, `dim` floats each; `kernel` taps of the convolution.
    """

    size: int
    heads: int
    dim: int
    kernel: int
    eos: int
    hashes: Mapping[int, NgramHash]


@dataclass(frozen=True, slots=True)
class ArchConfig:
    """The shape of a decoder. `tied`: the output matrix is the embedding.

    `ffn` of the dense layers, 0 where there are none. `recurrent`: of each layer, whether it is
    a Gated DeltaNet (else attention); () when none is. `streams` residual streams, mixed through
    `stream_rank` dimensions. `drafts` blocks of the file come after the layers: they draft tokens,
    and are left.
    """

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
    experts: ExpertShape | None = None
    recurrent: tuple[bool, ...] = ()
    delta: DeltaShape | None = None
    indexer: IndexerShape | None = None
    streams: int = 1
    stream_rank: int = 0
    ngram: NgramShape | None = None
    drafts: int = 0

    def __post_init__(self) -> None:
        for key in ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "context"):
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


# ------------------------------------------------------------------ values


def count(keys: Mapping[str, Any], key: str, default: int | None = None) -> int:
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


def positive(keys: Mapping[str, Any], key: str, default: float | None) -> float:
    """A number, not below zero. ModelError when it is missing or something else."""
    value = keys.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ModelError(f"{key} is {value!r} in the model file, not a number")
    return float(value)
