"""Messages on the wire: the events, their order, their numbers, and the message they make."""

from __future__ import annotations

import re
from itertools import pairwise
from types import SimpleNamespace

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from strata.server.anthropic import MessageForm
from strata.server.anthropic.events import SIGNATURE
from strata.server.generate import Part, Tally
from strata.text.delta import Delta, Kind
from strata.types import FailedEvent, Finish

TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("find", "stop")]
ARGUMENTS = '{"q":"\\u00e9"}'


def calling(name: str, arguments: str = "{}") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


MIXED = f"<think>hm</think>Hi{calling('find', ARGUMENTS)}{calling('stop')}ok"


def test_stream_bytes(send, engine, speak):
    engine.script, engine.cached = speak("<think>h</think>Hi"), 5
    answer = send(stream=True)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["request-id"].startswith("req_")
    job = re.search(rb'"id":"(msg_[0-9a-f]{24})"', answer.body).group(1)
    # <s>, then "user: hi\n", which the next turn repeats, then "assistant: ".
    usage = (
        b'"usage":{"input_tokens":11,"cache_creation_input_tokens":5,"cache_read_input_tokens":5'
    )
    assert answer.body == b"".join(
        [
            b'event: message_start\ndata: {"type":"message_start","message":{"id":"%s",' % job,
            b'"type":"message","role":"assistant","model":"toy","content":[],"stop_reason":null,',
            b'"stop_sequence":null,%s,"output_tokens":2,' % usage,
            b'"output_tokens_details":{"thinking_tokens":2}}}}\n\n',
            b'event: content_block_start\ndata: {"type":"content_block_start","index":0,',
            b'"content_block":{"type":"thinking","thinking":"","signature":""}}\n\n',
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,',
            b'"delta":{"type":"thinking_delta","thinking":"h"}}\n\n',
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,',
            b'"delta":{"type":"signature_delta","signature":"%s"}}\n\n' % SIGNATURE.encode(),
            b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n',
            b'event: content_block_start\ndata: {"type":"content_block_start","index":1,',
            b'"content_block":{"type":"text","text":""}}\n\n',
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,',
            b'"delta":{"type":"text_delta","text":"H"}}\n\n',
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,',
            b'"delta":{"type":"text_delta","text":"i"}}\n\n',
            b'event: content_block_stop\ndata: {"type":"content_block_stop","index":1}\n\n',
            b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":',
            b'"end_turn","stop_sequence":null},%s,"output_tokens":6,' % usage,
            b'"output_tokens_details":{"thinking_tokens":2}}}\n\n',
            b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
        ]
    )


def test_calls_in_a_stream(send, engine, speak, events):
    engine.script = speak(MIXED)
    found = events(send(stream=True, tools=TOOLS).body)
    starts = [data for name, data in found if name == "content_block_start"]
    kinds = ["thinking", "text", "tool_use", "tool_use", "text"]
    assert [(s["index"], s["content_block"]["type"]) for s in starts] == list(enumerate(kinds))
    first, second = (s["content_block"] for s in starts[2:4])
    assert (first["name"], first["input"], second["name"]) == ("find", {}, "stop")
    assert re.fullmatch("toolu_[0-9a-f]{24}", first["id"]) and first["id"] != second["id"]
    pieces = [
        d["delta"].get("partial_json") for name, d in found if d.get("index") == 2 and "delta" in d
    ]
    assert "".join(pieces) == ARGUMENTS
    stops = [data["index"] for name, data in found if name == "content_block_stop"]
    assert stops == [0, 1, 2, 3, 4]
    assert found[-2][1]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


def test_a_call_ends_with_its_last_token(events):
    """Whoever runs tools need not wait for what follows."""
    made, tally = form(), Tally(10, 0.0)
    told = [Delta(Kind.CALL, "find", 0), Delta(Kind.ARGUMENTS, "{}", 0), Delta(Kind.END, "", 0)]
    found = events(made.part(RUN, Part("", [], [], None, told), tally))
    assert found[-1] == ("content_block_stop", {"type": "content_block_stop", "index": 0})
    assert made.part(RUN, Part("", [], [], "tool_calls"), tally) == b""


