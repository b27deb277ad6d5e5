"""Mixtures made of dense models: exact copies answer as the dense model does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from strata.cli import main
from strata.files import open_model
from strata.synth import gguf_file, upcycle
from strata.synth.shape import FAMILIES, Shape
from strata.types import ModelError

SHAPE = Shape(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=96, vocab=600, context=256)
TOKENS = torch.randint(0, 600, (60,), generator=torch.Generator().manual_seed(5)).tolist()


def dense(path: Path, family: str = "llama", kind: str = "Q4_1") -> Path:
    gguf_file.write(path, FAMILIES[family], SHAPE, kind, 1, lambda *_: None)
    return path


def mixed(source: Path, experts: int, top_k: int, noise: float = 0.0) -> Path:
    target = source.with_name(f"moe{experts}-{top_k}-{noise}.gguf")
    mixture = upcycle.Mixture(experts, top_k, noise)
    upcycle.write(source, target, mixture, 1, lambda *_: None)
    return target


def divergence(expected: Tensor, got: Tensor) -> float:
    """Mean KL divergence per token."""
    p, q = expected.double().log_softmax(-1), got.double().log_softmax(-1)
    return float((p.exp() * (p - q)).sum(-1).mean())


DIVERGENCE = {"reference": 1e-8, "native": 1e-5}


@pytest.mark.parametrize(("experts", "top_k"), [(4, 2), (16, 16), (64, 7), (1, 1)])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("backend", DIVERGENCE)
def test_exact_copies_answer_as_the_dense_model(
    backend: str, family: str, experts: int, top_k: int, tmp_path: Path, load: Callable[..., Any]
) -> None:
    source = dense(tmp_path / "dense.gguf", family)
    bench = load(source, backend, 128)
    other = load(mixed(source, experts, top_k), backend, 128)
    expected, got = bench.logits(TOKENS), other.logits(TOKENS)
    assert divergence(expected, got) < DIVERGENCE[backend]
    if backend == "reference":
        assert (expected - got).abs().max() < 1e-3
    assert other.greedy(TOKENS, 24)[0] == bench.greedy(TOKENS, 24)[0]
    assert other.model.architecture == {"llama": "llama", "qwen3": "qwen3moe"}[family]


def test_noise_makes_experts_differ(tmp_path: Path, load: Callable[..., Any]) -> None:
    source = dense(tmp_path / "dense.gguf", kind="Q8_0")
    target = mixed(source, 4, 2, 0.05)
    name = "blk.1.ffn_up{}.weight"
    before = open_model(source).tensors[name.format("")]
    after = open_model(target).tensors[name.format("_exps")]
    assert after.shape == (4, *before.shape) and after.format == before.format
    copies = after.data.reshape(4, -1)
    assert len(np.unique(copies, axis=0)) == 4
    assert not (copies == before.data).all(1).any()
    expected = load(source, "reference", 128).logits(TOKENS)
    got = load(target, "reference", 128).logits(TOKENS)
    assert 1e-6 < divergence(expected, got) < 1


def test_noise_in_a_format_that_cannot_be_made_is_stored_in_the_nearest(tmp_path: Path) -> None:
    wide = Shape(layers=1, hidden=256, heads=4, kv_heads=2, head_dim=64, ffn=256, vocab=600)
    source = tmp_path / "dense.gguf"
    gguf_file.write(source, FAMILIES["llama"], wide, "Q6_K", 1, lambda *_: None)
    target = tmp_path / "moe.gguf"
    odd = upcycle.write(source, target, upcycle.Mixture(2, 1, 0.05), 1, lambda *_: None)
    assert sorted(odd) == [
        f"blk.0.ffn_{name}_exps.weight (Q8_0)" for name in ("down", "gate", "up")
    ]


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = dense(tmp_path / "dense.gguf")
    sparse = mixed(source, 2, 1)
    for bad in (sparse, dense(tmp_path / "q.gguf", "qwen3_5")):
        with pytest.raises(ModelError, match="cannot become a mixture"):
            mixed(bad, 2, 1)
    with pytest.raises(ModelError, match="3 of 2 experts"):
        upcycle.Mixture(2, 3, 0.0)
    with pytest.raises(ModelError, match="--noise"):
        upcycle.Mixture(2, 1, 1.0)
    out = ["--out", str(tmp_path / "x.gguf")]
    for given in (
        [],
        ["llama", "--upcycle", str(source)],
        ["--upcycle", str(source), "--layers=1"],
    ):
        assert main(["synth", *given, *out]) == 2
    assert "--upcycle" in capsys.readouterr().err


def test_the_default_model(default_model: Path, tmp_path: Path, load: Callable[..., Any]) -> None:
    """As a user makes it: 4 experts on trained weights."""
    target = tmp_path / "moe.gguf"
    sizes = ["--experts", "4", "--top-k", "2"]
    assert main(["synth", "--upcycle", str(default_model), *sizes, "--out", str(target)]) == 0
    tokens = [1, 4093, 198, *range(1000, 1020), 2, 198, 1, 520, 9531, 198]  # as in a chat
    for backend, most in DIVERGENCE.items():
        bench, other = (load(path, backend, 64) for path in (default_model, target))
        expected, got = bench.logits(tokens), other.logits(tokens)
        assert divergence(expected, got) < most
        assert torch.equal(expected.argmax(-1), got.argmax(-1))
        if backend == "reference":
            assert (expected - got).abs().max() < 1e-3
        else:
            assert other.greedy(tokens, 24)[0] == bench.greedy(tokens, 24)[0]
