"""Ids and decodes against transformers, on real and on made-up vocabularies."""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile import HOSTILE, SPECIAL_TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library
from tokenizers.models import BPE
from transformers import AutoTokenizer
from transformers.tokenization_utils_base import generate_merges
from vocabularies import (
    TEXTS,
    Pair,
    byte_level,
    byte_level_metadata,
    folder_pair,
    gguf,
    sentencepiece,
    sentencepiece_metadata,
)

from strata.files import ModelFile
from strata.text import splits, tokenizer, vocab
from strata.text.added import AddedTokens
from strata.text.segments import SegmentCache
from strata.text.template import ChatTemplate
from strata.text.tokenizer import Tokenizer
from strata.types import ModelError


def theirs(pair: Pair, text: str, special: bool, start: bool = True) -> list[int]:
    return list(
        pair.theirs(text, split_special_tokens=not special, add_special_tokens=start).input_ids
    )


def test_there_are_at_least_200_hostile_texts() -> None:
    assert len(HOSTILE) >= 200


@pytest.mark.parametrize("special", [True, False])
def test_ids_equal_transformers(pair: Pair, special: bool) -> None:
    wrong = [
        (text, ours, expected)
        for text in HOSTILE
        if (ours := pair.ours.encode(text, special=special))
        != (expected := theirs(pair, text, special))
    ]
    assert wrong == []


def test_stock_transformers_agrees_where_no_blank_stands_before_a_digit(smollm_pair: Pair) -> None:
    """Its reading of `smollm` differs there and nowhere else; ours is the published one."""
    stock = smollm_pair.stock
    assert stock is not None
    for text in HOSTILE:
        if not any(a.isspace() and b.isnumeric() for a, b in pairwise(text)):
            assert stock(text).input_ids == smollm_pair.ours.encode(text, special=True), text
    # llama.cpp's ids for these, taken from its server on the same file.
    golden = {"  1": [256, 33], "\n\n7": [1116, 39], "x  12  34": [104, 256, 33, 34, 256, 35, 36]}
    for text, ids in golden.items():
        assert smollm_pair.ours.encode(text) == ids
        assert stock(text).input_ids != ids


@pytest.mark.parametrize("pre", ["default", "gpt-2", "qwen2", "qwen35", "tekken", "llama-bpe"])
def test_each_pre_tokenizer_equals_transformers(pre: str) -> None:
    pair = byte_level(pre)
    # Of tekken and llama-bpe the published tokenizers take whole words first; transformers'
    # reading of GGUF does not. A vocabulary whose merges reach every entry shows no difference.
    for text in HOSTILE:
        assert pair.ours.encode(text, special=True) == theirs(pair, text, True), text


def test_transformers_llama_class_differs_only_before_blanks(llama2_pair: Pair) -> None:
    """Its class drops the file's rule that a blank goes before any text, also before a blank."""
    rebuilt = AutoTokenizer.from_pretrained(llama2_pair.model.path)
    for text in HOSTILE:
        if not text.startswith((" ", "▁")):
            assert rebuilt(text).input_ids == llama2_pair.ours.encode(text, special=True)


def test_unknown_kinds_are_refused_with_what_is_supported() -> None:
    with pytest.raises(ModelError, match=r"'bert-bpe' is not supported.*smollm"):
        vocab.from_gguf(byte_level_metadata("bert-bpe"))
    with pytest.raises(ModelError, match=r"kind 'bert'.*gpt2.*llama"):
        vocab.from_gguf({**byte_level_metadata("qwen2"), "tokenizer.ggml.model": "bert"})
    assert {"smollm", "default", "gpt-2", "qwen2", "llama-bpe", "llama3"} <= set(splits.SUPPORTED)


