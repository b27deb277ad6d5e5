"""The engine's own benchmark on a model whose steps take a stated time, and as a command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted import ScriptedModel

from strata.cli import main
from strata.engine.bench import Load, measure, warm_up
from strata.engine.core import Clocks
from strata.engine.loop import Engine
from strata.engine.settings import EngineSettings
from strata.synth import gguf_file
from strata.synth.shape import FAMILIES, Shape
from strata.types import StrataError, silent


@pytest.fixture(params=[False, True], ids=["dense", "recurrent"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A millisecond for each token, and ten for a step."""
    model = ScriptedModel(recurrent=request.param)
    model.cost = lambda plan: 0.01 + 0.001 * len(plan.tokens)
    clocks = Clocks(model.clock, lambda: 1e9)
    settings = EngineSettings(batch=2, prefill_chunk=200)
    made = Engine(model, settings, pages=400, states=30, block=16, clocks=clocks)
    made.start()
    yield made
    made.stop()


def test_rates_of_one_client_by_hand(engine: Engine) -> None:
    told: list[tuple[str, int, int]] = []
    warm_up(engine)
    phases = measure(engine, Load(400, 100, 11), 1, 0, lambda *line: told.append(line))
    context, more = phases
    # 400 tokens in two steps of 200; then ten steps of one token.
    assert context.first_tokens == (pytest.approx(0.42),)
    assert context.read_total == context.read_each == pytest.approx(400 / 0.42)
    assert context.decode_total == context.decode_each == pytest.approx(10 / 0.11)
    assert (context.reused, more.reused) == ((0,), (400,))
    # Only what was appended is computed.
    assert more.first_tokens == (pytest.approx(0.11),)
    assert more.read_total == pytest.approx(100 / 0.11)
    assert told[-1][1:] == (511, 511) and {line[0] for line in told} == {
        "1 at once, contexts",
        "1 at once, more appended",
    }


def test_two_clients_reuse_their_own_contexts(engine: Engine) -> None:
    context, more = measure(engine, Load(300, 50, 5), 2, 0, silent)
    assert (context.reused, more.reused) == ((0, 0), (300, 300))
    last = max(context.first_tokens)
    assert context.read_total == pytest.approx(600 / last)
    each = [300 / first for first in context.first_tokens]
    assert context.read_each == pytest.approx(sum(each) / 2)
    assert more.read_total <= 2 * 50 / max(more.first_tokens) * 1.001


def test_without_a_context_there_is_one_phase(engine: Engine) -> None:
    (only,) = measure(engine, Load(0, 64, 1), 1, 0, silent)
    assert not only.context and only.prompt == 64 and only.decode_total == 0


def test_a_request_that_fails_ends_it() -> None:
    model = ScriptedModel()
    model.fail = lambda plan: True
    made = Engine(model, EngineSettings(), pages=100)
    made.start()
    with pytest.raises(StrataError, match="benchmark failed"):
        measure(made, Load(10, 10, 2), 1, 0, silent)
    made.stop()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "tiny.gguf"
    shape = Shape(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=64, vocab=512)
    gguf_file.write(path, FAMILIES["qwen3"], shape, "F32", 0, silent)
    return path


@pytest.mark.parametrize("form", ["table", "markdown", "json"])
def test_the_command(
    model: Path, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--depth", "96", "--pp", "32", "--tg", "4", "--concurrency", "1,2"]
    file = tmp_path / "figures.json"
    more = ["--format", form, "--json", str(file), "--cache-size", "64MiB", "--threads", "1"]
    assert main(["bench", str(model), *sizes, *more]) == 0
    printed = capsys.readouterr()
    figures = json.loads(file.read_text(encoding="utf-8"))
    results = figures["results"]
    assert figures["model"] == "tiny" and figures["batch"] == 2
    assert [line["test"] for line in results] == [
        f"{test} (c{clients})"
        for clients in (1, 2)
        for test in ("ctx_pp @ d96", "ctx_tg @ d96", "pp32 @ d96", "tg4 @ d96")
    ]
    assert [line.get("reused_tokens") for line in results[2::4]] == [[96], [96, 96]]
    assert all(line["rate_total"] > 0 and line["rate_request"] > 0 for line in results)
    if form == "json":
        assert json.loads(printed.out) == figures
        return
    lines = printed.out.splitlines()
    assert len(lines) == (9 if form == "table" else 10)
    for line, result in zip(lines[-8:], results, strict=True):
        assert result["test"] in line and f"{result['rate_total']:.1f}" in line
        assert line.startswith("| ") == (form == "markdown")
    assert "more appended" in printed.err, "progress"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tg", "0"], "--tg: 0 must be 1 or more"),
        (["--concurrency", "0"], "--concurrency: 0 must be 1 or more"),
        (["--ctx-size", "100"], "--ctx-size: 100 is less than the 2624 tokens wanted"),
        (["--json", "/nowhere/x.json"], "--json: there is no folder /nowhere"),
        (["--json", "/", "--depth", "0", "--pp", "4", "--tg", "1"], "--json: cannot write /"),
        (["--cache-size", "1KiB"], "set --cache-size to at least"),
    ],
)
def test_mistakes(
    model: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(model), "--cache-size", "64MiB", *words]) == 2
    assert said in capsys.readouterr().err
