"""What an answer is held to: response_format, json_schema, regex and grammar, in both routes."""

from __future__ import annotations

import json
from typing import Literal

import openai
import pytest
from pydantic import BaseModel

TALK = [{"role": "user", "content": "who?"}]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FITS = ['{"name": "Ann", "age": 3}', '{"name":"Ann","age":3}', '{"name": "é\\n", "age": -1}']
BREAKS = ['{"name": "Ann"}', '{"name": "Ann", "age": 3.5}', "{}", "", FITS[0] + " no"]
NAMED = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}


def strict(value):
    return {**NAMED, "json_schema": {**NAMED["json_schema"], "strict": value}}


@pytest.mark.parametrize(
    "fields, fits, breaks",
    [
        ({"response_format": NAMED}, FITS, BREAKS),
        ({"response_format": strict(True)}, FITS, BREAKS),
        ({"response_format": strict(False)}, FITS, BREAKS),
        ({"json_schema": SCHEMA}, FITS, BREAKS),
        ({"response_format": {"type": "json_object"}}, ["{}", '{"a": [1, null]}'], ["[]", "1", ""]),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, ["{}"], ["1"]),
        ({"regex": "[ab]{2}c?"}, ["ab", "bbc"], ["a", "abcc", "xab"]),
        ({"grammar": 'start: "yes" | "no" N\nN: /[0-9]+/'}, ["yes", "no12"], ["no", "12"]),
    ],
)
@pytest.mark.parametrize("route", ["chat", "complete"])
def test_guides(call, engine, allowed, route, fields, fits, breaks):
    assert getattr(call, route)(**fields).status == 200
    guide = engine.requests[0].guide
    for text in fits:
        assert allowed(guide(), text), text
    for text in breaks:
        assert not allowed(guide(), text), text


def test_text_asks_for_nothing(call, engine):
    assert call.chat(response_format={"type": "text"}).status == 200
    assert call.chat(response_format=None).status == 200
    assert [request.guide for request in engine.requests] == [None, None]


def test_behind_reasoning_a_break_may_come(call, engine, allowed, template, service):
    """Models write two line breaks there; the tags are the dialect's."""
    template.source += "<think></think>"
    assert call.chat(response_format=NAMED).status == 200
    request = engine.requests[0]
    assert allowed(request.guide(), "\n\n" + FITS[0])
    assert allowed(request.guide(), FITS[0])
    assert request.thinking.close == (service.tokenizer.added_ids["</think>"],)


def test_beside_tools_an_answer_or_a_call(call, engine, allowed, template):
    """A format holds for content; calls stay possible."""
    template.source = "<tool_call>\n<function=name>"
    tools = [{"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}]
    assert call.chat(response_format=NAMED, tools=tools).status == 200
    guide = engine.requests[0].guide
    made = "<tool_call>\n<function=clock>\n</function>\n</tool_call>"
    for text in (FITS[0], made, f"{made}\n{made}"):
        assert allowed(guide(), text), text
    for text in ("hello", BREAKS[0], FITS[0] + made, made.replace("clock", "cloak")):
        assert not allowed(guide(), text), text
    assert call.chat(response_format=NAMED, tools=tools, tool_choice="none").status == 200
    assert not allowed(engine.requests[1].guide(), made)


@pytest.mark.parametrize(
    "fields, field, said",
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}},
            "response_format.json_schema.schema",
            "type",
        ),
        ({"json_schema": {"$ref": "#/nowhere"}}, "json_schema", "nowhere"),
        ({"regex": "(a"}, "regex", ""),
        ({"regex": "(?=a)b"}, "regex", ""),
        ({"grammar": "start: missing"}, "grammar", "missing"),
        ({"grammar": "nonsense {"}, "grammar", ""),
        ({"regex": "a", "grammar": 'start: "a"'}, "grammar", "regex"),
        ({"regex": "a", "response_format": {"type": "json_object"}}, "regex", "response_format"),
    ],
)
@pytest.mark.parametrize("route", ["chat", "complete"])
def test_refused(call, engine, route, fields, field, said):
    answer = getattr(call, route)(**fields)
    assert (answer.status, answer.error["param"]) == (400, field), answer.body
    assert said in answer.error["message"] and len(answer.error["message"]) > 20
    assert not engine.requests


def test_a_deep_schema_is_refused(call, engine):
    schema = {}
    for _ in range(50):
        schema = {"type": "array", "items": schema}
    answer = call.chat(json_schema=schema)
    assert answer.status in (200, 400)
    assert call.chat().status == 200


class Step(BaseModel):
    title: str
    kind: Literal["a", "b"]


class Plan(BaseModel):
    steps: list[Step]


def test_parse_of_the_official_client(live, engine, speak, allowed):
    """`parse` sends a strict schema and reads the answer into the model it was made from."""
    said = json.dumps({"steps": [{"title": "go", "kind": "b"}]})
    engine.script = speak(said)
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="k", max_retries=0) as client:
        read = client.chat.completions.parse(model="toy", messages=TALK, response_format=Plan)
        assert read.choices[0].message.parsed == Plan(steps=[Step(title="go", kind="b")])
        with client.chat.completions.stream(
            model="toy", messages=TALK, response_format=Plan
        ) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        assert final.choices[0].message.parsed == read.choices[0].message.parsed
    for request in engine.requests:
        assert allowed(request.guide(), said)
        assert not allowed(request.guide(), said.replace('"b"', '"c"'))


def test_the_guard_is_on_unless_told(call, engine):
    for value in (None, True, False):
        assert call.chat(repetition_guard=value).status == 200
        assert call.complete(repetition_guard=value).status == 200
    assert [request.guard for request in engine.requests] == [True, True, True, True, False, False]


def test_the_guard_is_off_where_ends_are_ignored(call, engine):
    for value in (None, True):
        assert call.chat(repetition_guard=value, ignore_eos=True).status == 200
        assert call.complete(repetition_guard=value, ignore_eos=True).status == 200
    assert not any(request.guard for request in engine.requests)


def test_choices_have_guides_of_their_own(call, engine):
    assert call.chat(regex="ab", n=2).status == 200
    first, second = (request.guide() for request in engine.requests)
    assert first is not second