def test_whole_message(send, engine, speak, service):
    engine.script, engine.cached = speak(MIXED), 12
    body = send(tools=TOOLS).json()
    assert re.fullmatch("msg_[0-9a-f]{24}", body.pop("id"))
    calls = [block.pop("id") for block in body["content"] if block["type"] == "tool_use"]
    assert len(set(calls)) == 2
    assert body == {
        "type": "message",
        "role": "assistant",
        "model": "toy",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "name": "find", "input": {"q": "é"}},
            {"type": "tool_use", "name": "stop", "input": {}},
            {"type": "text", "text": "ok"},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 9,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 12,
            "output_tokens": len(service.tokenizer.encode(MIXED, start=False)) + 1,
            "output_tokens_details": {"thinking_tokens": 3},
        },
    }


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("script", "body", "stop"),
    [
        ("Hello", {}, ("end_turn", None)),
        ("Hello", {"max_tokens": 3}, ("max_tokens", None)),
        ("Hello", {"stop_sequences": ["x", "ll", "l"]}, ("stop_sequence", "l")),
        ("Hello", {"stop_sequences": ["Hel", "el"]}, ("stop_sequence", "Hel")),
        ("Hello", {"max_tokens": 5000}, ("end_turn", None)),
        (calling("find"), {"tools": TOOLS}, ("tool_use", None)),
        (calling("find") + " END", {"tools": TOOLS, "stop_sequences": ["END"]}, ("tool_use", None)),
        (calling("find", '{"q": "abc"}'), {"tools": TOOLS, "max_tokens": 42}, ("max_tokens", None)),
        ("y" * 5000, {"max_tokens": 5000}, ("model_context_window_exceeded", None)),
    ],
)
def test_why_it_ended(send, engine, speak, events, stream, script, body, stop):
    engine.script = speak(script)
    answer = send(stream=stream, **body)
    told = events(answer.body)[-2][1]["delta"] if stream else answer.json()
    assert (told["stop_reason"], told["stop_sequence"]) == stop


def test_a_finish_of_its_own_is_told_as_it_is(service):
    tally = Tally(10, 0.0)
    assert form().part(RUN, Part("", [], [], "repetition"), tally) == b""
    made = form()
    made.part(RUN, Part("", [], [], "repetition"), tally)
    assert b'"stop_reason":"repetition"' in made.end([tally])


def test_a_call_that_was_cut_off_has_what_came_of_it(send, engine, speak, events, service):
    script, rest = calling("find", '{"q": ["a", "bc<cut>"]}').split("<cut>")
    engine.script = speak(script + rest)
    limit = len(service.tokenizer.encode(script, start=False))
    (block,) = send(tools=TOOLS, max_tokens=limit).json()["content"]
    assert block["input"] == {"q": ["a", "bc"]}
    names = [n for n, _ in events(send(tools=TOOLS, max_tokens=limit, stream=True).body)]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_nothing(send, engine, speak, events, stream):
    engine.script = speak("")
    answer = send(stream=stream)
    if stream:
        names = [name for name, _ in events(answer.body)]
        assert names == ["message_start", "message_delta", "message_stop"]
    else:
        assert answer.json()["content"] == []


def total(usage):
    return (
        usage["input_tokens"]
        + usage["cache_creation_input_tokens"]
        + usage["cache_read_input_tokens"]
    )


@pytest.mark.parametrize("cached", [0, 3, 10, 11, 20])
@pytest.mark.parametrize("stored", [True, False])
def test_usage_adds_up(send, engine, events, cached, stored):
    """Of 21 tokens the next turn repeats 10, those before the header of the answer."""
    engine.cached = cached
    more = {} if stored else {"cache_prompt": False}
    usage = send(**more).json()["usage"]
    assert total(usage) == 21 and usage["cache_read_input_tokens"] == cached
    assert usage["cache_creation_input_tokens"] == (max(0, 10 - cached) if stored else 0)
    found = events(send(stream=True, **more).body)
    assert found[-2][1]["usage"] == usage
    assert {**found[0][1]["message"]["usage"], "output_tokens": 6} == usage
    counted = send("/v1/messages/count_tokens", **more).json()
    assert counted == {"input_tokens": 21}


