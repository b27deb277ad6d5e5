"""What a body means: the same talk through chat completions is the reference."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from strata.server.app import create_app
from strata.server.responses.convert import flat, sealed, unsealed
from strata.server.service import Lobby
from strata.text.messages import Habits, normalise

ITEM = TypeAdapter(ResponseItem)


class Everything:
    """A template that writes all that it is given: any difference is one of tokens."""

    source, tool_source = "<think></think>", None

    def __init__(self, tokenizer, example):
        self.tokenizer, self.example = tokenizer, example

    def render(self, messages, *, tools=None, variables=None, **options):
        talk = normalise(messages, Habits(text_arguments=False, null_content=True))
        text = json.dumps([talk, variables, options], sort_keys=True) + json.dumps(tools)
        tokens = self.tokenizer.encode(text)
        return replace(self.example, tokens=tuple(tokens), stable_len=len(tokens))


@pytest.fixture
def tokens(service, template, engine):
    """The tokens that a body of a route becomes."""
    example = template.render([{"role": "user", "content": ""}])
    model = replace(service.model, context=10**6)
    everything = Everything(service.tokenizer, example)
    app = create_app(Lobby(replace(service, template=everything, model=model)))

    async def post(path, body):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as caller:
            return await caller.post(path, json=body)

    def ask(path, **body):
        answer = asyncio.run(post(path, body))
        assert answer.status_code == 200, answer.text
        return engine.requests[-1].tokens

    return ask


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
name = st.sampled_from(["look", "see_it", "mcp__a__b"])
call = st.tuples(name, st.dictionaries(text, st.integers() | text, max_size=2), text)
# A turn: what the user said, then rounds of (reasoning, text, calls with results), and the end.
rounds = st.lists(st.tuples(text, text, st.lists(call, min_size=1, max_size=3)), max_size=2)
turn = st.tuples(st.sampled_from(["user", "developer", "system"]), text, rounds, text, text)


def both(turns):
    """A talk as chat's messages, and as items."""
    messages, items, number = [], [], 0
    for role, said, work, thought, answer in turns:
        messages.append({"role": role, "content": said})
        items.append({"role": role, "content": [{"type": "input_text", "text": said}]})
        for reasoning, content, calls in [*work, (thought, answer, [])]:
            message = {"role": "assistant", "content": content or None}
            if reasoning:
                message["reasoning_content"] = reasoning
                piece = {"type": "reasoning_text", "text": reasoning}
                items.append({"type": "reasoning", "id": "r", "summary": [], "content": [piece]})
            if content or not calls:
                message["content"] = content
                part = {"type": "output_text", "text": content, "annotations": []}
                items.append({"type": "message", "role": "assistant", "content": [part]})
            messages.append(message)
            results = []
            for function, arguments, result in calls:
                number += 1
                arguments = json.dumps(arguments)
                known = {"call_id": f"c{number}"}
                items.append(
                    {"type": "function_call", "name": function, "arguments": arguments, **known}
                )
                results.append({"type": "function_call_output", "output": result, **known})
                message.setdefault("tool_calls", []).append(
                    {
                        "id": f"c{number}",
                        "type": "function",
                        "function": {"name": function, "arguments": arguments},
                    }
                )
            items += results
            for each in results:
                messages.append(
                    {"role": "tool", "tool_call_id": each["call_id"], "content": each["output"]}
                )
    return messages, items


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(turns=st.lists(turn, min_size=1, max_size=3), effort=st.sampled_from([None, "low", "none"]))
def test_a_talk_has_the_same_tokens_through_either_api(tokens, turns, effort):
    messages, items = both(turns)
    function = {"name": "look", "description": "d", "parameters": {"type": "object"}}
    chat = tokens(
        "/v1/chat/completions",
        messages=messages,
        tools=[{"type": "function", "function": function}],
        reasoning_effort=effort,
    )
    assert chat == tokens(
        "/v1/responses",
        input=items,
        tools=[{"type": "function", **function}, {"type": "web_search"}],
        reasoning={"effort": effort, "summary": "auto"},
        store=False,
    )


