"""The pages that tell about the server: health, models, requests, tokens, metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as Reference
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from strata.cli.log import JsonFormatter
from strata.figures import Freed, Record, Snapshot
from strata.server import metrics
from strata.server.app import create_app
from strata.server.metrics import Histogram, Meters, render
from strata.server.service import Lobby

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_health_while_loading(make_call, service, engine):
    lobby = Lobby()
    call = make_call()
    call.app = create_app(lobby)
    lobby.say("reading weights: 40 %")
    for path in ("/health", "/v1/health"):
        answer = call("GET", path)
        assert (answer.status, answer.json()["reason"]) == (503, "reading weights: 40 %")
    answer = call.chat()
    assert answer.status == 503 and "40 %" in answer.error["message"]
    assert int(answer.headers["retry-after"]) > 0
    assert call("GET", "/v1/models").status == 503
    assert call("GET", "/metrics").status == 200
    assert call("GET", "/").json()["status"] == "reading weights: 40 %"
    lobby.open(service)
    assert call("GET", "/health").json() == {"status": "ok"}
    assert call.chat().status == 200
    engine.error = "out of memory"
    assert "out of memory" in call("GET", "/health").json()["reason"]
    assert call.chat().status == 503
    engine.error, engine.ready = None, False
    assert call("GET", "/health").status == 503


def test_models(call):
    (entry,) = call("GET", "/v1/models").json()["data"]
    assert entry["id"] == "toy" and entry["root"] == "lab/toy" and entry["object"] == "model"
    assert entry["max_model_len"] == 4096 and entry["created"] == 1700000000
    assert call("GET", "/v1/models/toy").json() == entry
    assert call("GET", "/v1/models/gpt-toy").json() == entry
    assert call("GET", "/v1/models/lab/other").error["code"] == "model_not_found"


def test_requests(call, engine):
    engine.past = (
        Record(
            "b",
            2.0,
            "stop",
            10,
            4,
            3,
            100.0,
            50.0,
            0.1,
            0.01,
            0.5,
            None,
            "token 257 ends answers",
            2,
        ),
        Record("a", 1.0, "failed", 10, 0, 0, None, None, None, 0.01, 0.5),
    )
    data = call("GET", "/v1/requests").json()["data"]
    assert [row["id"] for row in data] == ["b", "a"]
    assert data[0] == {
        "id": "b",
        "time": 2.0,
        "status": "stop",
        "prompt": 10,
        "reused": 4,
        "output": 3,
        "prefill_tokens_per_s": 100.0,
        "decode_tokens_per_s": 50.0,
        "first_token_s": 0.1,
        "queue_s": 0.01,
        "duration_s": 0.5,
        "experts": None,
        "reason": "token 257 ends answers",
        "number": 2,
        "prefill_s": 0.0,
        "decode_s": 0.0,
        "wait_s": 0.0,
    }
    assert data[1]["first_token_s"] is None


def test_cache(call, engine):
    engine.now = Snapshot(
        block=16, pages_total=100, pages_free=60, pages_cached=30, page_bytes=1000,
        states_total=8, states_free=1, states_cached=5, state_bytes=70_000,
        lookups=9, hits=7, hit_tokens=650, prompt_tokens=900, cached_tokens=640,
        evicted_pages=3, evicted_states=2,
    )  # fmt: skip
    assert call("GET", "/v1/cache").json() == {
        "object": "cache",
        "block_size": 16,
        "pages": {"total": 100, "free": 60, "cached": 30, "bytes_each": 1000,
                  "bytes_cached": 30_000, "bytes_budget": 100_000, "evicted": 3},
        "states": {"total": 8, "free": 1, "cached": 5, "bytes_each": 70_000,
                   "bytes_cached": 350_000, "bytes_budget": 560_000, "evicted": 2},
        "lookups": 9, "hits": 7, "hit_tokens": 650,
        "prompt_tokens": 900, "saved_tokens": 640,
    }  # fmt: skip
    assert call("GET", "/cache").status == 200
    assert call("POST", "/v1/cache", {}).headers["allow"] == "DELETE, GET, HEAD"


def test_clearing_the_cache(call, engine):
    engine.freed = Freed(12, 3, 4567)
    assert call("DELETE", "/v1/cache").json() == {
        "object": "cache.cleared", "pages_freed": 12, "states_freed": 3, "bytes_freed": 4567,
    }  # fmt: skip
    engine.ready = False
    assert call("DELETE", "/v1/cache").status == 503


def test_clearing_the_cache_needs_a_key(make_call, engine):
    call = make_call(api_keys=("k",))
    assert call("DELETE", "/v1/cache").status == 401
    assert call("DELETE", "/v1/cache", headers={"authorization": "Bearer k"}).status == 200


def test_tokenize_and_back(call):
    body = call("POST", "/tokenize", {"prompt": "aé</s>", "return_token_strs": True}).json()
    assert body == {
        "count": 5,
        "max_model_len": 4096,
        "tokens": [256, 97, 0xC3, 0xA9, 257],
        "token_strs": ["<s>", "a", "bytes:\\xc3", "bytes:\\xa9", "</s>"],
    }
    plain = call("POST", "/tokenize", {"content": "a", "add_special_tokens": False}).json()
    assert plain["tokens"] == [97]
    back = call("POST", "/detokenize", {"tokens": body["tokens"]}).json()
    assert back == {"prompt": "<s>aé</s>", "content": "<s>aé</s>"}


def test_tokenize_chat_equals_what_a_chat_reads(call, engine):
    messages = [{"role": "user", "content": "hi"}]
    tokens = call("POST", "/tokenize", {"messages": messages}).json()["tokens"]
    usage = call.chat(messages=messages).json()["usage"]
    assert tuple(tokens) == engine.requests[0].tokens
    assert usage["prompt_tokens"] == len(tokens)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "prompt"),
        ("/tokenize", {"prompt": 3}, "prompt"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [300]}, "tokens.0"),
        ("/detokenize", {"tokens": [1, "a"]}, "tokens.1"),
    ],
)
def test_token_refusals(call, path, body, field):
    answer = call("POST", path, body)
    assert (answer.status, answer.error["param"]) == (400, field)


def test_openapi_lists_every_route(call):
    document = call("GET", "/openapi.json").json()
    assert document["openapi"].startswith("3.")
    assert set(document["paths"]) >= {"/v1/chat/completions", "/v1/models/{id}", "/health"}
    assert set(document["paths"]["/v1/cache"]) == {"get", "delete"}
    properties = document["components"]["schemas"]["ChatBody"]["properties"]
    assert {"messages", "cache_salt", "min_tokens", "return_token_ids"} <= set(properties)
    text = call("GET", "/openapi.json").body.decode()
    for name in re.findall(r'"\$ref":"#/components/schemas/(\w+)"', text):
        assert name in document["components"]["schemas"]


def families(text: str):
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_metrics_count_what_happened(call, engine):
    call.chat()
    call.chat(stream=True, n=2)
    call.chat(n=0)
    found = families(call("GET", "/metrics").body.decode())

    def value(name, **labels):
        return [s.value for s in found[name].samples if s.name.endswith(("_total", name))
                and labels.items() <= s.labels.items()]  # fmt: skip

    assert value("strata_http_requests", route="/v1/chat/completions", status="200") == [2.0]
    assert value("strata_http_requests", route="/v1/chat/completions", status="400") == [1.0]
    assert value("strata_choices", finish="stop") == [3.0]
    counts = {s.name: s.value for f in found.values() for s in f.samples}
    assert counts["vllm:time_to_first_token_seconds_count"] == 3
    assert counts["vllm:inter_token_latency_seconds_count"] == 15
    assert counts["vllm:num_requests_running"] == 3
    assert counts["vllm:prompt_tokens_total"] == 70
    assert counts["strata_cached_tokens_total"] == 20
    engine.now = Snapshot(queued=2, parked=3)
    found = families(call("GET", "/metrics").body.decode())
    assert value("vllm:num_requests_waiting", model_name="toy", engine="0") == [5.0]
    assert value("strata_requests_parked") == [3.0]


def test_histogram_is_prometheus_own():
    bounds = (0.1, 0.5, 1.0)
    registry = CollectorRegistry()
    reference = Reference("x", "text", buckets=bounds, registry=registry)
    ours = Histogram(bounds)
    for value in (0.05, 0.1, 0.100001, 0.7, 1.0, 5, 0):
        reference.observe(value)
        ours.observe(value)

    def samples(family):
        return {
            (s.name, tuple(s.labels.items())): s.value
            for s in family.samples
            if not s.name.endswith("_created")
        }

    (expected,) = registry.collect()
    assert samples(metrics._histogram("x", "text", ours.spread())) == samples(expected)
    assert generate_latest(registry)


def test_every_metric_is_documented():
    meters = Meters()
    meters.responses["/health", 200] = 1
    meters.finishes["stop"] = 1
    page = render(meters, Snapshot(requests={"stop": 1})).decode()
    names = {
        line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")
    }  # counters with their _total
    documented = set(re.findall(r"^\| `((?:strata_|vllm:)\w+)", DOCS.read_text(), re.MULTILINE))
    assert names == documented


def test_the_access_line_as_json_has_figures_and_no_content(call, engine, caplog):
    caplog.set_level("INFO", "strata.access")
    call.chat(messages=[{"role": "user", "content": "a secret"}], n=2)
    call("GET", "/health")
    chat, health = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    expected = {"method": "POST", "route": "/v1/chat/completions", "status": 200,
                "client_left": False, "prompt": 27, "cached": 0, "output": 12,
                "finish": ["stop", "stop"], "prefill_ms": 500.0, "decode_ms": 1000.0}  # fmt: skip
    assert expected.items() <= chat.items() and chat["id"].startswith("chatcmpl-")
    assert "secret" not in json.dumps(chat) and "Hello" not in json.dumps(chat)
    assert health["route"] == "/health" and "prompt" not in health
    assert caplog.records[0].getMessage().endswith("prompt=27 cached=0 output=12")
