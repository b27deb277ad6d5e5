"""`strata pack` from outside: what it writes and prints, twice, by force, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata.cli import main
from strata.synth import gguf_file
from strata.synth.shape import FAMILIES, Shape
from strata.types import silent


def model(path: Path, family: str) -> Path:
    shape = Shape(
        layers=2, hidden=64, heads=2, kv_heads=1, head_dim=32, ffn=64, vocab=1024,
        experts=4, top_k=2, expert_ffn=64,
    )  # fmt: skip
    gguf_file.write(path, FAMILIES[family], shape, "Q8_0", 0, silent)
    return path


def pack(*words: object) -> int:
    return main(["pack", "--kernels", "reference", *map(str, words)])


def test_pack_writes_once_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = model(tmp_path / "mixture.gguf", "qwen3_moe")
    assert pack(path) == 0
    out, err = capsys.readouterr()
    folder = Path(out.strip())
    assert folder.parent == tmp_path / "cache" / "strata" / "records"
    assert folder.name.startswith("mixture-")
    size = 2 * 4 * -(-3 * 64 * 64 // 32 * 34 // 4096) * 4096  # Q8_0: 34 bytes for 32 weights
    assert (folder / "experts.bin").stat().st_size == size
    assert f"into {folder}" in err and "are free" in err

    assert pack(path) == 0
    assert capsys.readouterr() == (out, "")
    data = bytearray((folder / "experts.bin").read_bytes())
    (folder / "experts.bin").write_bytes(data[:-1])
    assert pack(path) == 2
    assert "cut short" in capsys.readouterr().err
    assert pack(path, "--force") == 0
    assert (folder / "experts.bin").read_bytes() == data


def test_pack_goes_where_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model(tmp_path / "mixture.gguf", "qwen3_moe")
    assert pack(path, "--out", tmp_path / "a" / "b") == 0
    assert capsys.readouterr().out == f"{tmp_path / 'a' / 'b'}\n"
    assert (tmp_path / "a" / "b" / "experts.bin").exists()


def test_a_model_without_experts_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pack(model(tmp_path / "dense.gguf", "qwen3")) == 2
    assert "has no experts" in capsys.readouterr().err
