"""`strata trace`: replays a file in a table and as JSON; what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from strata.cli import main
from strata.experts.policies import POLICIES
from strata.experts.replay import BOUNDS
from strata.experts.trace import TraceHead, TraceWriter


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    writer = TraceWriter(tmp_path / "t.trace", TraceHead("toy", 8, (1000, 1000)))
    for step in range(50):
        for place in range(2):
            wanted = np.array([0, 1 + step % 7], np.int32)
            writer.note(step, place, 1, wanted, np.array([1, 1], np.int32))
    writer.close()
    return tmp_path / "t.trace"


def test_the_table_has_every_policy_and_size(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "replay", str(trace), "--sizes", "12.5%,100%"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("toy: 2 mixtures of 8 experts, 50 steps\n")
    lines = [re.split(r" {2,}", line) for line in out.splitlines()[3:] if line]
    for size in ("12.5 % (2)", "100 % (16)"):
        assert [line[1] for line in lines if line[0] == size] == [*BOUNDS, *POLICIES]


def test_json_has_the_figures(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["trace", "replay", str(trace), "--policy", "lfu", "--policy", "lru", "--json"]
    assert main([*command, "--sizes", "100%,12.5%", "--floor", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["experts"]) == ("toy", 8)
    assert [one["policy"] for one in found["results"]] == [*BOUNDS, "lfu", "lru"] * 2
    whole = found["results"][3]
    # 200 lookups, each of 16 experts read once.
    assert (whole["lookups"], whole["hits"], whole["moved_bytes"]) == (200, 184, 16_000)
    assert whole["rate"] == 0.92
    # The first lookup fills both slots; in its second step the other layer's favourite gets one.
    small = found["results"][8]
    assert (small["policy"], small["slots"], small["hits"]) == ("lfu", 2, 49 + 48)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "none.trace"], "cannot read the trace"),
        (["replay", "empty.trace"], "has no lookups"),
        (["record", "model.gguf", "--out", "no/folder/t"], "there is no folder"),
    ],
)
def test_what_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    TraceWriter(tmp_path / "empty.trace", TraceHead("toy", 8, (1000,))).close()
    assert main(["trace", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("sizes", ["0%", "101%", "x", ""])
def test_sizes_are_checked(trace: Path, capsys: pytest.CaptureFixture[str], sizes: str) -> None:
    with pytest.raises(SystemExit):
        main(["trace", "replay", str(trace), "--sizes", sizes])
    assert "--sizes" in capsys.readouterr().err