def test_input_as_text_and_instructions(tokens):
    system = {"role": "system", "content": "be kind"}
    chat = tokens("/v1/chat/completions", messages=[system, {"role": "user", "content": "hi"}])
    assert chat == tokens("/v1/responses", input="hi", instructions="be kind")
    assert chat == tokens(
        "/v1/responses",
        input=[{"role": "developer", "content": "be kind"}, {"role": "user", "content": "hi"}],
    )


@pytest.mark.parametrize(
    "item",
    [
        {"content": [{"type": "reasoning_text", "text": "Hm"}], "summary": [], "status": None},
        {"content": [{"type": "reasoning_text", "text": "H"}, {"type": "x", "text": "m"}]},
        {"summary": [{"type": "summary_text", "text": "Hm"}], "encrypted_content": "gAAAA"},
        {"summary": [{"type": "summary_text", "text": "short"}], "encrypted_content": sealed("Hm")},
        {"summary": [], "content": None, "encrypted_content": sealed("Hm")},
    ],
)
def test_reasoning_items_are_reasoning_content(tokens, item):
    user = {"role": "user", "content": "hi"}
    said = {"role": "assistant", "content": "So", "reasoning_content": "Hm"}
    items = [
        user,
        {"type": "reasoning", "id": "rs_1", **item},
        {"role": "assistant", "content": "So"},
    ]
    assert tokens("/v1/chat/completions", messages=[user, said]) == tokens(
        "/v1/responses", input=items
    )


def test_a_reasoning_item_without_a_text_is_nothing(tokens):
    user, said = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "So"}
    empty = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    assert tokens("/v1/chat/completions", messages=[user, said]) == tokens(
        "/v1/responses", input=[user, empty, said]
    )


def test_messages_side_by_side_stay_two(tokens):
    talk = [{"role": "user", "content": "hi"}, *[{"role": "assistant", "content": "a"}] * 2]
    assert tokens("/v1/chat/completions", messages=talk) == tokens("/v1/responses", input=talk)


