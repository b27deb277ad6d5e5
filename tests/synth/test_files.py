"""Files that `strata synth` writes: same bytes each time, made in pieces, and their tokenizer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import transformers
from gguf import GGMLQuantizationType as Type

from strata.cli import main
from strata.files import open_model
from strata.synth import folder, gguf_file
from strata.synth.pieces import bytes_of, pieces
from strata.synth.shape import FAMILIES, Shape
from strata.synth.tensors import matrix
from strata.synth.words import Words
from strata.text import tokenizer
from strata.types import ModelError

SHAPE = Shape(
    layers=4,
    hidden=64,
    heads=4,
    kv_heads=2,
    head_dim=32,
    ffn=96,
    experts=6,
    top_k=2,
    expert_ffn=32,
    shared_ffn=48,
    vocab=600,
    key_heads=2,
    value_heads=4,
    state_dim=16,
    stream_rank=16,
    index_dim=32,
    index_budget=16,
    ngram_heads=2,
    ngram_vocab=50,
)


def silent(what: str, done: int, total: int | None) -> None:
    pass


def test_a_seed_decides_every_byte(tmp_path: Path) -> None:
    family = FAMILIES["qwen4_exp"]
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        gguf_file.write(tmp_path / name, family, SHAPE, "Q5_0", seed, silent)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c and len(a) == len(c)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_a_large_tensor_is_made_in_small_pieces() -> None:
    big = matrix("blk.0.ffn_gate_exps", 64, 512, 1024)
    sizes = [piece.nbytes for piece in pieces(big, Type.Q4_K, Words(300), 0)]
    assert sum(sizes) == bytes_of(big, Type.Q4_K) == 64 * 512 * 4 * 144
    assert max(sizes) < 4 << 20


def test_rows_that_do_not_fit_are_stored_otherwise_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "m.gguf"
    sizes = "--layers 1 --hidden 256 --heads 3 --kv-heads 1 --head-dim 32 --ffn 512 --vocab 600"
    assert main(["synth", "llama", *sizes.split(), "--quant", "Q4_K", "--out", str(path)]) == 0
    assert "blk.0.attn_output.weight (Q8_0)" in capsys.readouterr().err
    kinds = {name: Type(one.format).name for name, one in open_model(path).tensors.items()}
    assert kinds["blk.0.attn_output.weight"] == "Q8_0" and kinds["blk.0.ffn_down.weight"] == "Q4_K"


def test_both_kinds_of_file_have_the_same_tokenizer(tmp_path: Path) -> None:
    family, path = FAMILIES["qwen3"], tmp_path / "m.gguf"
    folder.write(tmp_path / "f", family, SHAPE, "BF16", 1, silent)
    gguf_file.write(path, family, SHAPE, "Q8_0", 1, silent)
    text = "Hello babu! Ĝis\n\n 12 bebi<|im_end|> été"
    hub = transformers.AutoTokenizer.from_pretrained(tmp_path / "f")
    expected = hub(text)["input_ids"]
    chat = [{"role": "user", "content": text}]
    prompt = hub.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert prompt == f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    assert hub.eos_token == "<|im_end|>"
    for one in (path, tmp_path / "f"):
        own = tokenizer.load(open_model(one))
        assert own.encode(text, special=True) == expected
        assert own.decode(expected) == hub.decode(expected)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("qwen3", {"heads": 3}, "heads must be a multiple of kv-heads"),
        ("olmoe", {}, "kv-heads = heads"),
        ("qwen3_moe", {"top_k": 7}, "top-k"),
        ("qwen3_5", {"value_heads": 3}, "value-heads"),
        ("qwen4_exp", {"index_budget": 6}, "index-budget"),
        ("qwen4_exp", {"ngram_heads": 3}, "ngram-heads"),
        ("llama", {"layers": 0}, "--layers must be positive"),
    ],
)
def test_sizes_that_do_not_go_together(family: str, changes: dict[str, int], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        replace(SHAPE, **changes).check(FAMILIES[family])


def test_what_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    def stop(what: str, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    for write in (gguf_file.write, folder.write):
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path / "m", FAMILIES["qwen3_5"], SHAPE, "F16", 1, stop)
    assert not list(tmp_path.rglob("*.part"))
    assert not (tmp_path / "m/model.safetensors").exists()


def test_the_command_writes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--layers=1", "--hidden=64", "--vocab=300", "--experts=2", "--top-k=1"]
    words = ["synth", "qwen3_moe", "--safetensors", *sizes, "--out"]
    assert main([*words, str(tmp_path / "f")]) == 0
    file = open_model(tmp_path / "f")
    assert (file.kind, file.architecture) == ("folder", "qwen3_moe")
    assert {Type(one.format).name for one in file.tensors.values()} == {"BF16"}
    assert main([*words, str(tmp_path / "g"), "--quant", "Q8_0"]) == 2
    assert main([*words, "/dev/null/g"]) == 2
    said = capsys.readouterr().err
    assert "a folder holds F32, F16, BF16" in said and "cannot write /dev/null/g" in said


def test_a_mixture_of_formats(tmp_path: Path) -> None:
    """Which layers of 28 llama-quantize gives more bits in a Q4_K_M file."""
    shape = replace(SHAPE, layers=28, hidden=256, ffn=256, heads=8)
    assert gguf_file.write(tmp_path / "a", FAMILIES["qwen3"], shape, "Q4_K_M", 0, silent) == []
    kinds = {n: Type(t.format) for n, t in open_model(tmp_path / "a").tensors.items()}
    more = [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27]
    for stem in ("attn_v", "ffn_down"):
        own = [kinds[f"blk.{layer}.{stem}.weight"] for layer in range(28)]
        assert [layer for layer, kind in enumerate(own) if kind == Type.Q6_K] == more
        assert set(own) == {Type.Q4_K, Type.Q6_K}
    assert kinds["output.weight"] == Type.Q6_K and kinds["token_embd.weight"] == Type.Q4_K
    assert kinds["blk.0.attn_q.weight"] == Type.Q4_K and kinds["blk.0.attn_norm.weight"] == Type.F32