def brute_force_sentencepiece(metadata: dict, text: str) -> list[int]:
    """SentencePiece's own rule, naively: join the best-scored neighbours, leftmost first."""
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    types = metadata["tokenizer.ggml.token_type"]
    ids = {token: i for i, token in enumerate(tokens) if types[i] == 1}
    text = text.replace(" ", "▁")
    symbols = list(text if text.startswith("▁") else "▁" + text)
    while True:
        joins = [
            (-scores[ids[a + b]], i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in ids
        ]
        if not joins:
            break
        _, i = min(joins)
        symbols[i : i + 2] = ["".join(symbols[i : i + 2])]
    out = [1]
    for symbol in symbols:
        found = [ids[symbol]] if symbol in ids else [3 + byte for byte in symbol.encode()]
        out += found
    return out


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ethanoirs lduyc .\n▁é漢😀T"), min_size=1, max_size=40))
def test_sentencepiece_follows_its_rule(text: str) -> None:
    metadata = sentencepiece_metadata()
    assert _spm().encode(text) == brute_force_sentencepiece(metadata, text)


_made: list[Tokenizer] = []


def _spm() -> Tokenizer:
    if not _made:
        _made.append(Tokenizer(vocab.from_gguf(sentencepiece_metadata())))
    return _made[0]


def test_merges_of_scores_are_transformers_own() -> None:
    """Vocabularies in which an entry can be cut in many ways and scores are often equal."""
    for seed in range(100):
        rng = random.Random(seed)
        texts = {"".join(rng.choices("abc", k=rng.randrange(1, 6))) for _ in range(60)}
        entries = sorted({*"abc", *texts}, key=lambda _: rng.random())
        scores = [float(rng.randrange(-4, 1)) for _ in entries]
        expected = generate_merges(
            {entry: i for i, entry in enumerate(entries)}, dict(zip(entries, scores, strict=True))
        )
        assert vocab.merges_by_score(entries, scores, [True] * len(entries)) == expected


def naive_split(tokens: list[str], text: str) -> list[str]:
    """Leftmost, then longest, by trying each token at each place."""
    out, at, plain = [], 0, ""
    while at < len(text):
        found = max((t for t in tokens if text.startswith(t, at)), key=len, default="")
        if found:
            out += [plain, found]
            plain = ""
        else:
            plain += text[at]
        at += len(found) or 1
    return [*out, plain]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text(st.sampled_from("ab<|."), min_size=1, max_size=4), max_size=8, unique=True),
    st.text(st.sampled_from("ab<|."), max_size=30),
)
def test_added_tokens_are_found_leftmost_and_longest(tokens: list[str], text: str) -> None:
    made = {i: AddedToken(t, normalized=False, special=i % 2 == 0) for i, t in enumerate(tokens)}
    added = AddedTokens(made)
    parts = [tokens[part] if isinstance(part, int) else part for part in added.split(text)]
    assert parts == naive_split(tokens, text)
    segments = added.cut(text)
    assert "".join(segments) == text
    control = [part for part in parts[1::2] if tokens.index(part) % 2 == 0]
    assert len(segments) == len(control) + 1
    assert all(map(str.startswith, segments[1:], control))
    library = Library(BPE())
    for token in made.values():
        (library.add_special_tokens if token.special else library.add_tokens)([token])
    assert library.encode(text).tokens == parts[1::2]


def test_plain_text_never_merges_into_a_control_token() -> None:
    """A vocabulary whose entries could be joined into `</s>` by score."""
    metadata = sentencepiece_metadata()
    extra = ["</", "s>", "</s", "<", "/", ">"]
    metadata["tokenizer.ggml.tokens"] = metadata["tokenizer.ggml.tokens"] + [
        text for text in extra if text not in metadata["tokenizer.ggml.tokens"]
    ]
    added = len(metadata["tokenizer.ggml.tokens"]) - len(metadata["tokenizer.ggml.token_type"])
    metadata["tokenizer.ggml.token_type"] = metadata["tokenizer.ggml.token_type"] + [1] * added
    metadata["tokenizer.ggml.scores"] = metadata["tokenizer.ggml.scores"] + [5.0] * added
    ours = Tokenizer(vocab.from_gguf(metadata))
    assert 2 not in ours.encode("a</s>b")
    assert 2 in ours.encode("a</s>b", special=True)


@pytest.mark.parametrize("blank", [True, False])
def test_prefix_blank_and_bos(blank: bool) -> None:
    pair = sentencepiece(**{"tokenizer.ggml.add_space_prefix": blank})
    for text in ("the", " the", "<s>the", "the</s> the", ""):
        assert pair.ours.encode(text, special=True) == theirs(pair, text, True), text
    inside = pair.ours.encode("the", start=False)
    assert pair.ours.decode(inside, start=False) == "the"
    assert pair.ours.encode("the")[0] == 1 and inside[0] != 1
    without = sentencepiece_metadata(**{"tokenizer.ggml.add_bos_token": False})
    assert Tokenizer(vocab.from_gguf(without)).encode("the")[0] != 1


