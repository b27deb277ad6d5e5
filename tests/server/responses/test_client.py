"""The official client against the server on a socket."""

from __future__ import annotations

import openai
import pytest
from pydantic import BaseModel

from strata.types import FailedEvent

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}


class City(BaseModel):
    name: str
    size: int


def test_create(client, engine):
    engine.cached = 4
    answer = client.responses.create(model="toy", input="hi", metadata={"a": "b"})
    assert answer.output_text == "Hello" and answer.status == "completed"
    assert answer.usage.input_tokens_details.cached_tokens == 4
    assert answer.metadata == {"a": "b"} and answer.model == "toy"


def test_stream(client):
    stream = client.responses.create(model="toy", input="hi", stream=True)
    told = list(stream)
    assert [e.delta for e in told if e.type == "response.output_text.delta"] == list("Hello")
    assert told[-1].response.usage.output_tokens == 6


def test_stream_helper(client, engine, speak):
    engine.script = speak('Hi<call look>{"x": 1}</call>')
    with client.responses.stream(model="toy", input="hi", tools=[TOOL]) as stream:
        snapshots = [event.snapshot for event in stream if hasattr(event, "snapshot")]
        final = stream.get_final_response()
    assert snapshots[0] == "H" and snapshots[-1] == '{"x": 1}'
    assert final.output_text == "Hi" and final.output[1].name == "look"


def test_parse(client, engine, speak):
    engine.script = speak('{"name": "Oslo", "size": 7}')
    answer = client.responses.parse(model="toy", input="hi", text_format=City)
    assert answer.output_parsed == City(name="Oslo", size=7)


def test_a_loop_of_calls(client, engine, template, speak):
    """The items of an answer go back as they came, with what the function returned."""
    engine.script = speak('<think>Hm</think>So<call look>{"x": 1}</call>')
    talk = [{"role": "user", "content": "hi"}]
    first = client.responses.create(model="toy", input=talk, tools=[TOOL])
    call = first.output[-1]
    talk += first.output
    talk.append({"type": "function_call_output", "call_id": call.call_id, "output": "7"})
    engine.script = speak("Seven")
    assert client.responses.create(model="toy", input=talk, tools=[TOOL]).output_text == "Seven"
    function = {"name": "look", "arguments": '{"x": 1}'}
    assert template.seen[-1]["messages"] == [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "reasoning_content": "Hm",
            "content": [{"type": "text", "text": "So"}],
            "tool_calls": [{"id": call.call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call.call_id, "content": "7"},
    ]


def test_previous_response(client, engine, template, speak):
    first = client.responses.create(model="toy", input="one", instructions="be kind")
    second = client.responses.create(model="toy", input="two", previous_response_id=first.id)
    client.responses.create(model="toy", input="three", previous_response_id=second.id)
    said = [
        (m["role"], m["content"] if isinstance(m["content"], str) else m["content"][0]["text"])
        for m in template.seen[-1]["messages"]
    ]
    # Instructions are not carried over.
    assert said == [
        ("user", "one"),
        ("assistant", "Hello"),
        ("user", "two"),
        ("assistant", "Hello"),
        ("user", "three"),
    ]
    assert second.previous_response_id == first.id


def test_retrieve_and_delete(client):
    made = client.responses.create(model="toy", input="hi")
    assert client.responses.retrieve(made.id) == made
    assert client.responses.delete(made.id) is None
    for again in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError):
            again(made.id)


def test_a_streamed_response_is_remembered_when_it_is_complete(client):
    with client.responses.create(model="toy", input="hi", stream=True) as stream:
        for event in stream:
            if event.type == "response.completed":
                assert client.responses.retrieve(event.response.id).output_text == "Hello"


def test_input_items(client):
    first = client.responses.create(model="toy", input="one")
    second = client.responses.create(
        model="toy",
        input=[{"role": "user", "content": "two"}, {"role": "user", "content": "three"}],
        previous_response_id=first.id,
    )
    items = list(client.responses.input_items.list(second.id, order="asc", limit=1))
    assert [item.content[0].text for item in items] == ["one", "Hello", "two", "three"]
    assert [item.role for item in items] == ["user", "assistant", "user", "user"]
    assert items[1].id == first.output[0].id
    newest = client.responses.input_items.list(second.id, limit=2)
    assert [item.id for item in newest.data] == [items[3].id, items[2].id] and newest.has_more


def test_store_false_remembers_nothing(client):
    made = client.responses.create(model="toy", input="hi", store=False)
    assert made.store is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="toy", input="hi", previous_response_id=made.id)
    assert caught.value.code == "previous_response_not_found"
    assert caught.value.param == "previous_response_id"


def test_closing_early_cancels(client, engine, eventually):
    def forever(request):
        while True:
            yield 0.005
            yield 97

    engine.script = forever
    stream = client.responses.create(model="toy", input="hi", stream=True)
    next(iter(stream))
    stream.close()
    eventually(lambda: engine.cancelled)


def test_errors(client, engine):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="toy", input="hi", temperature=-1)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="other", input="hi")
    engine.script = lambda request: [97, FailedEvent(request.id, "broken", 500)]
    with pytest.raises(openai.InternalServerError, match="broken"):
        client.responses.create(model="toy", input="hi")
    *_, last = client.responses.create(model="toy", input="hi", stream=True)
    assert last.type == "response.failed" and last.response.error.message == "broken"
