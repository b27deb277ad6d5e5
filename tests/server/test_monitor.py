"""GET /v1/monitor: its shape, its rows, its rates, and who may read it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from strata.figures import ExpertFigures, ExpertUse, LiveRow, Record, Snapshot, View
from strata.server.monitor import pulse

EXAMPLE = Path(__file__).parents[1] / "data" / "monitor.json"
USE = ExpertUse(1000, 874, 37, 61, 28, 37_000, 28_000, 0.25, 0.5)
LAYER = ExpertFigures(0, 64, 16, 32, 4096, USE, 800, 3)


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
