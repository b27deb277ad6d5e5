"""Chat completions on the wire: what a client reads, byte by byte."""

from __future__ import annotations

import json
import re

import pytest

from strata.types import FailedEvent, Finish

EOS = 257


def texts(events):
    return [c["delta"].get("content") for e in events[:-1] for c in e["choices"]]


def test_stream_bytes(call, engine, speak):
    engine.script = speak("Hi")
    answer = call.chat(stream=True, stream_options={"include_usage": True})
    job = re.search(rb'"id":"(chatcmpl-[0-9a-f]{24})","object":[^,]+,"created":(\d+)', answer.body)
    head = (
        b'data: {"id":"%s","object":"chat.completion.chunk","created":%s,"model":"toy","choices":['
        % job.groups()
    )
    end = b',"logprobs":null,"finish_reason":null}]}\n\n'
    assert answer.body == b"".join(
        [
            head + b'{"index":0,"delta":{"role":"assistant","content":"H"}' + end,
            head + b'{"index":0,"delta":{"content":"i"}' + end,
            head + b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}\n\n',
            head + b'],"usage":{"prompt_tokens":21,"completion_tokens":3,"total_tokens":24,'
            b'"prompt_tokens_details":{"cached_tokens":0}},"timings":{"cache_n":0,"prompt_n":21,'
            b'"prompt_ms":250.0,"prompt_per_token_ms":%r,"prompt_per_second":84.0,'
            b'"predicted_n":3,"predicted_ms":500.0,"predicted_per_token_ms":250.0,'
            b'"predicted_per_second":4.0}}\n\n' % (250 / 21),
            b"data: [DONE]\n\n",
        ]
    )
    assert answer.headers["cache-control"] == "no-cache"


def test_stream_without_usage_has_no_usage_key(call):
    answer = call.chat(stream=True)
    assert b"usage" not in answer.body
    assert answer.events()[-1] == b"[DONE]"


def test_whole_answer(call, engine):
    engine.cached = 5
    body = call.chat().json()
    assert body["object"] == "chat.completion"
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert body["usage"] == {
        "prompt_tokens": 21,
        "completion_tokens": 6,
        "total_tokens": 27,
        "prompt_tokens_details": {"cached_tokens": 5},
    }


def test_answer_of_no_text_carries_role_and_finish_in_one_chunk(call, engine, speak):
    engine.script = speak("")
    events = call.chat(stream=True).events()
    assert [e["choices"][0] for e in events[:-1]] == [
        {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]


def test_token_ids_of_unfinished_characters_travel_with_the_next_text(call, engine, speak):
    engine.script = speak("a€b")
    events = call.chat(stream=True, return_token_ids=True).events()[:-1]
    told = [(e["choices"][0]["delta"].get("content"), e["choices"][0]["token_ids"]) for e in events]
    assert told == [("a", [97]), ("€", [0xE2, 0x82, 0xAC]), ("b", [98]), (None, [EOS])]


def test_whole_answer_with_token_ids(call):
    assert call.chat(return_token_ids=True).json()["choices"][0]["token_ids"] == [*b"Hello", EOS]


def test_continuous_usage(call):
    events = call.chat(
        stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}
    ).events()
    counts = [e["usage"]["completion_tokens"] for e in events[:-1]]
    assert counts == [1, 2, 3, 4, 5, 6, 6]
    assert [len(e["choices"]) for e in events[:-1]] == [1] * 6 + [0]


def test_invalid_utf8_from_the_model_is_replaced(call, engine):
    engine.script = lambda request: [0xFF, *b"ok", 0xE2, Finish.LENGTH]
    events = call.chat(stream=True).events()
    assert "".join(filter(None, texts(events))) == "\ufffdok\ufffd"


@pytest.mark.parametrize("stream", [True, False])
def test_stop_string_across_tokens_cancels_and_counts(call, engine, speak, stream):
    engine.script = speak("one END two")
    options = {"stream_options": {"include_usage": True}} if stream else {}
    answer = call.chat(stop=["END"], stream=stream, **options)
    assert len(engine.cancelled) == 1 and not engine.ended
    if stream:
        events = answer.events()
        assert "".join(filter(None, texts(events))) == "one "
        assert events[-3]["choices"][0]["finish_reason"] == "stop"
        usage = events[-2]["usage"]
    else:
        choice = answer.json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("one ", "stop")
        usage = answer.json()["usage"]
    assert usage["completion_tokens"] == len("one END")


def test_stop_string_that_does_not_come_is_told_at_the_end(call, engine, speak):
    engine.script = speak("one EN")
    assert call.chat(stop="END").json()["choices"][0]["message"]["content"] == "one EN"


def test_length(call, engine):
    body = call.chat(max_tokens=2).json()
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["choices"][0]["message"]["content"] == "He"