def test_text_before_and_after_a_call_is_one_message(tokens):
    """As chat completions joins it."""
    user = {"role": "user", "content": "hi"}
    function = {"name": "look", "arguments": "{}"}
    made = {"id": "c", "type": "function", "function": function}
    said = {"role": "assistant", "content": "ab", "tool_calls": [made]}
    items = [
        user,
        {"role": "assistant", "content": "a"},
        {"type": "function_call", "call_id": "c", **function},
        {"role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
    ]
    assert tokens("/v1/chat/completions", messages=[user, said]) == tokens(
        "/v1/responses", input=items
    )


def test_outputs_in_parts(respond, template):
    output = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    item = {"type": "function_call_output", "call_id": "c", "output": output}
    respond(input=[call, item])
    assert template.seen[-1]["messages"][1] == {
        "role": "tool",
        "tool_call_id": "c",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    }


@given(st.text())
def test_a_seal_can_be_opened(words):
    clean = words.encode("utf-8", "replace").decode()
    assert unsealed(sealed(words)) == clean


@pytest.mark.parametrize("value", [None, "", "gAAAA", "strata:!", "strata:/w=="])
def test_other_seals_are_left_alone(value):
    assert unsealed(value) is None


def test_encrypted_content_comes_only_when_it_is_asked_for(respond, engine, speak):
    engine.script = speak("<think>Hm é</think>Hi")
    item = respond(include=["reasoning.encrypted_content"]).json()["output"][0]
    assert unsealed(item["encrypted_content"]) == "Hm é"
    assert "encrypted_content" not in respond().json()["output"][0]


# --------------------------------------------------------------------- tools


def test_tools_become_chats_and_others_are_ignored(respond, template, engine):
    tools = [
        {"type": "web_search"},
        {"type": "custom", "name": "patch", "format": {"type": "grammar"}},
        {"strict": True, "type": "function", "parameters": {"type": "object"}, "name": "look"},
        {"type": "local_shell"},
    ]
    answer = respond(tools=tools).json()
    function = {"name": "look", "parameters": {"type": "object"}, "strict": True}
    assert template.seen[-1]["tools"] == [{"type": "function", "function": function}]
    assert list(template.seen[-1]["tools"][0]["function"]) == ["name", "parameters", "strict"]
    assert answer["tools"] == tools


def test_functions_of_a_namespace(respond, template, engine, speak):
    """The model has them under one name; the client gets back the two that it gave."""
    inner = {"type": "function", "name": "make", "parameters": {}}
    tools = [
        {
            "type": "namespace",
            "name": "mcp__cal",
            "description": "d",
            "tools": [inner, {"type": "x"}],
        },
        {"type": "namespace", "name": "mcp__doc__", "tools": [inner]},
    ]
    engine.script = speak("<call mcp__cal__make>{}</call><call other>{}</call>")
    output = respond(tools=tools).json()["output"]
    names = [tool["function"]["name"] for tool in template.seen[-1]["tools"]]
    assert names == ["mcp__cal__make", "mcp__doc__make"]
    assert (output[0]["name"], output[0]["namespace"]) == ("make", "mcp__cal")
    assert output[1]["name"] == "other" and "namespace" not in output[1]
    respond(input=["hi", *output][1:], tools=tools)
    (message,) = template.seen[-1]["messages"]
    assert message["tool_calls"][0]["function"]["name"] == "mcp__cal__make"
    assert flat(None, "a") == flat("", "a") == "a"


def asked(monkeypatch, respond, **fields):
    """The ChatRequest of a body."""
    from strata.server.responses import routes

    seen, plain = [], routes.chat_job

    def job(service, chat, *rest):
        seen.append(chat)
        return plain(service, replace(chat, format=None, tool_choice="auto"), *rest)

    monkeypatch.setattr(routes, "chat_job", job)
    answer = respond(**fields)
    assert answer.status == 200, answer.json()
    return seen[0]


LOOK, SEE = ({"type": "function", "name": name, "parameters": {}} for name in ("look", "see"))


@pytest.mark.parametrize(
    ("choice", "expected", "names"),
    [
        (None, "auto", ["look", "see"]),
        ("auto", "auto", ["look", "see"]),
        ("none", "none", ["look", "see"]),
        ("required", "required", ["look", "see"]),
        ({"type": "function", "name": "see"}, "see", ["look", "see"]),
        ({"type": "allowed_tools", "mode": "auto", "tools": [SEE]}, "auto", ["see"]),
        ({"type": "allowed_tools", "mode": "required", "tools": [LOOK]}, "required", ["look"]),
    ],
)
def test_tool_choice(monkeypatch, respond, choice, expected, names):
    chat = asked(monkeypatch, respond, tools=[LOOK, SEE], tool_choice=choice)
    assert chat.tool_choice == expected
    assert [tool["function"]["name"] for tool in chat.tools] == names


def test_what_else_a_chat_is_asked(monkeypatch, respond):
    chat = asked(monkeypatch, respond)
    assert chat.parallel and chat.format is None and chat.thinking is None
    assert chat.max_tokens is None and chat.logprobs is None
    chat = asked(
        monkeypatch,
        respond,
        parallel_tool_calls=False,
        max_output_tokens=9,
        reasoning={"effort": "none"},
        top_logprobs=2,
    )
    assert not chat.parallel and chat.thinking is False
    assert (chat.max_tokens, chat.logprobs) == (9, 2)
    chat = asked(monkeypatch, respond, chat_template_kwargs={"enable_thinking": True})
    assert chat.thinking is True and chat.variables == {"enable_thinking": True}
    chat = asked(monkeypatch, respond, include=["message.output_text.logprobs"])
    assert chat.logprobs == 0


@pytest.mark.parametrize(
    ("wanted", "kind", "value"),
    [
        ({"type": "json_object"}, "json_object", None),
        (
            {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True},
            "json_schema",
            {"type": "object"},
        ),
    ],
)
def test_text_format(monkeypatch, respond, wanted, kind, value):
    chat = asked(monkeypatch, respond, text={"format": wanted, "verbosity": "low"})
    assert (chat.format.kind, chat.format.value) == (kind, value)
    assert chat.format.field.startswith("text.format")


def test_sampling(respond, engine):
    answer = respond(temperature=0.25, top_p=0.5).json()
    sampling = engine.requests[-1].sampling
    assert (sampling.temperature, sampling.top_p) == (0.25, 0.5)
    assert (answer["temperature"], answer["top_p"]) == (0.25, 0.5)
    assert respond().json()["temperature"] == 0.7  # the model's own


def test_what_clients_send_beside_is_tolerated(respond):
    answer = respond(
        background=False,
        client_metadata={"a": "b"},
        include=["reasoning.encrypted_content", "file_search_call.results"],
        max_tool_calls=3,
        prompt_cache_key="k",
        prompt_cache_retention="24h",
        safety_identifier="s",
        service_tier="auto",
        stream_options={"include_obfuscation": False},
        truncation="auto",
        user="u",
    )
    assert answer.status == 200
    echoed = {"prompt_cache_key": "k", "safety_identifier": "s", "user": "u"}
    assert echoed.items() <= answer.json().items()


# -------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"background": True}, "background", "leave it out"),
        ({"conversation": "conv_1"}, "conversation", "previous_response_id"),
        ({"prompt": {"id": "p"}}, "prompt", "instructions"),
        ({"input": None}, "input", "required"),
        ({"input": []}, "input", "empty"),
        ({"input": 3}, "input", "string"),
        ({"input": [{"role": "bot", "content": "a"}]}, "input.0.role", "'user'"),
        ({"input": [{"role": "user"}]}, "input.0.content", "required"),
        (
            {"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]},
            "input.0.call_id",
            "required",
        ),
        (
            {"input": [{"type": "function_call_output", "call_id": "c"}]},
            "input.0.output",
            "required",
        ),
        ({"input": [{"type": "computer_call"}]}, "input.0.type", "supported: message"),
        ({"input": [{"type": ["a"]}]}, "input.0.type", "string"),
        (
            {
                "input": [
                    {"role": "user", "content": "a"},
                    {"role": "user", "content": [{"type": "input_image"}]},
                ]
            },
            "input.1.content.0.type",
            "reads text",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
            "input.0.content.0.text",
            "string",
        ),
        ({"input": [{"type": "item_reference", "id": "msg_x"}]}, "input.0.id", "not remembered"),
        (
            {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
            "input",
            "begin with a tool",
        ),
        ({"tools": [{"type": "function"}]}, "tools.0.name", "must have a name"),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]},
            "tools.0.tools.0.name",
            "must have a name",
        ),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": 3}]},
            "tools.0.tools",
            "list of tools",
        ),
        ({"tool_choice": {"type": "function", "name": ["f"]}}, "tool_choice", "allowed_tools"),
        ({"tool_choice": "any"}, "tool_choice", "allowed_tools"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice", "allowed_tools"),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "all", "tools": []}},
            "tool_choice",
            "allowed_tools",
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "n"}}},
            "text.format.schema",
            "required",
        ),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type", "'json_schema'"),
        ({"text": {"format": {"type": "json_object"}}, "regex": "a"}, "text.format", "both"),
        ({"reasoning": {"effort": "wild"}}, "reasoning.effort", "'high'"),
        ({"max_output_tokens": 0}, "max_output_tokens", "greater"),
        ({"n": 2}, "n", "1"),
        ({"previous_response_id": "resp_x"}, "previous_response_id", "remembered"),
        ({"input": "a" * 5000}, "input", "context holds"),
    ],
)
def test_refused(respond, engine, fields, field, says):
    answer = respond(**fields)
    assert answer.status == (404 if says == "not remembered" else 400), answer.json()
    assert answer.error["param"] == field
    assert says in answer.error["message"]
    assert not engine.requests


