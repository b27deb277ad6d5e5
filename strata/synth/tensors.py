"""The tensors of a model: what they are called in a GGUF file, their shapes, how large they are.

Standard deviations keep activations near one through any depth, and let attention, memory and
experts weigh as much as the last token, so that greedy text does not run in circles.
`folder_tensors` turns the table into the one of a Hugging Face folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

from strata.synth import ngrams
from strata.synth.shape import Family, Shape

_NORM_SPREAD = 0.1
_SHARPNESS = 1.5  # of queries and of keys: attention that is no mere mean
# Of the streams' mixer: undoes the division by their number, and moves its sigmoids.
_MIXER_GAIN = 4.0
# The mean over gated streams is smaller than a normed vector.
_STREAM_NORM = 2.0


@dataclass(frozen=True, slots=True)
class Tensor:
    """Uniform values of standard deviation `spread` around `mean`.

    shape in C order, rows before columns. `exact`: never quantised. `words`: rows are those of
    the vocabulary, and rows of silent tokens are zero.
    """

    name: str
    shape: tuple[int, ...]
    spread: float
    mean: float = 0.0
    exact: bool = False
    words: bool = False


def matrix(name: str, *shape: int, gain: float = 1.0, exact: bool = False) -> Tensor:
    """Gives vectors of length `gain` for unit ones."""
    return Tensor(f"{name}.weight", shape, gain / sqrt(shape[-1]), exact=exact)


def norm(name: str, size: int, mean: float = 1.0) -> Tensor:
    """The weight of an RMS norm."""
    return Tensor(f"{name}.weight", (size,), _NORM_SPREAD, mean, exact=True)


def gguf_tensors(family: Family, shape: Shape) -> Iterator[Tensor]:
    """All tensors of a GGUF file, in the order of the forward pass."""
    s = shape
    yield Tensor("token_embd.weight", (s.vocab, s.hidden), 1.0)
    if family.streams:
        sizes = ngrams.table_sizes(s.ngram_heads, s.ngram_vocab)
        cols = s.hidden // len(sizes)
        yield Tensor("per_layer_token_embd.weight", (ngrams.padded_rows(sizes), cols), 1.0)
    for layer in range(s.layers):
        yield from _layer(family, s, layer)
    if family.streams:
        yield from _mixer("output_hc", s, inject=False)
    else:
        yield norm("output_norm", s.hidden)
    yield Tensor("output.weight", (s.vocab, s.hidden), 4 / sqrt(s.hidden), words=True)


def ngram_layer(family: Family) -> int | None:
    """The layer (from 0) that has the n-gram embeddings."""
    return 1 if family.streams else None


def _layer(family: Family, s: Shape, layer: int) -> Iterator[Tensor]:
    at = f"blk.{layer}"
    if layer == ngram_layer(family):
        yield from _ngram(at, s)
    if family.streams:
        yield from _mixer(f"{at}.hc_attn", s)
    else:
        yield norm(f"{at}.attn_norm", s.hidden)
    if s.recurrent(family, layer):
        yield from _delta(family, at, s)
    else:
        yield from _attention(family, at, s)
    if family.streams:
        yield from _mixer(f"{at}.hc_ffn", s)
    else:
        yield norm(f"{at}.post_attention_norm" if family.recurrent else f"{at}.ffn_norm", s.hidden)
    yield from _experts(family, at, s) if family.moe else _dense(at, s)


def _attention(family: Family, at: str, s: Shape) -> Iterator[Tensor]:
    inner, narrow = s.heads * s.head_dim, s.kv_heads * s.head_dim
    sharp = 1.0 if family.head_norms else _SHARPNESS
    yield matrix(f"{at}.attn_q", inner * (1 + family.gated), s.hidden, gain=sharp)
    yield matrix(f"{at}.attn_k", narrow, s.hidden, gain=sharp)
    yield matrix(f"{at}.attn_v", narrow, s.hidden)
    yield matrix(f"{at}.attn_output", s.hidden, inner, gain=4.0)  # a mean over tokens is small
    if family.head_norms:
        whole = family.head_norms == "together"
        yield norm(f"{at}.attn_q_norm", inner if whole else s.head_dim, _SHARPNESS)
        yield norm(f"{at}.attn_k_norm", narrow if whole else s.head_dim, _SHARPNESS)
    if family.streams:
        yield matrix(f"{at}.indexer.q_proj", s.index_heads * s.index_dim, s.hidden)
        yield matrix(f"{at}.indexer.k_proj", s.index_dim, s.hidden)
        yield norm(f"{at}.indexer.q_norm", s.index_dim)
        yield norm(f"{at}.indexer.k_norm", s.index_dim)


def _delta(family: Family, at: str, s: Shape) -> Iterator[Tensor]:
    yield matrix(f"{at}.attn_qkv", s.channels, s.hidden)
    yield matrix(f"{at}.attn_gate", s.inner, s.hidden)
    yield Tensor(f"{at}.ssm_conv1d.weight", (s.channels, s.conv), 0.5, exact=True)
    if family.gguf == "qwen3next":
        yield matrix(f"{at}.ssm_ba", 2 * s.value_heads, s.hidden, exact=True)
    else:
        yield matrix(f"{at}.ssm_beta", s.value_heads, s.hidden, exact=True)
        yield matrix(f"{at}.ssm_alpha", s.value_heads, s.hidden, exact=True)
    # The state forgets between a hundredth and a half of itself with each token.
    yield Tensor(f"{at}.ssm_a", (s.value_heads,), 3.5, -8.0, exact=True)
    yield Tensor(f"{at}.ssm_dt.bias", (s.value_heads,), 0.8, -4.5, exact=True)
    yield norm(f"{at}.ssm_norm", s.state_dim)
    yield matrix(f"{at}.ssm_out", s.hidden, s.inner, gain=2.0)


def _dense(at: str, s: Shape) -> Iterator[Tensor]:
    yield matrix(f"{at}.ffn_gate", s.ffn, s.hidden)
    yield matrix(f"{at}.ffn_up", s.ffn, s.hidden)
    yield matrix(f"{at}.ffn_down", s.hidden, s.ffn, gain=2.0)


def _experts(family: Family, at: str, s: Shape) -> Iterator[Tensor]:
    yield matrix(f"{at}.ffn_gate_inp", s.experts, s.hidden, gain=2.0, exact=True)
    yield matrix(f"{at}.ffn_gate_exps", s.experts, s.expert_ffn, s.hidden)
    yield matrix(f"{at}.ffn_up_exps", s.experts, s.expert_ffn, s.hidden)
    yield matrix(f"{at}.ffn_down_exps", s.experts, s.hidden, s.expert_ffn, gain=4.0)
    if family.shared:
        yield matrix(f"{at}.ffn_gate_inp_shexp", s.hidden, exact=True)
        yield matrix(f"{at}.ffn_gate_shexp", s.shared_ffn, s.hidden)
        yield matrix(f"{at}.ffn_up_shexp", s.shared_ffn, s.hidden)
        yield matrix(f"{at}.ffn_down_shexp", s.hidden, s.shared_ffn, gain=2.0)


def _mixer(name: str, s: Shape, inject: bool = True) -> Iterator[Tensor]:
    width = s.streams * s.hidden
    yield norm(f"{name}_norm", width, _STREAM_NORM)
    yield matrix(f"{name}_down", s.stream_rank, width, gain=_MIXER_GAIN / _STREAM_NORM)
    yield matrix(f"{name}_up", width, s.stream_rank, gain=_MIXER_GAIN / 2)
    if inject:
        yield matrix(
            f"{name}_inject", s.streams, width, gain=_MIXER_GAIN / _STREAM_NORM, exact=True
        )


def _ngram(at: str, s: Shape) -> Iterator[Tensor]:
    width = s.streams * s.hidden
    yield matrix(f"{at}.ple_key", width, s.hidden)
    yield matrix(f"{at}.ple_value", s.hidden, s.hidden)
    for name in ("key", "query", "conv"):
        yield norm(f"{at}.ple_norm_{name}", width)
    yield Tensor(f"{at}.ple_conv1d.weight", (width, s.conv), 0.3, exact=True)