def test_a_cache_anchor_reaches_the_template_layer(call, template):
    messages = [
        {"role": "user", "content": "a", "cache_anchor": True},
        {"role": "user", "content": "b"},
    ]
    assert call.chat(messages=messages).status == 200
    assert [m.get("cache_anchor") for m in template.seen[0]["messages"]] == [True, None]
    wrong = [{"role": "user", "content": "a", "cache_anchor": "yes"}]
    answer = call.chat(messages=wrong)
    assert (answer.status, answer.error["param"]) == (400, "messages.0.cache_anchor")


def test_stop_token_is_reported_without_text(call, engine, speak):
    engine.script = lambda request: [*b"ab", 0x58, Finish.STOP]
    body = call.chat(stop_token_ids=[0x58], return_token_ids=True).json()
    assert body["choices"][0]["message"]["content"] == "ab"
    assert body["choices"][0]["token_ids"] == [*b"abX"]
    assert 0x58 in engine.requests[0].stop_token_ids
    assert engine.requests[0].stop_token_ids >= {257, 258}


def test_ignore_eos_leaves_end_tokens_out(call, engine):
    engine.script = lambda request: [97, EOS, 98, Finish.LENGTH]
    body = call.chat(ignore_eos=True, stop_token_ids=[9]).json()
    assert engine.requests[0].stop_token_ids == {9}
    assert body["choices"][0]["message"]["content"] == "ab"


def test_logprobs(call, engine, speak):
    engine.script = speak("aé", end=False)
    body = call.chat(logprobs=True, top_logprobs=2).json()
    content = body["choices"][0]["logprobs"]["content"]
    assert content[0] == {
        "token": "a",
        "logprob": -0.25,
        "bytes": [97],
        "top_logprobs": [
            {"token": "a", "logprob": -0.25, "bytes": [97]},
            {"token": "b", "logprob": -0.5, "bytes": [98]},
        ],
    }
    assert [entry["token"] for entry in content[1:]] == ["bytes:\\xc3", "bytes:\\xa9"]


def test_streamed_logprobs_join_to_the_whole_ones(call, engine, speak):
    engine.script = speak("a€b")
    events = call.chat(stream=True, logprobs=True).events()[:-1]
    parts = [e["choices"][0]["logprobs"]["content"] for e in events]
    assert [len(part) for part in parts] == [1, 3, 1, 1]
    whole = call.chat(logprobs=True).json()["choices"][0]["logprobs"]["content"]
    assert [entry for part in parts for entry in part] == whole
    assert whole[-1]["token"] == "</s>"


def test_impossible_logprob_is_still_json(call, engine, monkeypatch):
    import strata.server.logprobs as module

    assert module._finite(float("-inf")) == module.LEAST
    assert module._finite(float("nan")) == module.LEAST
    assert module._finite(-3.5) == -3.5


def test_choices_share_one_prompt(call, engine):
    engine.cached = 3
    body = call.chat(n=3, seed=10).json()
    assert [c["index"] for c in body["choices"]] == [0, 1, 2]
    assert body["usage"]["prompt_tokens"] == 21
    assert body["usage"]["completion_tokens"] == 18
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
    assert len({r.tokens for r in engine.requests}) == 1
    assert [r.sampling.seed for r in engine.requests] == [10, 11, 12]
    assert len({r.id for r in engine.requests}) == 3


def test_streamed_choices(call, engine):
    events = call.chat(n=6, stream=True, stream_options={"include_usage": True}).events()
    said: dict[int, str] = {}
    roles: list[int] = []
    finished: list[int] = []
    for event in events[:-2]:
        (choice,) = event["choices"]
        said[choice["index"]] = said.get(choice["index"], "") + choice["delta"].get("content", "")
        roles += [choice["index"]] * ("role" in choice["delta"])
        finished += [choice["index"]] * (choice["finish_reason"] is not None)
    assert said == dict.fromkeys(range(6), "Hello")
    assert sorted(roles) == sorted(finished) == list(range(6))
    assert events[-2]["choices"] == [] and events[-2]["usage"]["completion_tokens"] == 36


def test_failure_before_the_first_token_has_its_status(call, engine):
    engine.script = lambda request: [FailedEvent(request.id, "no memory", 503)]
    for stream in (True, False):
        answer = call.chat(stream=stream)
        assert answer.status == 503
        assert answer.error["message"] == "no memory"


def test_failure_within_a_stream_is_an_error_event_without_done(call, engine):
    engine.script = lambda request: [*b"ab", FailedEvent(request.id, "step failed", 500)]
    answer = call.chat(stream=True, stream_options={"include_usage": True})
    assert answer.status == 200
    events = answer.events()
    assert events[-1] == {
        "error": {
            "message": "step failed",
            "type": "server_error",
            "param": None,
            "code": "internal_error",
        }
    }
    assert len(events) == 3 and b"[DONE]" not in answer.body and b'"usage"' not in answer.body