def test_stats(send, events):
    assert send(strata_stats=True).json()["usage"]["strata"]["prefill_ms"] == 250.0
    found = events(send(strata_stats=True, stream=True).body)
    assert found[-2][1]["usage"]["strata"]["decode_ms"] == 500.0
    assert "strata" not in send().json()["usage"]


def test_a_failure_within_a_stream(send, engine, events):
    def script(request):
        yield 97
        yield FailedEvent(request.id, "the disk failed", 503)

    engine.script = script
    answer = send(stream=True)
    name, data = events(answer.body)[-1]
    assert (answer.status, name) == (200, "error")
    assert data == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "the disk failed"},
        "request_id": answer.headers["request-id"],
    }


def test_a_failure_before_the_first_token_has_its_status(send, engine):
    engine.script = lambda request: iter([FailedEvent(request.id, "no", 500)])
    answer = send(stream=True)
    assert (answer.status, answer.error["type"]) == (500, "api_error")


RUN = SimpleNamespace(index=0, stats=False, request=SimpleNamespace(stable_len=0, cached=True))


def form() -> MessageForm:
    job = SimpleNamespace(id="msg_0", model="toy", runs=(RUN,), created=0)
    return MessageForm(job, 100)  # type: ignore[arg-type]


@st.composite
def answers(draw: st.DrawFn) -> list[Delta]:
    """Deltas as they may come, in any order of kinds and with empty texts."""
    deltas: list[Delta] = []
    calls = 0
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from([Kind.CONTENT, Kind.REASONING, Kind.CALL]))
        if kind is not Kind.CALL:
            deltas += [
                Delta(kind, text) for text in draw(st.lists(st.text(max_size=3), max_size=3))
            ]
            continue
        deltas.append(Delta(kind, draw(st.sampled_from(["find", "stop"])), calls))
        whole = draw(st.sampled_from(["", "{}", '{"a":"é\\""}', '{"a":[1,{"b":null}]}']))
        cut = draw(st.integers(0, len(whole)))
        deltas += [Delta(Kind.ARGUMENTS, text, calls) for text in (whole[:cut], whole[cut:])]
        deltas.append(Delta(Kind.END, "", calls))
        calls += 1
    return deltas


@given(answers(), st.data())
def test_events_make_the_message_that_is_told_whole(events, deltas, data):
    """Put together by the official client, however the deltas are cut into parts."""
    reader = TypeAdapter(RawMessageStreamEvent)
    tally, made = Tally(10, 0.0), form()
    body, at = made.begin([tally]), 0
    while at < len(deltas):
        size = data.draw(st.integers(1, 3))
        body += made.part(RUN, Part("", [], [], None, deltas[at : at + size]), tally)
        at += size
    body += made.part(RUN, Part("", [], [], Finish.STOP.value), tally) + made.end([tally])
    message, bufs = None, {}
    for _, event in events(body):
        message = accumulate_event(
            event=reader.validate_python(event), current_snapshot=message, json_bufs=bufs
        )
    whole = form().whole([Part("", [], [], "stop", deltas)], [tally])
    ours = Message.model_validate_json(whole)
    told = [block.to_dict() for block in message.content]
    expected = [block.to_dict() for block in ours.content]
    for block in (*told, *expected):
        block.pop("id", None)
    assert told == expected
    assert message.stop_reason == ours.stop_reason == "end_turn"
    for kind, name in ((Kind.CONTENT, "text"), (Kind.REASONING, "thinking")):
        texts = [block[name] for block in told if block["type"] == name]
        assert all(texts)
        assert "".join(texts) == "".join(d.text for d in deltas if d.kind is kind)
    assert all(a["type"] != b["type"] or a["type"] == "tool_use" for a, b in pairwise(told))
