"""What can be made: the families, and the sizes of one model.

Pure data: `FAMILIES` says in what the architectures differ, `Shape` how large one is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from strata.types import ModelError

EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture. `head_norms`: "each" head of q and k, all "together", or none "".

    recurrent: three of four layers are Gated DeltaNet; moe: experts instead of a feed-forward;
    shared: and one that every token takes; gated: the attention's output; centred: norm weights
    in a folder are stored less one; streams: gated residual streams, an indexer and n-grams.
    `packed`: a folder holds the experts of a layer as one tensor. `rotary`: share of a head.
    `sizes`: defaults of its own.
    """

    gguf: str
    model_type: str
    classname: str
    recurrent: bool = False
    moe: bool = False
    shared: bool = False
    head_norms: str = ""
    gated: bool = False
    centred: bool = False
    streams: bool = False
    packed: bool = False
    rotary: float = 1.0
    normalised: bool = True
    theta: float = 1e6
    sizes: Mapping[str, int] = field(default_factory=dict)


_HYBRID: dict[str, Any] = {
    "recurrent": True,
    "gated": True,
    "centred": True,
    "head_norms": "each",
    "rotary": 0.25,
    "theta": 1e7,
}
_MIXED: dict[str, Any] = {**_HYBRID, "moe": True, "shared": True}

FAMILIES: Mapping[str, Family] = {
    "llama": Family("llama", "llama", "LlamaForCausalLM"),
    "qwen3": Family("qwen3", "qwen3", "Qwen3ForCausalLM", head_norms="each"),
    "qwen3_moe": Family(
        "qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", moe=True, head_norms="each"
    ),
    "olmoe": Family(
        "olmoe",
        "olmoe",
        "OlmoeForCausalLM",
        moe=True,
        head_norms="together",
        normalised=False,
        sizes={"kv_heads": 8},
    ),
    "qwen3_next": Family("qwen3next", "qwen3_next", "Qwen3NextForCausalLM", **_MIXED),
    "qwen3_5": Family("qwen35", "qwen3_5_text", "Qwen3_5ForCausalLM", **_HYBRID),
    "qwen3_5_moe": Family(
        "qwen35moe", "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", packed=True, **_MIXED
    ),
    "qwen4_exp": Family(
        "qwen4exp", "qwen4_exp_text", "Qwen4ExpForCausalLM", packed=True, streams=True, **_MIXED
    ),
}


def _size(default: int, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model. A family takes those that it has."""

    layers: int = _size(8, "layers")
    hidden: int = _size(512, "width of the residual stream")
    heads: int = _size(8, "attention heads")
    kv_heads: int = _size(2, "key and value heads")
    head_dim: int = _size(64, "width of a head")
    ffn: int = _size(1536, "neurons of a dense feed-forward")
    experts: int = _size(32, "experts of a layer")
    top_k: int = _size(4, "experts that a token takes")
    expert_ffn: int = _size(256, "neurons of an expert")
    shared_ffn: int = _size(256, "neurons of the expert that every token takes")
    vocab: int = _size(32768, "tokens of the vocabulary")
    context: int = _size(32768, "longest context")
    interval: int = _size(4, "of so many layers one is attention, the others recurrent")
    key_heads: int = _size(4, "key heads of a recurrent layer")
    value_heads: int = _size(8, "value heads of a recurrent layer")
    state_dim: int = _size(64, "width of a recurrent layer's head")
    conv: int = _size(4, "taps of the convolutions")
    streams: int = _size(4, "residual streams")
    stream_rank: int = _size(64, "rank of the mixer of the streams")
    index_heads: int = _size(4, "heads of the indexer")
    index_dim: int = _size(64, "width of an indexer's head")
    index_budget: int = _size(2048, "tokens that sparse attention sees")
    index_ratio: int = _size(4, "tokens in a block of the indexer")
    ngram_heads: int = _size(8, "hashes of each n-gram length")
    ngram_vocab: int = _size(4096, "rows of the n-gram table for each hash")

    def check(self, family: Family) -> None:
        """ModelError for sizes that do not go together."""
        for one in fields(self):
            if getattr(self, one.name) <= 0:
                raise ModelError(f"--{one.name.replace('_', '-')} must be positive")
        wrong = {
            "heads must be a multiple of kv-heads": self.heads % self.kv_heads,
            "top-k must not exceed experts": family.moe and self.top_k > self.experts,
            "value-heads must be a multiple of key-heads": (
                family.recurrent and self.value_heads % self.key_heads
            ),
            "hidden must be heads x head-dim and kv-heads = heads": (
                family.gguf == "olmoe"
                and not self.hidden == self.heads * self.head_dim == self.kv_heads * self.head_dim
            ),
            "the rotary part of head-dim must be even": self.rotary_dims(family) % 2,
            "index-budget must be a multiple of index-ratio": (
                family.streams and self.index_budget % self.index_ratio
            ),
            "index-dim must hold the rotary part of head-dim": (
                family.streams and self.rotary_dims(family) > self.index_dim
            ),
            "hidden must be a multiple of 2 x ngram-heads": (
                family.streams and self.hidden % (2 * self.ngram_heads)
            ),
            "layers must be at least 2": family.streams and self.layers < 2,
            "interval must be at least 3": family.streams and self.interval < 3,
        }
        for text, broken in wrong.items():
            if broken:
                raise ModelError(f"{text} for {family.model_type}")

    def recurrent(self, family: Family, layer: int) -> bool:
        """Whether a layer (from 0) is Gated DeltaNet."""
        return family.recurrent and (layer + 1) % self.interval != 0

    def rotary_dims(self, family: Family) -> int:
        """Dimensions of a head that the rotary embedding turns."""
        return int(self.head_dim * family.rotary)

    def sections(self, family: Family) -> list[int]:
        """Pairs of the rotary part that turn with each axis of a position (time, height, width),
        interleaved as the models that see images have them.
        """
        pairs = self.rotary_dims(family) // 2
        return [len(range(axis, pairs, 3)) for axis in range(3)]

    @property
    def channels(self) -> int:
        """Of a recurrent layer's convolution."""
        return (2 * self.key_heads + self.value_heads) * self.state_dim

    @property
    def inner(self) -> int:
        """Width of a recurrent layer's values."""
        return self.value_heads * self.state_dim