def test_failure_of_one_choice_ends_the_others(call, engine):
    def script(request):
        if request.id.endswith("-1"):
            yield 0.02
            yield FailedEvent(request.id, "broken", 500)
        while True:
            yield 0.005
            yield 97

    engine.script = script
    answer = call.chat(n=3, max_tokens=100000)
    assert (answer.status, answer.error["message"]) == (500, "broken")
    assert sorted(engine.cancelled) == sorted(
        r.id for r in engine.requests if not r.id.endswith("-1")
    )


def test_a_fault_of_ours_is_a_500_that_tells_nothing(call, engine, caplog):
    engine.script = lambda request: [ValueError("the prompt was: secret")]
    answer = call.chat()
    assert answer.status == 500
    assert "secret" not in answer.body.decode() + caplog.text
    assert "ValueError" in caplog.text


def test_cancelled_by_the_engine_is_not_an_answer(call, engine):
    engine.script = lambda request: [97, Finish.CANCELLED]
    assert call.chat().status == 503
    assert "error" in call.chat(stream=True).events()[-1]


def test_queue_full(call, engine):
    from strata.types import RequestError

    engine.refusal = RequestError("the queue is full", status=429, retry_after=7)
    for stream in (True, False):
        answer = call.chat(stream=stream)
        assert answer.status == 429
        assert answer.headers["retry-after"] == "7"
        assert answer.error["type"] == "rate_limit_error"


def test_messages_reach_the_template_as_sent(call, template):
    messages = [
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": ""},
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"a": 1}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "x"}]},
        {"role": "system", "content": "late"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]},
    ]
    assert call.chat(messages=messages).status == 200
    assert template.seen[-1]["messages"] == messages
    unknown = [{**messages[0], "cache_control": {}, "name": None}, *messages[1:]]
    assert call.chat(messages=unknown).status == 200
    assert template.seen[-1]["messages"] == messages


def test_the_header_of_an_answer(call, engine):
    call.chat()
    call.chat(add_generation_prompt=False)
    call.chat(continue_final_message=True)
    ends = [bytes(r.tokens[1:]).endswith(b"assistant: ") for r in engine.requests]
    assert ends == [True, False, False]


def test_what_the_template_refuses_is_a_400(call):
    answer = call.chat(messages=[{"role": "tool", "content": "x"}])
    assert (answer.status, answer.error["param"]) == (400, "messages.0")


def test_tools_reach_the_template_unless_none(call, template):
    function = {"type": "function", "function": {"name": "f"}}
    call.chat(tools=[function, {"type": "web_search"}], tool_choice="auto")
    assert template.seen[-1]["tools"] == [function]
    call.chat(tools=[function], tool_choice="none")
    assert template.seen[-1]["tools"] is None


def test_special_fields_reach_the_engine(call, engine):
    call.chat(
        temperature=0,
        top_p=0.5,
        top_k=-1,
        min_p=0.1,
        presence_penalty=1,
        frequency_penalty=-1,
        repetition_penalty=1.1,
        logit_bias={"7": 5, "3": -100.0},
        seed=-1,
        min_tokens=2,
        cache_prompt=False,
        cache_salt="s",
        max_completion_tokens=9,
        max_tokens=8,
    )
    request = engine.requests[0]
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (
        0,
        0.5,
        0,
        0.1,
    )
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (1, -1)
    assert (sampling.repetition_penalty, sampling.min_tokens) == (1.1, 2)
    assert sampling.logit_bias == ((3, -100.0), (7, 5.0))
    assert sampling.seed is None and sampling.logprobs is None
    assert not request.cached and request.namespace == "\ns" and request.max_tokens == 9
    assert request.anchors == (1,) and request.stable_len == len(request.tokens) - len(
        "assistant: "
    )


def test_defaults_of_the_model_hold(call, engine):
    call.chat(temperature=None)
    assert (engine.requests[0].sampling.temperature, engine.requests[0].sampling.top_k) == (0.7, 40)
    assert engine.requests[0].max_tokens == 4096 - len(engine.requests[0].tokens)
    assert engine.requests[0].deadline is None


def test_model_names(call):
    assert call.chat(model="gpt-toy").json()["model"] == "gpt-toy"
    assert call.chat(model="toy").json()["model"] == "toy"
    answer = call.chat(model="other")
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert "toy, gpt-toy" in answer.error["message"]


def test_access_line_and_log_hold_no_content(call, caplog):
    caplog.set_level("DEBUG")
    call.chat(messages=[{"role": "user", "content": "SECRET-9"}], stop=["SECRET-8"])
    call("POST", "/v1/chat/completions?key=SECRET-7", {"messages": "SECRET-6"})
    strata = [r.getMessage() for r in caplog.records if r.name.startswith("strata")]
    assert len(strata) == 2 and "SECRET" not in "".join(strata)
    assert re.search(r"POST /v1/chat/completions 200 .*prompt=\d+ cached=0 output=6", strata[0])
    assert json.dumps("x") and " 400 " in strata[1]