def test_end_and_special_ids(smollm_pair: Pair) -> None:
    assert smollm_pair.ours.end_ids == {0, 2}
    assert smollm_pair.ours.bos == 1 and smollm_pair.ours.vocab_size == 49152
    assert smollm_pair.ours.special_ids == set(range(17))
    metadata = byte_level_metadata("qwen2", **{"tokenizer.ggml.eot_token_id": 5})
    made = Tokenizer(vocab.from_gguf(metadata))
    size = made.vocab_size
    assert made.end_ids == {5, size - 6, size - 4}  # eot, <|endoftext|>, <|im_end|>
    assert made.special_ids == {5, *range(size - 6, size - 3)}
    assert made.bos is None


def test_end_ids_of_a_folder(qwen_pair: Pair) -> None:
    assert qwen_pair.ours.end_ids == {151643, 151645}
    assert qwen_pair.ours.bos is None and qwen_pair.ours.vocab_size == 151669
    assert 151667 not in qwen_pair.ours.special_ids  # <think> is no control token
    model = qwen_pair.model
    generation = {"eos_token_id": [151645, 151662]}
    stated = replace(model, metadata={**model.metadata, "generation_config": generation})
    assert tokenizer.load(stated).end_ids == {151643, 151645, 151662}
    multimodal = {"config": {"text_config": {"eos_token_id": 151662}}}
    stated = replace(model, metadata={**model.metadata, **multimodal})
    assert tokenizer.load(stated).end_ids == {151643, 151645, 151662}


# -------------------------------------------------------------------- decode


def library_decode(pair: Pair, ids: list[int], skip: bool) -> str:
    decoded: str = pair.theirs.backend_tokenizer.decode(ids, skip_special_tokens=skip)
    return decoded


@pytest.mark.parametrize("skip", [True, False])
def test_decode_of_texts_equals_the_library(pair: Pair, skip: bool) -> None:
    for text in HOSTILE:
        ids = pair.ours.encode(text, special=True)
        assert pair.ours.decode(ids, skip_special=skip) == library_decode(pair, ids, skip), text