# ----------------------------------------------------------------- the memory


def test_references(respond, template, call, engine, speak):
    engine.script = speak("<think>Hm</think>Hi<call f>{}</call>")
    output = respond(input="one").json()["output"]
    references = [{"type": "item_reference", "id": item["id"]} for item in output]
    references[1].pop("type")
    result = {"type": "function_call_output", "call_id": output[2]["call_id"], "output": "7"}
    talk = [{"role": "user", "content": "one"}]
    assert respond(input=[*talk, *references, result]).status == 200
    by_reference = template.seen[-1]["messages"]
    respond(input=[*talk, *output, result], store=False)
    assert template.seen[-1]["messages"] == by_reference
    assert by_reference[1]["reasoning_content"] == "Hm"


def test_an_item_of_the_previous_response_is_not_taken_twice(respond):
    first = respond(input="one").json()
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    answer = respond(input=[reference], previous_response_id=first["id"])
    assert answer.status == 400 and answer.error["param"] == "input.0.id"


def test_an_answer_may_be_asked_for_without_input(respond, template):
    first = respond(input="one").json()
    assert respond(input=None, previous_response_id=first["id"]).status == 200
    assert len(template.seen[-1]["messages"]) == 2


def test_an_error_names_the_place_in_this_input(respond):
    first = respond(input="one").json()
    bad = {"role": "user", "content": [{"type": "input_image"}]}
    answer = respond(input=[bad], previous_response_id=first["id"])
    assert answer.error["param"] == "input.0.content.0.type"


