"""Vocabularies for tests: ours and transformers' on the same data."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library
from transformers import (
    AutoTokenizer,
    LlamaTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.integrations.gguf import convert_gguf_tokenizer
from transformers.tokenization_utils_base import generate_merges
from transformers.tokenization_utils_tokenizers import TokenizersBackend

from strata.files import ModelFile, open_model
from strata.text import tokenizer, vocab
from strata.text.tokenizer import Tokenizer

TEXTS = Path(__file__).parents[1] / "data" / "texts.txt"
CONTROL, USER_DEFINED, NORMAL, BYTE, UNKNOWN = 3, 4, 1, 6, 2


@dataclass(frozen=True)
class Pair:
    """Our tokenizer, transformers' on the same file, and the file.

    stock: transformers' before it was told something.
    """

    ours: Tokenizer
    theirs: PreTrainedTokenizerBase = field(repr=False)
    model: ModelFile = field(repr=False)
    stock: PreTrainedTokenizerBase | None = field(default=None, repr=False)


def gguf(metadata: dict[str, Any]) -> ModelFile:
    return ModelFile("gguf", Path("made-up.gguf"), "llama", metadata, {})


def smollm(path: Path) -> Pair:
    """SmolLM2. transformers reads the file's `smollm` as plain GPT-2; the published
    tokenizer.json, and llama.cpp, cut digits off first, so the reference is told to."""
    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    stock = deepcopy(theirs)
    theirs.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    model = open_model(path)
    return Pair(tokenizer.load(model), theirs, model, stock)


def folder_pair(folder: Path) -> Pair:
    """A Hugging Face folder without weights, read by transformers' class for any tokenizer.json."""
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    metadata = {
        "config": {},
        "generation_config": {},
        "tokenizer_config": settings,
        "chat_template": settings.get("chat_template"),
    }
    model = ModelFile("folder", folder, "llama", metadata, {})
    theirs = PreTrainedTokenizerFast.from_pretrained(folder)
    return Pair(tokenizer.load(model), theirs, model)


@cache
def _trained(kind: str) -> tuple[list[str], list[str]]:
    """Entries and merges of a small BPE vocabulary, learned from the texts of the suite."""
    library = Library(models.BPE())
    alphabet: list[str] = []
    if kind == "byte-level":
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    else:
        library.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first")
    trainer = trainers.BpeTrainer(
        vocab_size=1500, initial_alphabet=alphabet, special_tokens=[], show_progress=False
    )
    library.train_from_iterator(TEXTS.read_text(encoding="utf-8").splitlines(), trainer)
    state = json.loads(library.to_str())["model"]
    entries = sorted(state["vocab"], key=state["vocab"].__getitem__)
    return entries, [" ".join(pair) for pair in state["merges"]]


def sentencepiece_metadata(**extra: Any) -> dict[str, Any]:
    """GGUF metadata of a small SentencePiece vocabulary, byte fallback included."""
    entries, merges = _trained("sentencepiece")
    merged = ["".join(merge.split(" ")) for merge in merges]
    single = [entry for entry in entries if len(entry) == 1]
    head = ["<unk>", "<s>", "</s>"]
    byte = [f"<0x{value:02X}>" for value in range(256)]
    added = ["<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    tokens = [*head, *byte, *merged, *single, *added]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (len(merged) + len(single))]
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(merged) + len(single))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [*types, CONTROL, CONTROL, USER_DEFINED, USER_DEFINED],
        "tokenizer.ggml.scores": scores + [0.0] * 4,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **extra,
    }


def sentencepiece(**extra: Any) -> Pair:
    """transformers' LlamaTokenizer, its merges recovered by transformers, against ours."""
    metadata = sentencepiece_metadata(**extra)
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    types = metadata["tokenizer.ggml.token_type"]
    ids = {token: number for number, token in enumerate(tokens)}
    theirs = LlamaTokenizer(
        vocab=ids,
        merges=generate_merges(ids, dict(zip(tokens, scores, strict=True))),
        add_prefix_space=metadata.get("tokenizer.ggml.add_space_prefix", True),
        add_bos_token=metadata.get("tokenizer.ggml.add_bos_token", True),
        additional_special_tokens=[t for t, k in zip(tokens, types, strict=True) if k == CONTROL],
    )
    theirs.add_tokens(
        [
            AddedToken(token, normalized=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind == USER_DEFINED
        ]
    )
    assert len(theirs) == len(tokens)
    return Pair(Tokenizer(vocab.from_gguf(metadata)), theirs, gguf(metadata))


def byte_level_metadata(pre: str, **extra: Any) -> dict[str, Any]:
    """GGUF metadata of a small byte-level vocabulary."""
    entries, merges = _trained("byte-level")
    added = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>"]
    types = [NORMAL] * len(entries) + [CONTROL] * 3 + [USER_DEFINED] * 3
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*entries, *added],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": len(entries) + 2,
        "tokenizer.ggml.padding_token_id": len(entries),
        "tokenizer.ggml.add_bos_token": False,
        **extra,
    }


def byte_level(pre: str) -> Pair:
    """transformers' own reading of the same GGUF metadata."""
    metadata = byte_level_metadata(pre)
    names = {"model": "tokenizer_type", "pre": "pre_tokenizer_type"}
    short = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items()}
    library, _ = convert_gguf_tokenizer(
        "qwen2", {names.get(key, key): value for key, value in short.items()}
    )
    tokens = metadata["tokenizer.ggml.tokens"]
    theirs = TokenizersBackend(
        tokenizer_object=library,
        bos_token=None,
        eos_token=tokens[short["eos_token_id"]],
        pad_token=tokens[short["padding_token_id"]],
        unk_token=None,
    )
    return Pair(Tokenizer(vocab.from_gguf(metadata)), theirs, gguf(metadata))