@pytest.mark.parametrize("skip", [True, False])
def test_decode_of_random_ids_equals_the_library(pair: Pair, skip: bool) -> None:
    rng = np.random.default_rng(7)
    spelled = pair.theirs.convert_ids_to_tokens(list(range(len(pair.theirs))))
    lone = {text: i for i, text in enumerate(spelled) if text and re.fullmatch("<0x..>", text)}
    for length in [*range(1, 12), 50, 400] * 12:
        ids = rng.integers(0, pair.ours.vocab_size, length).tolist()
        if lone:
            # The library replaces a whole run of byte tokens when part of it is no UTF-8 (the
            # module's docstring says why ours does not), so here runs are whole characters.
            ids = [i for i in ids if i not in lone.values()]
            for place, character in ((len(ids), "a\n"), (len(ids) // 2, "😀"), (0, "é漢")):
                ids[place:place] = [lone[f"<0x{byte:02X}>"] for byte in character.encode()]
        assert pair.ours.decode(ids, skip_special=skip) == library_decode(pair, ids, skip)


def test_sentencepiece_bytes_that_are_no_text(spm_pair: Pair) -> None:
    ours = spm_pair.ours
    assert ours.decode([3 + 0x41, 3 + 0xFF, 3 + 0x42]) == "A\ufffdB"
    assert ours.decode([3 + 0xE6, 3 + 0xBC]) == "\ufffd"
    assert ours.decode([3 + 0xE6, 3 + 0xBC, 3 + 0xA2]) == "漢"


def test_bytes_join_to_the_decode(pair: Pair) -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        ids = rng.integers(-3, pair.ours.vocab_size + 3, 30).tolist()
        raw = b"".join(pair.ours.token_bytes(token, special=True) for token in ids)
        assert pair.ours.decode(ids, start=False) == raw.decode("utf-8", "replace")
    assert pair.ours.token_bytes(10**9) == b"" and pair.ours.decode([10**9, -1]) == ""


@settings(max_examples=400, deadline=None)
@given(st.text(max_size=60), st.booleans())
def test_any_text_survives(text: str, special: bool) -> None:
    ids = _spm().encode(text, special=special)
    if special and any(ids[1:][i] in _spm().special_ids for i in range(len(ids) - 1)):
        return
    clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert _spm().decode(ids, skip_special=True) in (clean.replace("▁", " "), clean[1:])


def test_lone_surrogates_become_replacement_characters(pair: Pair) -> None:
    for text, clean in (("a\ud800b", "a\ufffdb"), ("\udc00", "\ufffd"), ("\ud83d\ude00", "😀")):
        assert pair.ours.encode(text) == pair.ours.encode(clean)


# --------------------------------------------------------------------- cache


def test_the_cache_changes_nothing_and_is_bounded(bytes_pair: Pair) -> None:
    metadata = byte_level_metadata("qwen2")
    small = Tokenizer(vocab.from_gguf(metadata), cache_bytes=20_000)
    none = Tokenizer(vocab.from_gguf(metadata), cache_bytes=0)
    for _ in range(3):
        for text in HOSTILE:
            expected = none.encode(text, special=True)
            assert small.encode(text, special=True) == expected
            assert bytes_pair.ours.encode(text, special=True) == expected
            assert small._cache._used <= 20_000
    assert none._cache._used == 0


def test_the_cache_forgets_what_was_used_longest_ago() -> None:
    cache = SegmentCache(10 * _cost("0" * 50, [0]))
    for i in range(10):
        cache.put("r", f"{i}" * 50, [i])
    assert cache.get("r", "0" * 50) is not None
    for i in range(10, 19):
        cache.put("r", chr(55 + i) * 50, [i])
    assert cache.get("r", "0" * 50) is not None and cache.get("r", "1" * 50) is None
    assert cache.get("other", "0" * 50) is None


def _cost(text: str, ids: list[int]) -> int:
    cache = SegmentCache(1 << 20)
    cache.put("r", text, ids)
    return cache._used


def test_what_was_seen_is_not_tokenised_again(bytes_pair: Pair) -> None:
    ours = Tokenizer(vocab.from_gguf(byte_level_metadata("qwen2")))
    asked: list[str] = []
    encode = ours._backend.encode
    ours._backend.encode = lambda texts, *rest: (asked.extend(texts), encode(texts, *rest))[1]  # type: ignore[method-assign]
    turns = "".join(f"<|im_start|>user\nmessage {i}<|im_end|>\n" for i in range(20))
    ours.encode(turns, special=True)
    asked.clear()
    ids = ours.encode(turns + "<|im_start|>assistant\n", special=True)
    assert asked == ["<|im_start|>assistant\n"]
    assert ids == theirs(bytes_pair, turns + "<|im_start|>assistant\n", True)


def test_threads_agree(bytes_pair: Pair) -> None:
    ours = Tokenizer(vocab.from_gguf(byte_level_metadata("qwen2")), cache_bytes=30_000)
    expected = [bytes_pair.ours.encode(text, special=True) for text in HOSTILE]
    wrong: list[str] = []

    def work(seed: int) -> None:
        for i in np.random.default_rng(seed).permutation(len(HOSTILE)).tolist():
            if ours.encode(HOSTILE[i], special=True) != expected[i]:
                wrong.append(HOSTILE[i])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ------------------------------------------------------------- broken files


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.tokens": None}, "no tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.tokens": []}, "no tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.token_type": [1]}, "token types"),
        ({"tokenizer.ggml.eos_token_id": 10**6}, "eos token has id"),
        ({"tokenizer.ggml.merges": ["zz qq"]}, "damaged"),
        ({"tokenizer.ggml.merges": ["noblank"]}, "damaged"),
        ({"tokenizer.ggml.pre": 7}, "pre-tokenizer 7"),
    ],
)
def test_damaged_metadata(change: dict, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        tokenizer.load(gguf({**byte_level_metadata("qwen2"), **change}))


def test_damaged_scores() -> None:
    with pytest.raises(ModelError, match="no score"):
        tokenizer.load(gguf({**sentencepiece_metadata(), "tokenizer.ggml.scores": [0.0]}))


def test_damaged_folders(tmp_path: Path) -> None:
    model = ModelFile("folder", tmp_path, "llama", {}, {})
    with pytest.raises(ModelError, match=r"no tokenizer.json"):
        tokenizer.load(model)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"}')
    with pytest.raises(ModelError, match="cannot read"):
        tokenizer.load(model)
    words = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    Library.from_str(json.dumps({"version": "1.0", "model": words, "added_tokens": []})).save(
        str(tmp_path / "tokenizer.json")
    )
    with pytest.raises(ModelError, match=r"decoder .* is not supported"):
        tokenizer.load(model)


def test_a_saved_folder_gives_the_same_ids(tmp_path: Path, smollm_pair: Pair) -> None:
    """The same vocabulary as tokenizer.json: padding, truncation and a bos rule included."""
    smollm_pair.theirs.save_pretrained(tmp_path)
    library = Library.from_file(str(tmp_path / "tokenizer.json"))
    library.enable_truncation(5)
    library.enable_padding(length=64)
    library.save(str(tmp_path / "tokenizer.json"))
    folder = folder_pair(tmp_path)
    for text in HOSTILE:
        expected = smollm_pair.ours.encode(text, special=True)
        assert folder.ours.encode(text, special=True) == expected
        assert folder.ours.encode(text) == smollm_pair.ours.encode(text)
    assert folder.ours.end_ids == smollm_pair.ours.end_ids
    assert folder.ours.special_ids == smollm_pair.ours.special_ids


def test_long_texts_equal_transformers(smollm_pair: Pair) -> None:
    text = (
        TEXTS.read_text(encoding="utf-8") * 3 + "".join(SPECIAL_TEXTS) + "a" * 20_000 + " " * 20_000
    )
    assert smollm_pair.ours.encode(text, special=True) == theirs(smollm_pair, text, True)


_ODD = (None, 0, -1, 1.5, float("nan"), "", "a b", [], ["a"], {}, b"x", 10**30, "\ud800", "<s>")


@pytest.mark.parametrize("make", [lambda: byte_level_metadata("qwen2"), sentencepiece_metadata])
def test_odd_metadata_loads_or_is_refused(make: Callable[[], dict[str, Any]]) -> None:
    talk = [{"role": "user", "content": "a<|im_end|> wörld"}]
    loaded = 0
    for seed in range(120):
        rng = random.Random(seed)
        metadata = make()
        for key in rng.sample(sorted(metadata), rng.randrange(1, 3)):
            value = rng.choice(_ODD)
            if isinstance(metadata[key], list) and rng.random() < 0.7:
                changed = list(metadata[key])
                for _ in range(rng.randrange(1, 4)):
                    changed[rng.randrange(len(changed))] = rng.choice((*_ODD, changed[0]))
                value = changed
            metadata[key] = value
        try:
            ours = tokenizer.load(gguf(metadata))
            ours.decode(ours.encode("hello <s> wörld 漢<|im_end|>", special=True))
            ChatTemplate(ours, "{{ messages[0].content }}").render(talk)
            loaded += 1
        except ModelError as error:
            assert str(error)
    assert loaded > 5


@pytest.mark.parametrize(
    "settings",
    [
        {"bos_token": 5, "eos_token": ["x"], "additional_special_tokens": [7, {"content": 3}]},
        {"bos_token": {"content": "<|im_start|>"}, "add_bos_token": True},
        {"eos_token": "no such token", "add_bos_token": "yes", "extra_special_tokens": {"a": "b"}},
    ],
)
def test_odd_folder_settings(tmp_path: Path, smollm_pair: Pair, settings: dict[str, Any]) -> None:
    smollm_pair.theirs.backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    facts = {"tokenizer_config": settings, "generation_config": {"eos_token_id": ["x", -1, 10**9]}}
    ours = tokenizer.load(ModelFile("folder", tmp_path, "llama", facts, {}))
    begins = [1] if settings.get("add_bos_token") is True else []
    assert ours.encode("hello") == [*begins, *smollm_pair.ours.encode("hello")]
    assert ours.end_ids == {0, 2}
