"""Ways in which GGUF files of one model differ: each is the file that `strata synth` writes, told
otherwise, and must give the same logits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from strata.synth import gguf_file
from strata.synth.shape import FAMILIES, Shape
from strata.types import ModelError

TOKENS = torch.randint(0, 300, (40,), generator=torch.Generator().manual_seed(2)).tolist()
SHAPE = Shape(
    layers=4,
    hidden=32,
    heads=2,
    kv_heads=1,
    head_dim=32,
    experts=4,
    top_k=2,
    expert_ffn=16,
    shared_ffn=16,
    vocab=300,
    key_heads=2,
    value_heads=4,
    state_dim=16,
    stream_rank=8,
    index_dim=16,
    ngram_heads=2,
    ngram_vocab=30,
)
Tensors = dict[str, np.ndarray]
Keys = dict[str, Any]


def made(path: Path, family: str) -> Path:
    gguf_file.write(path, FAMILIES[family], SHAPE, "F32", 3, lambda *_: None)
    return path


def rewritten(source: Path, target: Path, change: Callable[[Keys, Tensors], None]) -> Path:
    """The file with its own keys (without prefix) and tensors changed in place."""
    reader = gguf.GGUFReader(source)
    arch = reader.fields["general.architecture"].contents()
    keys = {k: f.contents() for k, f in reader.fields.items() if k.startswith(f"{arch}.")}
    keys = {key.removeprefix(f"{arch}."): value for key, value in keys.items()}
    tensors = {t.name: np.array(t.data) for t in reader.tensors}
    before = (dict(keys), {name: data.shape for name, data in tensors.items()})
    change(keys, tensors)
    assert before != (keys, {name: data.shape for name, data in tensors.items()})
    writer = gguf.GGUFWriter(target, arch)
    for key, value in keys.items():
        kind = gguf.GGUFValueType.get_type(value)
        inner = gguf.GGUFValueType.UINT64 if isinstance(value, list) else None
        writer.add_key_value(f"{arch}.{key}", value, kind, sub_type=inner)
    for name, data in tensors.items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def joined_gate_and_up(keys: Keys, tensors: Tensors) -> None:
    for layer in range(SHAPE.layers):
        at = f"blk.{layer}.ffn_"
        pair = [tensors.pop(f"{at}{name}_exps.weight") for name in ("gate", "up")]
        tensors[f"{at}gate_up_exps.weight"] = np.concatenate(pair, axis=1)


def joined_by_key_head(keys: Keys, tensors: Tensors) -> None:
    """ssm_in: of each key head its query, its key, then values and gates of its value heads."""
    dim, heads = SHAPE.state_dim, SHAPE.key_heads
    narrow, group = heads * dim, SHAPE.value_heads // SHAPE.key_heads * dim
    for layer in range(SHAPE.layers):
        if f"blk.{layer}.attn_qkv.weight" not in tensors:
            continue
        qkv = tensors.pop(f"blk.{layer}.attn_qkv.weight")
        z = tensors.pop(f"blk.{layer}.attn_gate.weight")
        q, k, v = qkv[:narrow], qkv[narrow : 2 * narrow], qkv[2 * narrow :]
        rows = []
        for head in range(heads):
            own, wide = slice(head * dim, (head + 1) * dim), slice(head * group, (head + 1) * group)
            rows += [q[own], k[own], v[wide], z[wide]]
        tensors[f"blk.{layer}.ssm_in.weight"] = np.concatenate(rows)


def with_a_draft_block(keys: Keys, tensors: Tensors) -> None:
    keys["block_count"] += 1
    keys["nextn_predict_layers"] = 1
    tensors[f"blk.{SHAPE.layers}.attn_norm.weight"] = np.ones(SHAPE.hidden, np.float32)
    tensors[f"blk.{SHAPE.layers}.nextn.eh_proj.weight"] = np.ones((4, 8), np.float32)


def with_kinds_of_layers(keys: Keys, tensors: Tensors) -> None:
    keys["attention.recurrent_layers"] = [1, 1, 1, 0]
    keys["full_attention_interval"] = 2


def with_scales(keys: Keys, tensors: Tensors) -> None:
    keys |= {"expert_weights_scale": 1.0, "expert_gating_func": 1, "expert_weights_norm": True}
    keys["expert_group_count"] = keys["expert_group_used_count"] = 1


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("qwen3_moe", with_scales),
        ("qwen3_5_moe", joined_gate_and_up),
        ("qwen4_exp", joined_gate_and_up),
        ("qwen3_next", joined_by_key_head),
        ("qwen3_5", with_a_draft_block),
        ("qwen4_exp", with_a_draft_block),
        ("qwen3_next", with_kinds_of_layers),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_same_model(family: str, change: Any, tmp_path: Path, load: Callable[..., Any]) -> None:
    plain = made(tmp_path / "plain.gguf", family)
    other = rewritten(plain, tmp_path / "other.gguf", change)
    logits = load(plain, "reference", 64).logits(TOKENS)
    assert torch.equal(load(other, "reference", 64).logits(TOKENS), logits)


def unnormalised(keys: Keys, tensors: Tensors) -> None:
    keys["expert_weights_norm"] = False


def two_ratios(keys: Keys, tensors: Tensors) -> None:
    keys["attention.compress_ratios"] = [0, 4, 0, 8]


def two_tables(keys: Keys, tensors: Tensors) -> None:
    keys["ple.layers"] = [1, 2]


def short_table(keys: Keys, tensors: Tensors) -> None:
    tensors["per_layer_token_embd.weight"] = tensors["per_layer_token_embd.weight"][:9]


def few_hashes(keys: Keys, tensors: Tensors) -> None:
    keys["ple.head_offsets"] = keys["ple.head_offsets"][:-1]


def wide_values(keys: Keys, tensors: Tensors) -> None:
    keys["ssm.inner_size"] *= 2


def stray_block(keys: Keys, tensors: Tensors) -> None:
    tensors[f"blk.{SHAPE.layers}.attn_norm.weight"] = np.ones(SHAPE.hidden, np.float32)


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("qwen3_moe", unnormalised, "expert_weights_norm"),
        ("qwen4_exp", two_ratios, "compress_ratios"),
        ("qwen4_exp", two_tables, "more than one layer"),
        ("qwen4_exp", short_table, "n-gram table"),
        ("qwen4_exp", few_hashes, "ple.head_offsets has 3"),
        ("qwen3_next", wide_values, "different lengths"),
        ("qwen3_5", stray_block, "blk.4.attn_norm.weight"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_refused(
    family: str, change: Any, message: str, tmp_path: Path, load: Callable[..., Any]
) -> None:
    other = rewritten(made(tmp_path / "plain.gguf", family), tmp_path / "other.gguf", change)
    with pytest.raises(ModelError, match=message):
        load(other, "reference", 64)
