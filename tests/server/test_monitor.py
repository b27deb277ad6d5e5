"""GET /v1/monitor: its shape, its rows, its rates, and who may read it."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from strata.figures import ExpertFigures, ExpertUse, LiveRow, Record, RowFigures, Snapshot, View
from strata.server.app import create_app
from strata.server.monitor import Pulse, pulse
from strata.server.monitor.definitions import DEFINITIONS
from strata.server.service import Build, Lobby

EXAMPLE = Path(__file__).parents[1] / "data" / "monitor.json"
USE = ExpertUse(1000, 874, 37, 61, 28, 37_000, 28_000, 0.25, 0.5)
LAYER = ExpertFigures(0, 64, 16, 32, 4096, USE, 800, 3, device_room=20 * 4096, host_room=40 * 4096)


def row(name: str, status: str, **fields) -> LiveRow:
    made = LiveRow(name, status, 1000, 0, 0, 0, 0, 90.0, None, None, None)
    return replace(made, **fields)


ROWS = (
    row("cmpl-1", "decoding", arrived=90.0, admitted=90.5, reused=800, read=1000, computed=200,
        first=92.5, last=99.5, output=15, experts=USE),
    row("cmpl-2", "reading", arrived=95.0, admitted=96.0, read=512, computed=512),
    row("cmpl-3", "parked", arrived=96.0),
    row("cmpl-4", "queued", arrived=97.0),
)  # fmt: skip
PAST = (
    Record("cmpl-0", 1_764_569_990.0, "length", 10_242, 8183, 128, 721.0, 44.1, 2.9, 0.1, 5.8, USE,
           "128 tokens are all it may have", 2),
    Record("cmpl-9", 1_764_569_980.0, "cancelled", 50, 0, 0, None, None, None, 0.25, 0.25, None,
           "the client left", 1),
)  # fmt: skip


@pytest.fixture
def busy(engine, monkeypatch):
    """A scripted engine at one moment, whose every figure is known."""
    monkeypatch.setattr(pulse.time, "time", lambda: 1_764_570_000.0)
    engine.seen = View(100.0, 1_764_570_000.0, ROWS, 2, 99.5, 40, 5000, 143, 4.0, 6.0)
    engine.past = PAST
    engine.now = Snapshot(
        ready=True, page_bytes=4096, pages_total=100, pages_free=40, pages_cached=35,
        state_bytes=1000, states_total=8, states_free=2, states_cached=4, prompt_tokens=20_000,
        cached_tokens=8983, prefill_tokens=5000, decode_tokens=143, prefill_s=4.0, decode_s=6.0,
        steps=40, requests={"stop": 0, "length": 1, "cancelled": 1}, experts=(LAYER,),
    )  # fmt: skip
    return engine


def keys(value):
    """The names in a JSON value, without what is in it."""
    if isinstance(value, dict):
        return {name: keys(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [keys(value[0])] if value else []
    return None


def test_the_example_has_the_shape_that_is_sent(call, busy):
    """STRATA_WRITE_EXAMPLES=1 writes it anew."""
    told = call("GET", "/v1/monitor?once=1").json()
    told["machine"] = {
        "cpu": 37.5, "ram": {"used": 8_000_000_000, "total": 16_000_000_000},
        "process": 2_000_000_000, "disk": {"read": 1_000_000.0, "write": 0.0},
        "gpus": [{"name": "GPU", "use": 80, "memory_used": 10**10, "memory_total": 2 * 10**10}],
    }  # fmt: skip
    told["server"]["started"], told["server"]["uptime_s"] = 1_764_560_000.0, 10_000.0
    if os.environ.get("STRATA_WRITE_EXAMPLES"):
        EXAMPLE.parent.mkdir(exist_ok=True)
        EXAMPLE.write_text(json.dumps(told, indent=1) + "\n")
    assert json.loads(EXAMPLE.read_text()) == told


def test_rows_say_what_each_request_is_doing(call, busy):
    rows = call("GET", "/v1/monitor?once=1").json()["rows"]
    assert [(r["id"], r["status"]) for r in rows] == [
        ("cmpl-1", "decoding"), ("cmpl-2", "reading"), ("cmpl-3", "waiting"), ("cmpl-4", "queued"),
    ]  # fmt: skip
    decoding, reading = rows[:2]
    assert (decoding["time"], decoding["age_s"]) == (1_764_569_990.0, 10.0)
    assert decoding["prefill_rate"] == 200 / 2.0 and decoding["decode_rate"] == 14 / 7.0
    assert (reading["read"], reading["prompt"], reading["prefill_rate"]) == (512, 1000, 512 / 4)
    experts = decoding["experts"]
    assert (experts["tier"], experts["hit_rate"], experts["bus_share"]) == ("GPU", 0.874, 0.037)


@pytest.mark.parametrize(
    ("statuses", "state"),
    [((), "idle"), (("reading",), "reading"), (("queued",), "reading"),
     (("reading", "decoding"), "answering")],
)  # fmt: skip
def test_the_state_of_the_whole(call, engine, statuses, state):
    engine.seen = View(rows=tuple(row(str(i), status) for i, status in enumerate(statuses)))
    assert call("GET", "/v1/monitor?once=1").json()["server"]["state"] == state


def test_a_snapshot_serves_whoever_comes_within_a_beat_and_then_no_more(call, service, engine):
    lobby = Lobby(service)
    call.app = create_app(lobby)
    first = call("GET", "/v1/monitor?once=1").json()
    assert call("GET", "/v1/monitor?once=1").json() == first
    pulse_of(lobby)._beat.at -= 2
    assert call("GET", "/v1/monitor?once=1").json()["time"] > first["time"]


def test_what_is_loading_are_the_rows_of_the_step(call, busy):
    busy.seen = replace(busy.seen, rows=tuple(replace(r, stepping=r.id < "cmpl-2") for r in ROWS))
    busy.now = replace(busy.now, loading=True)
    rows = call("GET", "/v1/monitor?once=1").json()["rows"]
    assert [r["status"] for r in rows] == ["loading", "reading", "waiting", "queued"]


def test_a_row_whose_record_is_there_is_not_shown_twice(call, busy):
    gone = replace(PAST[0], id="cmpl-1", number=3)
    busy.past = (gone, *PAST)
    told = call("GET", "/v1/monitor?once=1").json()
    assert "cmpl-1" not in [r["id"] for r in told["rows"]]
    assert told["finished"][0]["id"] == "cmpl-1" and told["queue"]["running"] == 1


def test_the_first_event_is_bounded_and_later_ones_are_whole():
    records = [replace(PAST[0], number=number) for number in range(500, 0, -1)]
    beat = pulse.Beat(0.0, {}, records, None)
    numbers = {
        since: [row["number"] for row in json.loads(beat.json(since))["finished"]]
        for since in (None, 0, 350, 500)
    }
    assert numbers[None] == list(range(500, 400, -1)) and numbers[0] == list(range(500, 0, -1))
    assert numbers[350] == list(range(500, 350, -1)) and numbers[500] == []
    assert beat.json(350) is beat.json(350)


def test_the_tier_is_the_fastest_there_is(call, service, busy):
    busy.now = replace(busy.now, experts=(replace(LAYER, on_device=0, device_room=0),))
    experts = call("GET", "/v1/monitor?once=1").json()["rows"][0]["experts"]
    assert (experts["tier"], experts["hit_rate"]) == ("RAM", (874 + 61) / 1000)
    call.app = create_app(Lobby(service))
    busy.now = replace(busy.now, experts=())
    told = call("GET", "/v1/monitor?once=1").json()
    assert told["totals"]["experts"] is None


def test_memory_by_tier(call, busy):
    busy.now = replace(
        busy.now, rows=RowFigures(9, 9, 0, 0.0, 300, 700),
        experts=(LAYER, replace(LAYER, device_room=0, host_room=0)),
    )  # fmt: skip
    memory = {t.pop("tier"): t for t in call("GET", "/v1/monitor?once=1").json()["memory"]}
    assert memory == {
        "pages": {"used": 60 * 4096, "total": 100 * 4096, "reusable": 35 * 4096},
        "states": {"used": 6000, "total": 8000, "reusable": 4000},
        "experts on GPU": {"used": 32 * 4096, "total": 20 * 4096, "reusable": None},
        "experts in RAM": {"used": 64 * 4096, "total": 40 * 4096, "reusable": None},
        "n-gram rows": {"used": 300, "total": 700, "reusable": None},
    }


def test_while_it_loads_and_after_it_failed(call, service, engine):
    lobby = Lobby()
    call.app = create_app(lobby)
    lobby.say("reading weights: 40 %")
    told = call("GET", "/v1/monitor?once=1").json()
    assert (told["server"]["state"], told["server"]["reason"]) == ("loading", lobby.reason)
    assert told["rows"] == told["finished"] == told["memory"] == []
    assert told["machine"]["ram"]["total"] > 0 and told["server"]["model"] is None
    about = call("GET", "/v1/about").json()
    assert about["model"] is None and about["definitions"] and about["versions"]["python"]
    lobby.open(service)
    engine.seen = View(rows=ROWS)
    engine.error, engine.past = "out of memory", PAST
    pulse_of(lobby)._beat.at -= 2
    told = call("GET", "/v1/monitor?once=1").json()
    assert told["server"]["state"] == "failed" and "out of memory" in told["server"]["reason"]
    assert told["rows"] == [] and len(told["finished"]) == 2 and told["server"]["model"] == "toy"


def pulse_of(lobby: Lobby) -> Pulse:
    return lobby.ends[0].__self__


def test_once_and_other_methods(call, busy):
    assert call("HEAD", "/v1/monitor").body == b""
    assert call("GET", "/monitor?once=true").json()["server"]["model"] == "toy"
    assert call("POST", "/v1/monitor").status == 405


def test_what_is_served(call, service):
    build = Build("a.gguf", "llama", "Q4_K 100 %", "native avx2, 2 threads", ("pages 1",))
    call.app = create_app(Lobby(replace(service, build=build)))
    told = call("GET", "/v1/about", headers={"host": "localhost:8080"}).json()
    assert told["urls"] == {
        "openai": "http://localhost:8080/v1",
        "anthropic": "http://localhost:8080",
        "metrics": "http://localhost:8080/metrics",
    }
    model = {"id": "toy", "aliases": ["gpt-toy"], "context": 4096, "architecture": "llama"}
    assert told["model"] == model
    assert (told["file"], told["quantisation"]) == ("a.gguf", "Q4_K 100 %")
    assert (told["kernels"], told["memory_plan"]) == ("native avx2, 2 threads", ["pages 1"])
    assert told["versions"]["strata"] == call("GET", "/").json()["version"]


PLAIN = {"id"}


def test_every_figure_is_defined_and_the_docs_say_the_same(call, busy):
    told = call("GET", "/v1/monitor?once=1").json()
    names = {"state"} | {f"{g}.{name}" for g in ("speed", "queue", "machine") for name in told[g]}
    names |= {f"totals.{name}" for name in told["totals"]} - {"totals.experts"}
    names |= set(told["rows"][0]) | set(told["finished"][0])
    names |= {"memory.pages", "memory.states", "memory.experts", "memory.rows"}
    names |= {"hit_rate", "bus_share"}
    assert names - PLAIN == set(DEFINITIONS)
    page = (Path(__file__).parents[2] / "docs" / "monitor.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| `([\w.]+)` \| (.+?) \|$", page, re.MULTILINE))
    assert {name: table.get(name) for name in DEFINITIONS} == DEFINITIONS
    assert set(table) == set(DEFINITIONS)
