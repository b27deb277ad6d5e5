"""Requests as spans, in OpenTelemetry's own in-memory exporter."""

from __future__ import annotations

import sys

import pytest

from strata.figures import Record
from strata.server.service import Lobby
from strata.types import ConfigError

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from strata.server.monitor.traces import Traces

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
RECORD = Record(
    "cmpl-1", 1000.0, "length", 100, 60, 8, 80.0, 14.0, 1.5, 1.0, 2.0, None, "8 tokens", 1,
    prefill_s=0.5, decode_s=0.5, waits=((0.25, 0.75),), trace=PARENT,
)  # fmt: skip


@pytest.fixture
def told():
    """Spans of records, by name."""

    def make(*records):
        kept = InMemorySpanExporter()
        traces = Traces(Lobby(), kept)
        traces.tell("toy", records)
        traces.close()
        return {span.name: span for span in kept.get_finished_spans()}

    return make  # fmt: skip


def test_spans_have_the_measured_times_and_hang_together(told):
    spans = told(RECORD)
    times = {
        name: (s.start_time / 1e9 - 1000, s.end_time / 1e9 - 1000) for name, s in spans.items()
    }
    expected = {"request": (0, 2), "queue": (0, 1), "wait": (0.25, 0.75), "read": (1, 1.5),
                "decode": (1.5, 2)}  # fmt: skip
    assert times == {name: pytest.approx(span, abs=1e-6) for name, span in expected.items()}
    root = spans["request"].context
    assert f"{root.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{spans['request'].parent.span_id:016x}" == PARENT.split("-")[2]
    assert all(spans[name].parent.span_id == root.span_id for name in ("queue", "read", "decode"))
    assert spans["wait"].parent.span_id == spans["queue"].context.span_id


def test_the_root_has_the_figures(told):
    attributes = told(RECORD)["request"].attributes
    assert attributes["gen_ai.usage.input_tokens"] == 100
    assert attributes["gen_ai.usage.output_tokens"] == 8
    assert attributes["gen_ai.response.finish_reasons"] == ("length",)
    assert attributes["strata.cached_tokens"] == 60


def test_one_that_never_ran_has_no_reading(told):
    gone = Record("b", 5.0, "cancelled", 9, 0, 0, None, None, None, 3.0, 3.0, None, "left", 2)
    spans = told(gone)
    assert set(spans) == {"request", "queue"}
    assert spans["request"].parent is None


def test_each_record_is_told_once_and_the_end_tells_the_rest(service, engine):
    kept = InMemorySpanExporter()
    traces = Traces(Lobby(service), kept)
    engine.past = (RECORD,)
    traces._look()
    traces._look()
    other = Record("c", 6.0, "stop", 9, 0, 1, None, None, 0.5, 0.0, 1.0, None, "left", 2)
    engine.past = (other, RECORD)
    traces.close()
    roots = [s for s in kept.get_finished_spans() if s.name == "request"]
    assert [s.attributes["gen_ai.response.id"] for s in roots] == ["cmpl-1", "c"]


def test_a_caller_s_trace_reaches_the_engine(call, engine):
    body = {"messages": [{"role": "user", "content": "hi"}]}
    call("POST", "/v1/chat/completions", body, headers={"traceparent": PARENT})
    call("POST", "/v1/chat/completions", body, headers={"traceparent": "x" * 1000})
    assert [request.trace for request in engine.requests] == [PARENT, None]


def test_without_the_extra_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"strata\[otel\]"):
        Traces(Lobby())
