"""The routes: keys, errors before a body is read, pings, models, and what is documented."""

from __future__ import annotations

import time

import numpy as np
import pytest

import strata.server.resource as resource
from strata.server.app import create_app
from strata.server.service import Lobby

ASK = {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
PATHS = ("/v1/messages", "/v1/messages/count_tokens", "/messages", "/messages/count_tokens")


def checked(answer, status, kind):
    body = answer.json()
    assert answer.status == status and set(body) == {"type", "error", "request_id"}
    assert body["type"] == "error" and body["error"]["type"] == kind
    assert set(body["error"]) == {"type", "message"}
    assert body["request_id"] == answer.headers["request-id"]
    return body["error"]["message"]


@pytest.mark.parametrize("path", PATHS)
def test_errors_have_their_shape(call, make_call, service, path):
    assert "JSON" in checked(call("POST", path, b"{"), 400, "invalid_request_error")
    assert "messages" in checked(
        call("POST", path, {"max_tokens": 3}), 400, "invalid_request_error"
    )
    other = {**ASK, "model": "other"}
    assert "toy" in checked(call("POST", path, other), 404, "not_found_error")
    allowed = checked(call("GET", path), 405, "invalid_request_error")
    assert "POST" in allowed
    evil = {"host": "evil.com"}
    checked(call("POST", path, ASK, headers=evil), 403, "permission_error")
    small = make_call(body_limit=20)
    checked(small("POST", path, ASK), 413, "request_too_large")
    lobby = Lobby()
    small.app = create_app(lobby)
    answer = small("POST", path, ASK)
    checked(answer, 503, "overloaded_error")
    assert int(answer.headers["retry-after"]) > 0


def test_other_routes_keep_theirs(call):
    answer = call("POST", "/v1/chat/completions", b"{")
    assert set(answer.json()) == {"error"} and "request-id" not in answer.headers


@pytest.mark.parametrize("path", PATHS)
def test_both_kinds_of_keys(make_call, path):
    call = make_call(api_keys=("one",))
    for headers in ({}, {"x-api-key": "two"}, {"authorization": "Bearer two"}):
        message = checked(call("POST", path, ASK, headers=headers), 401, "authentication_error")
        assert "x-api-key" in message
    for headers in ({"x-api-key": "one"}, {"authorization": "Bearer one"}):
        assert call("POST", path, ASK, headers=headers).status == 200


def test_a_prompt_that_does_not_fit(send):
    """Claude Code looks for these words; counting has no limit."""
    messages = [{"role": "user", "content": "x" * 5000}]
    message = checked(send(messages=messages), 400, "invalid_request_error")
    assert message.startswith("prompt is too long: ") and "4096" in message
    counted = send("/v1/messages/count_tokens", messages=messages)
    assert counted.status == 200 and counted.json()["input_tokens"] > 5000


def test_counting_needs_no_limit_and_asks_nothing(call, engine):
    body = {"messages": ASK["messages"]}
    assert call("POST", "/v1/messages/count_tokens", body).json() == {"input_tokens": 21}
    assert call("POST", "/v1/messages", body).status == 400
    assert not engine.requests


def test_pings_come_before_the_message(call, engine, events, monkeypatch):
    """Its usage is known with the first token; until then pings keep the client."""
    monkeypatch.setattr(resource, "PING_S", 0.05)
    asked = time.perf_counter()

    def script(request):
        yield 0.18
        engine.cached = 7
        yield 97
        yield 257

    engine.script = script
    found = events(call("POST", "/v1/messages", {**ASK, "stream": True}).body)
    assert time.perf_counter() - asked > 0.18
    names = [name for name, _ in found]
    start = names.index("message_start")
    assert start >= 1 and set(names[:start]) == {"ping"} and found[0][1] == {"type": "ping"}
    assert found[start][1]["message"]["usage"]["cache_read_input_tokens"] == 7


def test_models_for_those_who_speak_it(call):
    headers = {"anthropic-version": "2023-06-01"}
    page = call("GET", "/v1/models?limit=20", headers=headers).json()
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, "toy", "toy")
    (entry,) = page["data"]
    assert entry["type"] == "model" and entry["created_at"] == "2023-11-14T22:13:20Z"
    assert entry["max_input_tokens"] == 4096
    assert call("GET", "/v1/models/toy", headers=headers).json() == entry
    checked(call("GET", "/v1/models/other", headers=headers), 404, "not_found_error")
    assert call("GET", "/v1/models").json()["object"] == "list"


