"""Events of a stream: their order, what they join to, and that OpenAI's own types take them."""

from __future__ import annotations

from itertools import groupby

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from strata.types import FailedEvent, Finish, RequestError

THEIRS = TypeAdapter(ResponseStreamEvent)
TALK = '<think>Hm é</think>Hi 世<call look>{"a": 1}</call><call see>{}</call>'


def kinds(told):
    """The types of events without `response.`, repeats once."""
    return [kind.removeprefix("response.") for kind, _ in groupby(e["type"] for e in told)]


def joined(told, kind):
    return "".join(event["delta"] for event in told if event["type"] == f"response.{kind}.delta")


def test_order_of_a_plain_answer(respond, events, engine):
    told = events(respond(stream=True))
    assert kinds(told) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert joined(told, "output_text") == "Hello"
    assert [e["type"] for e in told].count("response.output_text.delta") == 5
    last = told[-1]["response"]
    assert last["status"] == "completed" and told[0]["response"]["status"] == "in_progress"
    assert told[0]["response"]["output"] == [] and told[0]["response"]["usage"] is None
    assert told[0]["response"]["id"] == last["id"] and last["id"].startswith("resp_")
    (item,) = last["output"]
    assert item["content"] == [
        {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    ]


def test_order_of_reasoning_text_and_calls(respond, events, engine, speak):
    engine.script = speak(TALK)
    told = events(respond(stream=True, max_output_tokens=500))
    item, part = ["output_item.added", "content_part.added"], ["content_part.done"]
    call = [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert kinds(told) == [
        *("created", "in_progress"),
        *(*item, "reasoning_text.delta", "reasoning_text.done", *part, "output_item.done"),
        *(*item, "output_text.delta", "output_text.done", *part, "output_item.done"),
        *call,
        *call,
        "completed",
    ]
    assert joined(told, "reasoning_text") == "Hm é" and joined(told, "output_text") == "Hi 世"
    assert joined(told, "function_call_arguments") == '{"a": 1}{}'


@pytest.mark.parametrize("reasoning", [None, {"summary": "auto"}])
@pytest.mark.parametrize("stream", [False, True])
def test_openais_types_take_every_event_and_response(
    respond, events, engine, speak, reasoning, stream
):
    """Their models check what their client does not."""
    engine.script = speak(TALK)
    answer = respond(
        stream=stream,
        reasoning=reasoning,
        include=["message.output_text.logprobs", "reasoning.encrypted_content"],
        top_logprobs=1,
        tools=[{"type": "function", "name": "look", "parameters": {}, "strict": True}],
        tool_choice={"type": "function", "name": "look"},
        instructions="be kind",
        metadata={"a": "b"},
        text={"format": {"type": "text"}},
    )
    if stream:
        for event in events(answer):
            THEIRS.validate_python(event)
    else:
        Response.model_validate(answer.json())


def same(response):
    return {k: v for k, v in response.items() if k not in ("id", "created_at", "completed_at")}


@pytest.mark.parametrize(
    "fields", [{}, {"reasoning": {"summary": "auto"}}, {"max_output_tokens": 9}]
)
def test_a_stream_ends_with_what_a_whole_answer_is(respond, events, engine, speak, fields):
    """And the items told on the way are those of the end."""
    engine.script = speak(TALK)
    whole = respond(include=["message.output_text.logprobs"], **fields).json()
    told = events(respond(stream=True, include=["message.output_text.logprobs"], **fields))
    last = told[-1]["response"]
    done = [e["item"] for e in told if e["type"] == "response.output_item.done"]
    assert done == last["output"]
    for response in (whole, last):  # ids carry the response's own
        for item in response["output"]:
            assert item.pop("id").partition("_")[2].startswith(response["id"][5:])
            item.pop("call_id", None)
    assert same(whole) == same(last)


def test_indexes_and_ids_name_the_item(respond, events, engine, speak):
    engine.script = speak(TALK)
    told = events(respond(stream=True))
    added = [e["item"] for e in told if e["type"] == "response.output_item.added"]
    ids = [item["id"] for item in added]
    assert [i.partition("_")[0] for i in ids] == ["rs", "msg", "fc", "fc"] and len(set(ids)) == 4
    assert len({item["call_id"] for item in added[2:]}) == 2
    for event in told:
        if "item_id" in event:
            assert ids[event["output_index"]] == event["item_id"]
        if "item" in event:
            assert ids[event["output_index"]] == event["item"]["id"]


def test_reasoning_as_a_summary(respond, events, engine, speak):
    engine.script = speak("<think>Hm</think>Hi")
    told = events(respond(stream=True, reasoning={"summary": "auto"}))
    assert kinds(told)[2:8] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    item = told[-1]["response"]["output"][0]
    assert item["summary"] == [{"type": "summary_text", "text": "Hm"}] and "content" not in item


def test_reasoning_tokens_are_counted(respond, engine, speak):
    engine.script = speak("<think>Hm</think>Hi")
    engine.cached = 3
    usage = respond(input="hey").json()["usage"]
    prompt = len("user: hey\nassistant: ") + 1
    assert usage["input_tokens"] == prompt
    assert usage["input_tokens_details"] == {"cached_tokens": 3, "cache_write_tokens": prompt - 3}
    assert usage["output_tokens"] == 7  # the marks are a token each, and so is the end
    assert usage["total_tokens"] == prompt + usage["output_tokens"]
    assert usage["output_tokens_details"]["reasoning_tokens"] == 3  # with the opening mark
    assert respond(strata_stats=True).json()["usage"]["strata"]["prefill_ms"] == 250.0
    uncached = respond(cache_prompt=False).json()["usage"]["input_tokens_details"]
    assert uncached["cache_write_tokens"] == 0


def test_the_limit_makes_it_incomplete(respond, events, engine, speak):
    engine.script = speak("Hello")
    told = events(respond(stream=True, max_output_tokens=3))
    last = told[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["status"] == "incomplete"
    assert last["response"]["output"][0]["status"] == "incomplete"
    assert last["response"]["output"][0]["content"][0]["text"] == "Hel"


def test_a_call_cut_off_is_incomplete(respond, engine, speak):
    engine.script = speak('a<call look>{"x": 1}</call><call see>{"y": 2}')
    answer = respond(max_output_tokens=len('a<call look>{"x": 1}</call><call see>{"y"')).json()
    assert answer["status"] == "incomplete"
    assert [item["status"] for item in answer["output"]] == ["completed", "completed", "incomplete"]
    assert answer["output"][2]["arguments"] == '{"y"'


def test_logprobs(respond, events, engine, speak):
    engine.script = speak("<think>a</think>bc")
    fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    for told in (
        respond(**fields).json(),
        events(respond(stream=True, **fields))[-1]["response"],
    ):
        (part,) = told["output"][1]["content"]
        names = [entry["token"] for entry in part["logprobs"]]
        assert names[-3:] == ["b", "c", "</s>"] and "a" not in names
        assert all(len(entry["top_logprobs"]) == 2 for entry in part["logprobs"])
    assert respond().json()["output"][1]["content"][0]["logprobs"] == []


def test_created_goes_out_before_the_prompt_is_read(live, engine, eventually):
    engine.script = lambda request: [30.0, 97]
    with live.send("/v1/responses", {"input": "hi", "stream": True}) as connection:
        data = b""
        while b"response.in_progress" not in data:
            data += connection.recv(4096)
        assert b"event: response.created\ndata: " in data
    eventually(lambda: engine.cancelled)


def test_what_fails_before_has_its_status(respond, engine):
    engine.refusal = RequestError("full", status=429, retry_after=3)
    answer = respond(stream=True)
    assert (answer.status, answer.headers["retry-after"]) == (429, "3")
    assert answer.error["message"] == "full"


def test_a_failure_within_the_stream(respond, events, engine, call):
    engine.script = lambda request: [97, FailedEvent(request.id, "broken", 500)]
    told = events(respond(stream=True))
    assert told[-1]["type"] == "response.failed"
    THEIRS.validate_python(told[-1])
    failed = told[-1]["response"]
    assert failed["status"] == "failed"
    assert failed["error"] == {"code": "server_error", "message": "broken"}
    assert call("GET", f"/v1/responses/{failed['id']}").status == 404
    assert respond().status == 500 and respond().error["message"] == "broken"


def test_a_silent_stream_gets_comments(make_call, monkeypatch, engine):
    monkeypatch.setattr("strata.server.resource.PING_S", 0.02)
    engine.script = lambda request: [0.2, 97, 257, Finish.STOP]
    answer = make_call()("POST", "/v1/responses", {"input": "hi", "stream": True}).body
    assert answer.count(b": ping\n\n") >= 2
    assert answer.index(b"response.created") < answer.index(b": ping")
    assert b"response.completed" in answer
