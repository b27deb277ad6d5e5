"""`strata demo` and `strata calibrate` on tiny models: what they make, serve, find and keep."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from strata.cli import demo, main, serve
from strata.files import fetch, open_model
from strata.synth import gguf_file
from strata.synth.shape import FAMILIES, Shape
from strata.types import silent


@pytest.fixture
def dense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny dense model in the place of the default one."""
    path = tmp_path / "dense.gguf"
    shape = Shape(layers=2, hidden=64, heads=2, kv_heads=1, head_dim=32, ffn=64, vocab=1024)
    gguf_file.write(path, FAMILIES["llama"], shape, "Q8_0", 0, silent)
    monkeypatch.setattr(fetch, "locate", lambda name, folder, progress: path)
    return path


def test_the_demo_serves_a_mixture_with_memory_for_a_third(
    dense: Path, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[argparse.Namespace] = []
    monkeypatch.setattr(serve, "run", lambda chosen, greet: served.append(chosen) or 0)
    assert main(["demo"]) == 0
    path = Path(served[0].model)
    assert path.parent == private_home / ".cache" / "strata" / "demo"
    made = path.stat().st_mtime_ns
    file = open_model(path)
    assert file.metadata["llama.expert_count"] == 16
    experts = sum(t.data.nbytes for n, t in file.tensors.items() if n.endswith("_exps.weight"))
    assert experts == 2 * 16 * 3 * 64 * 64 // 32 * 34  # Q8_0: 34 bytes for 32 weights
    assert int(served[0].expert_ram) == experts // 3
    assert main(["demo", "--expert-ram", "1GiB"]) == 0
    assert served[1].expert_ram == "1GiB"
    assert Path(served[1].model).stat().st_mtime_ns == made, "it is made once"
    monkeypatch.setenv("STRATA_EXPERT_RAM", "2GiB")
    assert main(["demo"]) == 0
    assert not hasattr(served[2], "expert_ram"), "the environment beats the demo's own choice"


def test_the_first_answer_tells_where_experts_came_from(scripted: Any) -> None:
    script = scripted.Script([["Par", "is."]])
    with scripted.running(script) as url:
        said = demo._first_answer(url, "secret")
    assert script.asked[0]["strata_stats"] is True and script.keys == ["Bearer secret"]
    assert "answered:  Paris." in said
    script.status = 503
    with scripted.running(script) as url:
        assert "the first question failed: not today" in demo._first_answer(url)


@pytest.fixture
def mixture(tmp_path: Path) -> Path:
    path = tmp_path / "mixture.gguf"
    shape = Shape(
        layers=2, hidden=64, heads=2, kv_heads=1, head_dim=32, ffn=64, vocab=1024,
        experts=8, top_k=2, expert_ffn=64,
    )  # fmt: skip
    gguf_file.write(path, FAMILIES["qwen3_moe"], shape, "Q8_0", 0, silent)
    return path


def test_calibrating_keeps_what_was_faster(
    mixture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["calibrate", str(mixture), "--pp", "600", "--rounds", "1"]
    words += ["--cache-size", "16MiB", "--expert-ram", "120KiB", "--threads", "1"]
    assert main(words) == 0
    said = capsys.readouterr().out
    rates = {}
    for line in said.splitlines()[:-1]:
        flag, value, _, rate, _ = line.split()
        rates[flag, value] = float(rate)
    chunks = {int(v): r for (flag, v), r in rates.items() if flag == "--prefill-chunk"}
    assert set(chunks) == {512, 1024}
    prefetch = {v: r for (flag, v), r in rates.items() if flag == "--expert-prefetch"}
    assert set(prefetch) == {"on", "off"}
    folder = Path(said.splitlines()[-1].split(": ")[0].removeprefix("kept in "))
    kept = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))
    assert kept["prefill_chunk"] == max(chunks, key=lambda chunk: chunks[chunk])
    assert kept["prefetch"] == (prefetch["on"] >= prefetch["off"])


def test_there_is_nothing_to_calibrate_where_all_experts_fit(
    mixture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", str(mixture), "--cache-size", "16MiB", "--rounds", "1"]) == 2
    assert "--expert-ram" in capsys.readouterr().err