TOOLS = [
    {"name": name, "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}}
    for name in ("find", "stop")
]


def steps(guide, tokenizer, text):
    """How many tokens of a text a guide lets through."""
    for count, token in enumerate(tokenizer.encode(text, start=False)):
        row = np.zeros(tokenizer.vocab_size, np.float32)
        guide.mask(row)
        if not np.isfinite(row[token]):
            return count
        guide.accept(token)
    return len(tokenizer.encode(text, start=False))


@pytest.mark.parametrize(
    ("choice", "allowed", "refused"),
    [
        ({"type": "any"}, ("find", "stop"), ()),
        ({"type": "tool", "name": "stop"}, ("stop",), ("find",)),
    ],
)
def test_a_call_can_be_forced(send, engine, service, choice, allowed, refused):
    assert send(tools=TOOLS, tool_choice=choice).status == 200
    make = engine.requests[-1].guide
    for name in (*allowed, *refused):
        text = f'<tool_call>\n{{"name": "{name}", "arguments": {{"q": "x"}}}}\n</tool_call>'
        let = steps(make(), service.tokenizer, text)
        assert (let == len(service.tokenizer.encode(text, start=False))) is (name in allowed)
    assert steps(make(), service.tokenizer, "Hello") == 0
    for free in ({"type": "auto"}, {"type": "none"}):
        send(tools=TOOLS, tool_choice=free)
        assert engine.requests[-1].guide is None


def test_output_of_a_schema(send, engine, service):
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"],
              "additionalProperties": False}  # fmt: skip
    wanted = {"type": "json_schema", "schema": schema}
    for body in ({"output_config": {"format": wanted}}, {"output_format": wanted}):
        assert send(**body).status == 200
        make = engine.requests[-1].guide
        assert steps(make(), service.tokenizer, '{"a": 1}') == 8
        assert steps(make(), service.tokenizer, '{"a": 2}') == 6
    bad = {"type": "json_schema", "schema": {"type": "no such type"}}
    message = checked(send(output_config={"format": bad}), 400, "invalid_request_error")
    assert "output_config.format.schema" in message


def test_thinking_reaches_the_engine(send, engine):
    budgets = []
    for thinking in (
        {"type": "enabled", "budget_tokens": 1500},
        {"type": "disabled"},
        {"type": "adaptive"},
    ):
        assert send(thinking=thinking).status == 200
        budgets.append(engine.requests[-1].thinking.budget)
    assert budgets == [1500, 0, None]


def test_one_call_ends_the_answer(send, engine, speak):
    call = '<tool_call>{"name": "find", "arguments": {}}</tool_call>'
    engine.script = speak(call * 2)
    for one in (False, True):
        choice = {"type": "auto", "disable_parallel_tool_use": one}
        body = send(tools=TOOLS, tool_choice=choice).json()
        assert (len(body["content"]), body["stop_reason"]) == (1 if one else 2, "tool_use")
    assert len(engine.cancelled) == 1


def test_the_base_is_there(call):
    answer = call("HEAD", "/")
    assert (answer.status, answer.body) == (200, b"")


def test_documented(call):
    document = call("GET", "/openapi.json").json()
    schemas = document["components"]["schemas"]
    for path, body in (
        ("/v1/messages", "MessagesBody"),
        ("/v1/messages/count_tokens", "CountBody"),
    ):
        post = document["paths"][path]["post"]
        schema = post["requestBody"]["content"]["application/json"]["schema"]
        assert schema["$ref"].endswith(f"/{body}")
        error = post["responses"]["400"]["content"]["application/json"]["schema"]["$ref"]
        assert error.endswith("/AnthropicError")
        assert {"thinking", "system", "tool_choice", "cache_salt"} <= set(
            schemas[body]["properties"]
        )
    assert "max_tokens" in schemas["MessagesBody"]["required"]
    assert "max_tokens" not in schemas["CountBody"]["required"]
    streamed = document["paths"]["/v1/messages"]["post"]["responses"]["200"]["content"]
    assert set(streamed) == {"application/json", "text/event-stream"}
