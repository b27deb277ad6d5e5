"""What model families share: the sublayers, and builders of the dense ones.

A layer is a sequence of sublayers. A sublayer says what it remembers (`memory`) and which
operation it runs (`op`); `strata.models.decoder` puts them into one program. Nothing assumes
that a layer keeps keys and values: another kind declares other fields and builds another
operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from strata.kernels import Fields, Kernels, Op, kv
from strata.kernels.attention import AttentionWeights
from strata.kernels.delta import DeltaWeights
from strata.kernels.indexer import IndexerWeights
from strata.kernels.mlp import MlpWeights
from strata.kernels.moe import MoeWeights
from strata.kernels.ngram import NgramWeights
from strata.kernels.residual import PreNorm, Residual
from strata.kernels.rope import RopeSpec
from strata.memory.row_reader import TablePart
from strata.memory.rows import RowCache
from strata.models.config import ArchConfig
from strata.models.rope import Rope
from strata.models.weights import Weights
from strata.types import LayerMemory, MemoryField, ModelError

# --------------------------------------------------------------- sublayers


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a sublayer's operation stands: views of its fields of pages (`block` tokens) and of
    states, name -> [slots, *shape], and what makes an operation of a mixture that stands here.
    """

    page: Fields
    state: Fields
    block: int
    mixture: Callable[[MoeWeights], Op]


class Sublayer(Protocol):
    """One operation of a layer with what it remembers."""

    @property
    def mixture(self) -> MoeWeights | None:
        """Its mixture of experts, if it is one."""
        ...

    def memory(self, block: int, kernels: Kernels) -> LayerMemory:
        """Fields of a page (`block` tokens) and of a sequence's state."""
        ...

    def op(self, kernels: Kernels, place: Place) -> Op:
        """The operation, bound to its place."""
        ...