def test_remembered_items_are_openais(respond, call):
    items = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "input_text", "text": "u"}], "id": "msg_mine"},
        {"role": "user", "content": "again", "id": "msg_mine"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"role": "assistant", "content": "yes"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "7"},
    ]
    made = respond(input=items).json()
    page = call("GET", f"/v1/responses/{made['id']}/input_items?order=asc").json()
    for item in page["data"]:
        ITEM.validate_python(item)
    ids = [item["id"] for item in page["data"]]
    assert len(set(ids)) == len(items) and ids[1] == "msg_mine"
    assert (page["first_id"], page["last_id"], page["has_more"]) == (ids[0], ids[-1], False)
    after = call("GET", f"/v1/responses/{made['id']}/input_items?order=asc&after={ids[5]}").json()
    assert [item["id"] for item in after["data"]] == ids[6:]
    prefixes = [name.partition("_")[0] for name in ids]
    assert prefixes == ["msg", "msg", "msg", "rs", "msg", "msg", "fc", "fco"]


@pytest.mark.parametrize(
    ("query", "field"),
    [("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("after=y", "after")],
)
def test_bad_pages_of_items(respond, call, query, field):
    made = respond().json()
    answer = call("GET", f"/v1/responses/{made['id']}/input_items?{query}")
    assert answer.status == 400 and answer.error["param"] == field


def test_a_remembered_response_is_not_streamed(respond, call):
    made = respond().json()
    answer = call("GET", f"/v1/responses/{made['id']}?stream=true")
    assert answer.status == 400 and answer.error["param"] == "stream"


def test_each_key_has_its_own(make_call):
    call = make_call(api_keys=("one", "two"))
    mine, other = ({"authorization": f"Bearer {key}"} for key in ("one", "two"))
    made = call("POST", "/v1/responses", {"input": "hi"}, headers=mine).json()
    path = f"/v1/responses/{made['id']}"
    for method, where in (("GET", path), ("GET", f"{path}/input_items"), ("DELETE", path)):
        assert call(method, where, headers=other).status == 404
    previous = {"input": "hi", "previous_response_id": made["id"]}
    assert call("POST", "/v1/responses", previous, headers=other).status == 400
    reference = {"input": [{"type": "item_reference", "id": made["output"][0]["id"]}]}
    assert call("POST", "/v1/responses", reference, headers=other).status == 404
    assert call("POST", "/v1/responses", reference, headers=mine).status == 200
    assert call("GET", path, headers=mine).json() == made
