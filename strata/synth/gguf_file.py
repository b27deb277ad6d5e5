"""Writes GGUF files tensor by tensor, each in pieces of a few megabytes; and random models so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType, GGUFWriter, TokenType

from strata.synth import blocks, ngrams
from strata.synth.pieces import pieces
from strata.synth.shape import EPS, Family, Shape
from strata.synth.tensors import Tensor, gguf_tensors, ngram_layer
from strata.synth.words import CHATML, END, END_OF_TEXT, SPECIAL, Words
from strata.types import ProgressSink

MIXES = {"Q4_K_M": (Type.Q4_K, Type.Q6_K), "Q5_K_M": (Type.Q5_K, Type.Q6_K)}
"""Mixtures of formats as llama.cpp names them: of most matrices, and of those that errors in hurt
most: the output, and in some layers values and what the feed-forward ends with.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor to be written: its shape in C order, and what makes its bytes, in pieces."""

    name: str
    shape: tuple[int, ...]
    kind: Type
    pieces: Callable[[], Iterator[blocks.Bytes]]

    @property
    def nbytes(self) -> int:
        """Of the whole tensor."""
        return prod(self.shape[:-1]) * blocks.row_bytes(self.kind, self.shape[-1])


def write(
    path: Path, family: Family, shape: Shape, kind: str, seed: int, progress: ProgressSink
) -> list[str]:
    """Write a model; the names of tensors whose rows do not fit `kind` and were stored otherwise.

    The same arguments give the same bytes.
    """
    words = Words(shape.vocab)
    writer = GGUFWriter(None, family.gguf)
    writer.add_name(f"synthetic {family.model_type}")
    _sizes(writer, family, shape)
    _tokenizer(writer, words)
    items = [(one, *_formats(one, kind, shape)) for one in gguf_tensors(family, shape)]
    parts = [
        Part(one.name, one.shape, own, partial(pieces, one, own, words, seed))
        for one, _, own in items
    ]
    write_parts(writer, path, parts, progress)
    return [f"{one.name} ({own.name})" for one, asked, own in items if asked != own]


def write_parts(
    writer: GGUFWriter, path: Path, parts: Sequence[Part], progress: ProgressSink
) -> None:
    """Write the keys that `writer` has and these tensors. `path` appears once it is whole."""
    for one in parts:
        float32 = np.dtype(np.float32)
        writer.add_tensor_info(one.name, one.shape, float32, one.nbytes, raw_dtype=one.kind)
    beside = path.with_name(path.name + ".part")
    total, done = sum(one.nbytes for one in parts), 0
    try:
        writer.write_header_to_file(beside)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        assert writer.fout is not None
        out = writer.fout[0]
        writer.write_padding(out, out.tell())
        for one in parts:
            for piece in one.pieces():
                out.write(piece.data)
                done += piece.nbytes
                progress("weights", done, total)
            writer.write_padding(out, out.tell())
        writer.close()
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _formats(one: Tensor, kind: str, shape: Shape) -> tuple[Type, Type]:
    """The format that `kind` asks for, and the one that fits."""
    if one.exact:
        return Type.F32, Type.F32
    most, finer = MIXES.get(kind) or (Type[kind], Type[kind])
    asked = finer if _hurts(one.name, shape.layers) else most
    return asked, blocks.fitting(asked, one.shape[-1])


def _hurts(name: str, layers: int) -> bool:
    """llama.cpp's rule (llama-quant.cpp, use_more_bits): the first and last eighth of the layers,
    and every third between.
    """
    if name == "output.weight":
        return True
    if not any(part in name for part in (".attn_v.", ".ffn_down")):
        return False
    layer, eighth = int(name.split(".")[1]), layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def _sizes(writer: GGUFWriter, family: Family, s: Shape) -> None:
    writer.add_block_count(s.layers)
    writer.add_context_length(s.context)
    writer.add_embedding_length(s.hidden)
    writer.add_head_count(s.heads)
    writer.add_head_count_kv(s.kv_heads)
    writer.add_key_length(s.head_dim)
    writer.add_value_length(s.head_dim)
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_rope_freq_base(family.theta)
    writer.add_rope_dimension_count(s.rotary_dims(family))
    writer.add_vocab_size(s.vocab)
    # olmoe and mixtral-like files say there how large an expert is.
    writer.add_feed_forward_length(s.expert_ffn if family.moe else s.ffn)
    if family.moe:
        writer.add_expert_count(s.experts)
        writer.add_expert_used_count(s.top_k)
        writer.add_expert_feed_forward_length(s.expert_ffn)
    if family.shared:
        writer.add_expert_shared_feed_forward_length(s.shared_ffn)
    if family.recurrent:
        writer.add_ssm_conv_kernel(s.conv)
        writer.add_ssm_state_size(s.state_dim)
        writer.add_ssm_group_count(s.key_heads)
        writer.add_ssm_time_step_rank(s.value_heads)
        writer.add_ssm_inner_size(s.inner)
        writer.add_uint32(f"{family.gguf}.full_attention_interval", s.interval)
    if family.gguf in ("qwen35", "qwen35moe", "qwen4exp"):
        writer.add_rope_dimension_sections([*s.sections(family), 0])
    if family.streams:
        _streams(writer, family, s)


def _streams(writer: GGUFWriter, family: Family, s: Shape) -> None:
    """Keys of the gated streams, the indexer and the n-grams."""
    at = family.gguf
    writer.add_uint32(f"{at}.hyper_connection.count", s.streams)
    writer.add_uint32(f"{at}.hyper_connection.low_rank", s.stream_rank)
    writer.add_uint32(f"{at}.attention.indexer.head_count", s.index_heads)
    writer.add_uint32(f"{at}.attention.indexer.key_length", s.index_dim)
    writer.add_uint32(f"{at}.attention.indexer.top_k", s.index_budget)
    ratios = [0 if s.recurrent(family, layer) else s.index_ratio for layer in range(s.layers)]
    writer.add_array(f"{at}.attention.compress_ratios", ratios)
    writer.add_array(f"{at}.ple.layers", [ngram_layer(family)])
    writer.add_uint32(f"{at}.ple.ngram_size", ngrams.SIZE)
    writer.add_uint32(f"{at}.ple.heads_per_ngram", s.ngram_heads)
    writer.add_uint32(f"{at}.ple.conv_kernel", s.conv)
    writer.add_uint32(f"{at}.ple.eos_token_id", Words(s.vocab).id(END_OF_TEXT))
    sizes = ngrams.table_sizes(s.ngram_heads, s.ngram_vocab)
    writer.add_uint32(f"{at}.embedding_length_per_layer_input", s.hidden // len(sizes))
    for key, values in (
        ("layer_multipliers", ngrams.multipliers(s.vocab)),
        ("head_vocab_sizes", sizes),
        ("head_offsets", [sum(sizes[:i]) for i in range(len(sizes))]),
    ):
        writer.add_key_value(
            f"{at}.ple.{key}", values, GGUFValueType.ARRAY, sub_type=GGUFValueType.UINT64
        )


def _tokenizer(writer: GGUFWriter, words: Words) -> None:
    normal = words.size - len(SPECIAL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(words.PRE)
    writer.add_token_list(words.entries)
    writer.add_token_types([TokenType.NORMAL] * normal + [TokenType.CONTROL] * len(SPECIAL))
    writer.add_token_merges([f"{a} {b}" for a, b in words.merges])
    writer.add_eos_token_id(words.id(END))
    writer.add_pad_token_id(words.id(END_OF_TEXT))
    writer.add_bos_token_id(words.id(END_OF_TEXT))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)
