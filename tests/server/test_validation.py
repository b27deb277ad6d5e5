"""What is refused, with which status and field; and that no JSON makes a 500."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

USER = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"messages": None}, "messages", "list"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": "hi"}, "messages", "list"),
        ({"messages": [3]}, "messages.0", ""),
        ({"messages": [{"content": "x"}]}, "messages.0.role", "required"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role", "'user'"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages.0.content", "string"),
        ({"messages": [{"role": "user", "content": [{}]}]}, "messages.0.content.0.type", ""),
        ({"temperature": True}, "temperature", "number"),
        ({"temperature": "1"}, "temperature", "number"),
        ({"temperature": -0.1}, "temperature", "0"),
        ({"temperature": 1e300}, "temperature", "100"),
        ({"top_p": 1.1}, "top_p", "1"),
        ({"top_k": -2}, "top_k", "-1"),
        ({"top_k": 1.5}, "top_k", "integer"),
        ({"min_p": -1}, "min_p", "0"),
        ({"presence_penalty": 3}, "presence_penalty", "2"),
        ({"frequency_penalty": -3}, "frequency_penalty", "-2"),
        ({"repetition_penalty": 0}, "repetition_penalty", "0"),
        ({"repetition_penalty": 1e-40}, "repetition_penalty", "0.01"),
        ({"n": 0}, "n", "1"),
        ({"n": False}, "n", "integer"),
        ({"n": 129}, "n", "128"),
        ({"n": 100}, "n", "64"),
        ({"seed": 2**64}, "seed", ""),
        ({"seed": 10**400}, None, "JSON"),
        ({"max_tokens": 0}, "max_tokens", "1"),
        ({"max_tokens": "9"}, "max_tokens", "integer"),
        ({"max_completion_tokens": -5}, "max_completion_tokens", "1"),
        ({"stop": ""}, "stop", "1 character"),
        ({"stop": ["a", ""]}, "stop.1", "1 character"),
        ({"stop": ["a"] * 17}, "stop", "16"),
        ({"stop": {"a": 1}}, "stop", "string"),
        ({"stop_token_ids": [-1]}, "stop_token_ids.0", "0"),
        ({"stop_token_ids": 5}, "stop_token_ids", "list"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "0 to 299"),
        ({"logit_bias": {"300": 1}}, "logit_bias", "0 to 299"),
        ({"logit_bias": {"-1": 1}}, "logit_bias", "0 to 299"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1", "100"),
        ({"logit_bias": {str(i): 0 for i in range(1025)}}, "logit_bias", "1024"),
        ({"logit_bias": [1]}, "logit_bias", ""),
        ({"logprobs": 1}, "logprobs", "boolean"),
        ({"top_logprobs": 2}, "top_logprobs", "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "20"),
        ({"stream": "yes"}, "stream", "boolean"),
        ({"stream_options": 1}, "stream_options", "must be an object"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "boolean"),
        ({"min_tokens": -1}, "min_tokens", "0"),
        ({"cache_prompt": 0}, "cache_prompt", "boolean"),
        ({"cache_salt": 5}, "cache_salt", "string"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "json_object"),
        (
            {"response_format": {"type": "json_schema", "json_schema": 1}},
            "response_format.json_schema",
            "",
        ),
        ({"tool_choice": "any"}, "tool_choice", "required"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function", "required"),
        ({"tool_choice": "required"}, "tool_choice", "no tool"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
            "tool_choice",
            "no tool",
        ),
        ({"reasoning_effort": "huge"}, "reasoning_effort", "medium"),
        ({"thinking_budget": -2}, "thinking_budget", "-1"),
        ({"regex": ""}, "regex", "1 character"),
        ({"regex": "a", "grammar": 'start: "a"'}, "grammar", "regex"),
        ({"regex": "a", "response_format": {"type": "json_object"}}, "regex", "response_format"),
        ({"json_schema": {}, "response_format": {"type": "json_object"}}, "json_schema", ""),
        ({"repetition_guard": 0}, "repetition_guard", "boolean"),
        ({"tools": [1]}, "tools.0", ""),
        ({"model": 3}, "model", "string"),
    ],
)
def test_field(call, engine, fields, field, said):
    answer = call.chat(**{"messages": USER, **fields})
    error = answer.error
    assert (answer.status, error["param"]) == (400, field), error
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert said in error["message"]
    assert len(error["message"]) < 300 and not engine.requests


@pytest.mark.parametrize(
    "fields",
    [
        {"n": None, "stop": None, "temperature": None, "stream_options": None, "tools": None},
        {"max_tokens": 3.0, "top_k": 0, "temperature": 0, "stop": []},
        {"unknown": {"a": [1]}, "store": False, "metadata": {}, "reasoning_effort": "low"},
        {"response_format": {"type": "text"}, "tool_choice": "auto"},
        {"seed": 2**64 - 1},
        {"seed": -(2**63)},
    ],
)
def test_accepted(call, fields):
    assert call.chat(**fields).status == 200


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[]", "object"),
        (b'"x"', "object"),
        (b"null", "object"),
        (b'{"temperature": NaN}', "JSON"),
        (b'{"temperature": Infinity}', "JSON"),
        (b'{"temperature": 1e999}', "JSON"),
        (b'{"model": "\xff"}', "JSON"),
        (b'{"model": "\\ud800"}', "JSON"),
        (b'\xef\xbb\xbf{"model": "x"}', "JSON"),
        (json.dumps({"model": "x"}).encode("utf-16"), "JSON"),
        (b'{"model": "a", "model": "b"}', "'model'"),
        (b'{"messages": [{"role": "user", "role": "system"}]}', "'role'"),
        (b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", "64 levels"),
        (b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}", "JSON"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "64 levels"),
    ],
)
def test_document(call, body, said):
    for path in ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"):
        answer = call("POST", path, body)
        assert (answer.status, answer.error["code"]) == (400, "invalid_json")
        assert said in answer.error["message"]


def test_deep_but_allowed(call):
    value: object = 1
    for _ in range(60):
        value = [value]
    assert call.chat(unknown=value).status == 200


def test_other_content(call):
    answer = call("POST", "/v1/completions", {"prompt": "a"}, headers={"content-encoding": "gzip"})
    assert answer.status == 415
    answer = call("POST", "/v1/completions", {"prompt": "a"}, headers={"content-type": "text/x"})
    assert answer.status == 200


def test_body_limit(make_call):
    call = make_call(body_limit=1000)
    answer = call.complete(prompt="a" * 1000)
    assert (answer.status, answer.error["code"]) == (413, "request_too_large")
    assert call.complete(prompt="a" * 900).status == 200


def test_megabytes_are_refused_by_the_context_not_by_size(call):
    answer = call.chat(messages=[{"role": "user", "content": "word " * 1_000_000}])
    assert answer.error["code"] == "context_length_exceeded"
    assert "5000" in answer.error["message"]


def test_no_template(make_call, service):
    from dataclasses import replace

    from strata.server.app import create_app
    from strata.server.service import Lobby

    call = make_call()
    call.app = create_app(Lobby(replace(service, template=None)))
    answer = call.chat()
    assert answer.status == 400 and "--chat-template" in answer.error["message"]
    assert call.complete().status == 200


def test_many_faults_are_told_as_one_and_quickly(call):
    answer = call("POST", "/v1/completions", {"prompt": ["x"] * 3 + [None] * 300_000})
    assert answer.status == 400 and answer.error["param"] == "prompt.3"


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["user", "text", "auto", "", "toy", 0, 1, -1, 2**31, 2**63, 2**64, 1e308])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "function", "name", "1", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
FIELDS = [
    "messages", "prompt", "model", "n", "stream", "stream_options", "temperature", "top_p", "top_k",
    "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "seed",
    "stop", "stop_token_ids", "min_tokens", "ignore_eos", "return_token_ids", "cache_prompt",
    "cache_salt", "max_tokens", "max_completion_tokens", "logprobs", "top_logprobs", "tools",
    "tool_choice", "response_format", "chat_template_kwargs", "echo", "best_of", "suffix",
    "parallel_tool_calls", "reasoning_effort", "thinking_budget", "json_schema", "regex", "grammar",
    "repetition_guard", "return_progress", "timings_per_token", "continue_final_message",
    "tokens", "content", "add_special_tokens", "return_token_strs", "add_generation_prompt",
]  # fmt: skip
bodies = st.dictionaries(st.sampled_from(FIELDS), values, max_size=4)
PATHS = ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"]


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(path=st.sampled_from(PATHS), body=bodies, good=st.booleans())
def test_any_json_is_answered(call, path, body, good):
    if good:
        body = {"messages": USER, "prompt": "a", "tokens": [1], **body}
    answer = call("POST", path, json.dumps(body).encode())
    assert answer.status in (200, 400, 404), answer.body
    if answer.status != 200:
        assert set(answer.error) == {"message", "type", "param", "code"}
    elif not (body.get("stream") is True and "completions" in path):
        answer.json()


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(path=st.sampled_from(PATHS), body=st.binary(max_size=40))
def test_any_bytes_are_answered(call, path, body):
    assert call("POST", path, body).status == 400
