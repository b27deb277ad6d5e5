"""Writes a random model as a Hugging Face folder: one safetensors file written in pieces, the
configuration, the tokenizer.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Type
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel
from tokenizers.models import BPE

from strata.synth import ngrams
from strata.synth.folder_tensors import SHARDS, constants, folder_tensors
from strata.synth.pieces import bytes_of, pieces
from strata.synth.shape import EPS, Family, Shape
from strata.synth.words import CHATML, END, END_OF_TEXT, SPECIAL, Words
from strata.text import splits
from strata.types import ModelError, ProgressSink

_KINDS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def write(
    folder: Path, family: Family, shape: Shape, kind: str, seed: int, progress: ProgressSink
) -> list[str]:
    """Write a model. The same arguments give the same bytes. Nothing is stored otherwise: []."""
    if kind not in _KINDS:
        raise ModelError(f"a folder holds {', '.join(_KINDS)}; for {kind} write a GGUF file")
    folder.mkdir(parents=True, exist_ok=True)
    words = Words(shape.vocab)
    ends = [words.id(END), words.id(END_OF_TEXT)]
    _json(folder / "config.json", {**_config(family, shape, words), "dtype": _KINDS[kind]})
    _json(folder / "generation_config.json", {"do_sample": False, "eos_token_id": ends})
    _tokenizer(words).save(str(folder / "tokenizer.json"))
    own = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END_OF_TEXT,
        "model_max_length": shape.context,
        "chat_template": CHATML,
    }
    _json(folder / "tokenizer_config.json", own)
    _weights(folder / "model.safetensors", family, shape, Type[kind], seed, progress)
    return []


def _weights(
    path: Path, family: Family, shape: Shape, kind: Type, seed: int, progress: ProgressSink
) -> None:
    """A header of names, types, shapes and places, then the bytes."""
    words, items = Words(shape.vocab), list(folder_tensors(family, shape))
    numbers = [(name, np.array(values, "<i8")) for name, values in constants(family, shape)]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, label, dims, size in (
        *((one.name, kind.name, list(one.shape), bytes_of(one, kind)) for one in items),
        *((name, "I64", [len(values)], values.nbytes) for name, values in numbers),
    ):
        header[name] = {"dtype": label, "shape": dims, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part, done = path.with_name(path.name + ".part"), 0
    try:
        with part.open("wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for one in items:
                for piece in pieces(one, kind, words, seed):
                    out.write(piece.data)
                    done += piece.nbytes
                    progress("weights", done, end)
            for _, values in numbers:
                out.write(values.tobytes())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _config(family: Family, s: Shape, words: Words) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": family.theta}
    if family.rotary != 1:
        rope["partial_rotary_factor"] = family.rotary
    if family.gguf in ("qwen35", "qwen35moe", "qwen4exp"):
        rope |= {"mrope_section": s.sections(family), "mrope_interleaved": True}
    config: dict[str, Any] = {
        "architectures": [family.classname],
        "model_type": family.model_type,
        "hidden_act": "silu",
        "hidden_size": s.hidden,
        "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads,
        "head_dim": s.head_dim,
        "intermediate_size": s.expert_ffn if family.gguf == "olmoe" else s.ffn,
        "vocab_size": s.vocab,
        "max_position_embeddings": s.context,
        "rms_norm_eps": EPS,
        "rope_parameters": rope,
        # Their older places, where other programs look.
        "rope_theta": family.theta,
        "partial_rotary_factor": family.rotary,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "bos_token_id": None,
        "eos_token_id": words.id(END_OF_TEXT),
        "pad_token_id": words.id(END_OF_TEXT),
    }
    if family.moe:
        config |= {
            "num_experts": s.experts,
            "num_experts_per_tok": s.top_k,
            "moe_intermediate_size": s.expert_ffn,
            "norm_topk_prob": family.normalised,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
    if family.shared:
        config["shared_expert_intermediate_size"] = s.shared_ffn
    if family.recurrent:
        config |= _recurrent(family, s)
    return config | _streams(s) if family.streams else config


def _recurrent(family: Family, s: Shape) -> dict[str, Any]:
    kinds = ("full_attention", "linear_attention")
    return {
        "layer_types": [kinds[s.recurrent(family, layer)] for layer in range(s.layers)],
        "linear_conv_kernel_dim": s.conv,
        "linear_key_head_dim": s.state_dim,
        "linear_value_head_dim": s.state_dim,
        "linear_num_key_heads": s.key_heads,
        "linear_num_value_heads": s.value_heads,
    }


def _streams(s: Shape) -> dict[str, Any]:
    return {
        "hc_count": s.streams,
        "hc_lowrank": s.stream_rank,
        "output_gate_type": "sigmoid",
        "ple_layer_ids": [2],
        "ple_embed_dim": s.hidden,
        "ple_conv_kernel_size": s.conv,
        "ngram_size": ngrams.SIZE,
        "heads_per_ngram": s.ngram_heads,
        "ngram_vocab_size_base": s.ngram_vocab,
        "make_ngram_vocab_size_divisible_by": ngrams.DIVISOR,
        "split_ngram_parts": SHARDS,
        "seed": ngrams.SEED,
        "indexer_n_heads": s.index_heads,
        "indexer_kv_heads": 1,
        "indexer_head_dim": s.index_dim,
        "indexer_budget": s.index_budget,
        "indexer_compress_ratio": s.index_ratio,
    }


def _tokenizer(words: Words) -> Tokenizer:
    vocab = {entry: number for number, entry in enumerate(words.entries)}
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=words.merges))
    tokenizer.pre_tokenizer = splits.pre_tokenizer(words.PRE)
    tokenizer.decoder = ByteLevel()
    tokenizer.add_special_tokens([AddedToken(one, special=True) for one in SPECIAL])
    return tokenizer


def _json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
