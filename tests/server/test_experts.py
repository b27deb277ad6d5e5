"""What clients are told of experts. Expectations are written out by hand."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from strata.figures import ExpertFigures, ExpertUse, Record, RowFigures, Snapshot

USE = ExpertUse(200, 100, 20, 50, 30, 4096, 8192, 0.0015, 0.25)
TOLD = {
    "lookups": 200, "device": 100, "bus": 20, "host": 50, "disk": 30,
    "bus_bytes": 4096, "disk_bytes": 8192, "bus_stall_ms": 1.5, "disk_stall_ms": 250.0,
    "hit_rate": 0.75,
}  # fmt: skip
LAYERS = (
    ExpertFigures(1, 8, 2, 4, 4096, USE, active=90, evicted=3, prefetched=10, used=6, wasted=2),
    ExpertFigures(3, 8, 0, 5, 8192, ExpertUse(host=10, lookups=10), active=5, evicted=1),
)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("ending", [{}, {"stop": "lo"}, {"max_tokens": 2}])
def test_stats_come_when_asked_for(call, engine, stream, ending):
    engine.use = USE
    answer = call.chat(strata_stats=True, stream=stream, **ending)
    usage = answer.events()[-2]["usage"] if stream else answer.json()["usage"]
    assert usage["strata"] == {
        "queue_ms": 0.0, "prefill_ms": 250.0, "decode_ms": 500.0, "experts": TOLD,
    }  # fmt: skip
    assert "strata" not in call.chat().json()["usage"]


def test_choices_are_added_up(call, engine):
    engine.use = USE
    strata = call.chat(strata_stats=True, n=3).json()["usage"]["strata"]
    assert strata["experts"]["lookups"] == 600 and strata["experts"]["hit_rate"] == 0.75
    assert strata["decode_ms"] == 1500.0


def test_a_model_without_a_store(call, engine):
    strata = call("POST", "/v1/completions", {"prompt": "a", "strata_stats": True})
    assert strata.json()["usage"]["strata"]["experts"] is None
    engine.past = (Record("a", 1.0, "stop", 1, 0, 1, None, None, None, 0.0, 0.5),)
    assert call("GET", "/v1/requests").json()["data"][0]["experts"] is None
    assert call("GET", "/v1/experts").json() == {
        "object": "experts", "total": None, "layers": [], "ngram_rows": None
    }  # fmt: skip


def test_rows_of_ngrams(call, engine):
    engine.now = Snapshot(rows=RowFigures(200, 150, 40960, 0.125, 3000, 4000))
    assert call("GET", "/v1/experts").json()["ngram_rows"] == {
        "lookups": 200, "hits": 150, "bytes": 40960, "stall_ms": 125.0, "hit_rate": 0.75,
        "bytes_held": 3000, "bytes_budget": 4000,
    }  # fmt: skip
    lines = call("GET", "/metrics").body.decode().splitlines()
    assert 'strata_ngram_rows_total{result="hit"} 150.0' in lines
    assert 'strata_ngram_rows_total{result="miss"} 50.0' in lines
    assert "strata_ngram_bytes_total 40960.0" in lines
    assert "strata_ngram_stall_seconds_total 0.125" in lines


def test_records_carry_experts(call, engine):
    engine.past = (Record("a", 1.0, "cancelled", 1, 0, 1, None, None, None, 0.0, 0.5, USE),)
    assert call("GET", "/v1/requests").json()["data"][0]["experts"] == TOLD


def test_the_page_of_experts(call, engine):
    engine.now = Snapshot(experts=LAYERS)
    page = call("GET", "/v1/experts").json()
    first, second = page["layers"]
    assert first == {
        "layer": 1, "experts": 8, "record_bytes": 4096, "on_device": 2, "on_host": 4,
        "active": 90, "evicted": 3,
        "prefetch": {"started": 10, "used": 6, "wasted": 2, "precision": 0.75}, **TOLD,
    }  # fmt: skip
    assert second["prefetch"]["precision"] is None and second["hit_rate"] == 1.0
    total = page["total"]
    assert (total["experts"], total["on_host"], total["evicted"]) == (16, 9, 4)
    assert (total["lookups"], total["host"], total["hit_rate"]) == (210, 60, round(160 / 210, 6))
    assert call("GET", "/experts").status == 200


def test_metrics(call, engine):
    engine.now = Snapshot(experts=LAYERS)
    text = call("GET", "/metrics").body.decode()
    found = {
        (s.name, *s.labels.values()): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if s.name.startswith("strata_expert")
    }
    assert found == {
        ("strata_expert_lookups_total", "device"): 100, ("strata_expert_lookups_total", "bus"): 20,
        ("strata_expert_lookups_total", "host"): 60, ("strata_expert_lookups_total", "disk"): 30,
        ("strata_expert_bytes_total", "bus"): 4096, ("strata_expert_bytes_total", "disk"): 8192,
        ("strata_expert_stall_seconds_total", "bus"): 0.0015,
        ("strata_expert_stall_seconds_total", "disk"): 0.25,
        ("strata_expert_slots", "device"): 2, ("strata_expert_slots", "host"): 9,
        ("strata_expert_evictions_total",): 4,
        ("strata_expert_prefetch_total", "used"): 6, ("strata_expert_prefetch_total", "wasted"): 2,
    }  # fmt: skip