Layer = Sequence[Sublayer]


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention over earlier tokens. Remembers keys and values, and an indexer's keys. `pairs`: the
    rows of q and k are ordered for a rotation of neighbours.
    """

    weights: AttentionWeights
    pairs: bool = False
    mixture: ClassVar[None] = None

    def memory(self, block: int, kernels: Kernels) -> LayerMemory:
        """Keys and values [kv_heads, block, width], index keys; nothing per sequence.
        ModelError when a page does not hold whole blocks of an indexer.
        """
        w, kind = self.weights, kernels.kv_dtype
        shape = (w.kv_heads, block, kv.width(kind, w.head_dim))
        page = [MemoryField("k", shape, kind), MemoryField("v", shape, kind)]
        if w.indexer is not None:
            dim, blocks = w.indexer.dim, block // w.indexer.ratio
            if block % w.indexer.ratio:
                raise ModelError(
                    f"pages of {block} tokens do not hold whole index blocks of {w.indexer.ratio}"
                )
            raw = "float32" if kind == "float32" else "float16"
            page.append(MemoryField("index_raw", (block, dim), raw))
            page.append(MemoryField("index_keys", (blocks, dim), "float32"))
        return LayerMemory(page=tuple(page))

    def op(self, kernels: Kernels, place: Place) -> Op:
        """Attention over the pages."""
        # Not before: the copies of one layer are gone when the next one's are made.
        weights = half_split(self.weights) if self.pairs else self.weights
        return kernels.attention(weights, place.page, place.block)


@dataclass(frozen=True, slots=True)
class Delta:
    """Gated DeltaNet. Remembers a convolution window and one matrix per head and sequence."""

    weights: DeltaWeights
    mixture: ClassVar[None] = None

    def memory(self, block: int, kernels: Kernels) -> LayerMemory:
        """Nothing per token."""
        w = self.weights
        conv = MemoryField("conv", (w.window, w.channels), "float32")
        state = MemoryField("state", (w.v_heads, w.dim, w.dim), "float32")
        return LayerMemory(state=(conv, state))

    def op(self, kernels: Kernels, place: Place) -> Op:
        """The delta rule over the states."""
        return kernels.delta(self.weights, place.state)


@dataclass(frozen=True, slots=True)
class Mlp:
    """The gated feed-forward. Remembers nothing."""

    weights: MlpWeights
    mixture: ClassVar[None] = None

    def memory(self, block: int, kernels: Kernels) -> LayerMemory:
        """Nothing."""
        return LayerMemory()

    def op(self, kernels: Kernels, place: Place) -> Op:
        """The feed-forward."""
        return kernels.mlp(self.weights)


@dataclass(frozen=True, slots=True)
class Moe:
    """A mixture of experts. Remembers nothing."""

    weights: MoeWeights

    @property
    def mixture(self) -> MoeWeights:
        """The weights."""
        return self.weights

    def memory(self, block: int, kernels: Kernels) -> LayerMemory:
        """Nothing."""
        return LayerMemory()

    def op(self, kernels: Kernels, place: Place) -> Op:
        """The mixture."""
        return place.mixture(self.weights)


@dataclass(frozen=True, slots=True)
class Ngram:
    """Hashed n-gram embeddings. Remembers the last tokens and a convolution window. `parts` say
    where the table lies.
    """

    weights: NgramWeights
    parts: tuple[TablePart, ...]
    mixture: ClassVar[None] = None

    def cached(self, nbytes: int, tokens: int) -> tuple[Ngram, RowCache]:
        """The same with its rows from a cache of `nbytes`, for steps of up to `tokens`. Raises
        ModelError for a table of several formats, ConfigError, StorageError.
        """
        w, first = self.weights, self.weights.table[0]
        if len({part.format for part in w.table}) > 1:
            raise ModelError("the n-gram table has parts in several formats: set --ngram-cache 0")
        at_once = tokens * len(w.sizes)
        cache = RowCache(self.parts, first.row_bytes, nbytes=nbytes, at_once=at_once)
        return replace(self, weights=replace(w, source=cache)), cache

    def memory(self, block: int, kernels: Kernels) -> LayerMemory:
        """Nothing per token."""
        w = self.weights
        history = MemoryField("history", (w.history,), "int32")
        return LayerMemory(state=(history, MemoryField("conv", (w.window, w.width), "float32")))

    def op(self, kernels: Kernels, place: Place) -> Op:
        """The embeddings over the states."""
        return kernels.ngram(self.weights, place.state)


# ---------------------------------------------------------------- builders


BIASES = ("q_bias", "k_bias", "v_bias")
HEAD_NORMS = ("q_norm", "k_norm")


def pre_norm(weights: Weights, config: ArchConfig, layer: int | None, name: str) -> PreNorm:
    """The usual way into the residual stream, through the norm of that name."""
    return PreNorm(weights.vector(name, layer, config.hidden), config.eps)


def attention(
    weights: Weights,
    config: ArchConfig,
    layer: int,
    extra: Sequence[str] = (),
    *,
    gated: bool = False,
    residual: Residual | None = None,
    indexer: IndexerWeights | None = None,
) -> AttentionWeights:
    """The attention weights of a layer, with those of BIASES and HEAD_NORMS named in `extra`.

    When `gated`, the matrix of queries holds gates too. `residual`: "attention_norm" by default.
    """
    inner, kv_rows = config.heads * config.head_dim, config.kv_heads * config.head_dim
    q_rows = inner * (1 + gated)
    sizes = {"q_bias": q_rows, "k_bias": kv_rows, "v_bias": kv_rows}
    vectors: dict[str, Any] = {
        name: weights.vector(name, layer, sizes.get(name, config.head_dim)) for name in extra
    }
    return AttentionWeights(
        residual=residual or pre_norm(weights, config, layer, "attention_norm"),
        eps=config.eps,
        q=weights.matrix("q", layer, q_rows, config.hidden),
        k=weights.matrix("k", layer, kv_rows, config.hidden),
        v=weights.matrix("v", layer, kv_rows, config.hidden),
        o=weights.matrix("o", layer, config.hidden, inner),
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        rope=rope_spec(config.rope),
        scale=config.head_dim**-0.5,
        gated=gated,
        indexer=indexer,
        **vectors,
    )


def rope_spec(rope: Rope) -> RopeSpec:
    """The kernels' form of the rotary embedding."""
    return RopeSpec(
        dims=rope.dims,
        frequencies=torch.from_numpy(rope.frequencies),
        magnitude=rope.magnitude,
    )


def mlp(weights: Weights, config: ArchConfig, layer: int) -> MlpWeights:
    """The gated MLP of a layer."""
    return MlpWeights(
        residual=pre_norm(weights, config, layer, "mlp_norm"),
        gate=weights.matrix("gate", layer, config.ffn, config.hidden),
        up=weights.matrix("up", layer, config.ffn, config.hidden),
        down=weights.matrix("down", layer, config.hidden, config.ffn),
    )


def half_split(weights: AttentionWeights) -> AttentionWeights:
    """Reorder the rows of q and k from interleaved pairs (2i, 2i + 1) to halves (i, i + n/2).

    GGUF files of the llama family hold them for a rotation of neighbours; the
    kernels rotate halves. Scores are dot products of q and k, so the same
    reordering of both changes nothing else, and whole rows move: the
    quantisation stays as it is.
    """
    dims, head_dim = weights.rope.dims, weights.head_dim

    def order(heads: int) -> Tensor:
        rows = torch.arange(heads * head_dim).view(heads, head_dim)
        pairs = rows[:, :dims].reshape(heads, dims // 2, 2).transpose(1, 2).reshape(heads, dims)
        return torch.cat((pairs, rows[:, dims:]), dim=1).reshape(-1)

    def vector(bias: Tensor | None, rows: Tensor) -> Tensor | None:
        return None if bias is None else bias[rows]

    q_rows, k_rows = order(weights.heads), order(weights.kv_heads)
    return replace(
        weights,
        q=weights.q.pick(q_rows),
        k=weights.k.pick(k_rows),
        q_bias=vector(weights.q_bias, q_rows),
        k_bias=vector(weights.k_bias, k_rows),
    )
