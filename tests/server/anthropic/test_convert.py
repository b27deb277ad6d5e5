"""What a Messages body asks for: the chat that reaches the template, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from strata.server.anthropic import MessagesBody, chat_request
from strata.server.anthropic.schema import UserMessage
from strata.server.body import parse
from strata.server.talk import Format
from strata.types import RequestError

TOOL = {"name": "find", "description": "Finds.", "input_schema": {"type": "object"}}
MARK = {"cache_control": {"type": "ephemeral"}}


@pytest.fixture
def ask(service):
    def asked(**body):
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9} | body
        return chat_request(service, parse(MessagesBody, json.dumps(body).encode()))

    return asked


def text(value, **more):
    return {"type": "text", "text": value, **more}


def test_a_whole_talk(ask):
    chat = ask(
        system=[text("one", **MARK), text("two")],
        messages=[
            {"role": "user", "content": [text("look"), text("there")]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I ", "signature": "x"},
                    {"type": "redacted_thinking", "data": "secret"},
                    {"type": "thinking", "thinking": "look", "signature": ""},
                    text("Look"),
                    text("ing."),
                    {"type": "tool_use", "id": "a", "name": "find", "input": {"q": 1}},
                    {"type": "tool_use", "id": "b", "name": "find", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "b",
                        "content": [
                            text("x"),
                            text("y"),
                            {"type": "tool_reference", "tool_name": "find"},
                        ],
                        "is_error": True,
                        **MARK,
                    },
                    {"type": "tool_result", "tool_use_id": "c"},
                    text("go on", **MARK),
                ],
            },
            {"role": "system", "content": "be brief"},
            {"role": "assistant", "content": "Yes"},
            {"role": "system", "content": [text("briefer", **MARK)]},
            {"role": "user", "content": []},
        ],
        tools=[TOOL, {"type": "web_search_20250305", "name": "web_search"}],
    )
    assert chat.messages == [
        {"role": "system", "content": [text("one"), text("two")]},
        {"role": "user", "content": [text("look"), text("there")]},
        {
            "role": "assistant",
            "content": "Looking.",
            "reasoning_content": "I look",
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "find", "arguments": {"q": 1}},
                },
                {"id": "b", "type": "function", "function": {"name": "find", "arguments": {}}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {
            "role": "tool",
            "tool_call_id": "b",
            "content": "Error: x\ny\nfind",
            "cache_anchor": True,
        },
        {"role": "tool", "tool_call_id": "c", "content": ""},
        {"role": "user", "content": [text("go on")], "cache_anchor": True},
        {"role": "system", "content": "be brief"},
        {"role": "assistant", "content": "Yes"},
        {"role": "system", "content": [text("briefer")], "cache_anchor": True},
        {"role": "user", "content": ""},
    ]
    function = {"name": "find", "description": "Finds.", "parameters": {"type": "object"}}
    assert chat.tools == [{"type": "function", "function": function}]
    assert (chat.tool_choice, chat.parallel, chat.continued) == ("auto", True, False)
    assert (chat.thinking, chat.budget, chat.format, chat.variables) == (None, None, None, {})


BILLING = "x-anthropic-billing-header: cc_version=2.1.197.766; cc_entrypoint=sdk-cli;"


@pytest.mark.parametrize(
    ("system", "left"),
    [
        ([text(BILLING), text("You are")], ["You are"]),
        ([text(BILLING)], []),
        ([text(f"{BILLING}\n\nYou are\n\nkind")], ["You are\n\nkind"]),
        (f"{BILLING}\nYou are", "You are"),
        ([text("You are"), text(BILLING)], ["You are"]),
        (f"No {BILLING}", f"No {BILLING}"),
        ("", []),
        ([], []),
    ],
)
def test_the_billing_header_is_dropped(ask, system, left):
    first = ask(system=system).messages[0]
    content = left if isinstance(left, str) else [text(each) for each in left]
    kept = {"role": "system", "content": content}
    assert first == (kept if left else {"role": "user", "content": "hi"})


@pytest.mark.parametrize(
    ("choice", "tool_choice", "parallel"),
    [
        ({"type": "auto"}, "auto", True),
        ({"type": "any"}, "required", True),
        ({"type": "none"}, "none", True),
        ({"type": "tool", "name": "find"}, "find", True),
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto", False),
        ({"type": "any", "disable_parallel_tool_use": False}, "required", True),
    ],
)
def test_tool_choice(ask, choice, tool_choice, parallel):
    chat = ask(tools=[TOOL], tool_choice=choice)
    assert (chat.tool_choice, chat.parallel) == (tool_choice, parallel)


@pytest.mark.parametrize(
    ("thinking", "on", "budget"),
    [
        ({"type": "enabled", "budget_tokens": 2048}, True, 2048),
        ({"type": "enabled"}, True, None),
        ({"type": "disabled"}, False, None),
        ({"type": "disabled", "budget_tokens": 2048}, False, None),
        ({"type": "adaptive", "display": "omitted"}, None, None),
        ({"type": "between_tools"}, None, None),
    ],
)
def test_thinking(ask, thinking, on, budget):
    chat = ask(thinking=thinking)
    assert (chat.thinking, chat.budget) == (on, budget)
    assert chat.variables == ({} if on is None else {"enable_thinking": on})


@pytest.mark.parametrize(
    ("effort", "thinking", "budget"),
    [
        ("low", {"type": "adaptive"}, 1024),
        ("high", None, 24576),
        ("max", {"type": "adaptive"}, None),
        ("low", {"type": "enabled", "budget_tokens": 5000}, 5000),
        ("low", {"type": "enabled"}, 1024),
        ("of its own", None, None),
    ],
)
def test_effort(ask, effort, thinking, budget):
    chat = ask(output_config={"effort": effort}, thinking=thinking)
    assert chat.budget == budget and chat.variables["reasoning_effort"] == effort
    assert chat.thinking is (True if thinking and thinking["type"] == "enabled" else None)


def test_output(ask):
    schema = {"type": "object", "properties": {}}
    wanted = {"type": "json_schema", "schema": schema}
    chat = ask(output_config={"effort": "high", "format": wanted})
    assert chat.format == Format("json_schema", schema, "output_config.format.schema")
    assert chat.variables == {"reasoning_effort": "high"}
    assert ask(regex="a+").format == Format("regex", "a+", "regex")
    older = ask(output_format=wanted)
    assert older.format == Format("json_schema", schema, "output_format.schema")
    assert ask(output_config={"effort": None}).variables == {}


def test_sampling(ask):
    chat = ask(
        stop_sequences=["a", "b"], temperature=0.5, top_p=0.25, top_k=7, seed=3, cache_salt="s"
    )
    body = chat.body
    assert (body.stop, body.temperature, body.top_p, body.top_k) == (["a", "b"], 0.5, 0.25, 7)
    assert (body.seed, body.cache_salt, chat.max_tokens) == (3, "s", 9)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("toy", "toy"),
        ("gpt-toy", "gpt-toy"),
        ("claude-opus-4-6", None),
        ("claude-3-5-haiku-latest", None),
        ("other", "other"),
        (None, None),
    ],
)
def test_model(ask, asked, named):
    assert ask(model=asked).body.model == named


def test_a_claude_that_is_served_keeps_its_name(service):
    facts = replace(service.model, aliases=("claude-toy",))
    body = MessagesBody(
        model="claude-toy", max_tokens=1, messages=[UserMessage(role="user", content="")]
    )
    assert chat_request(replace(service, model=facts), body).body.model == "claude-toy"


@pytest.mark.parametrize(
    ("content", "continued"),
    [
        ("The answer is", True),
        ([text("The answer")], True),
        ([{"type": "tool_use", "id": "a", "name": "find", "input": {}}], False),
    ],
)
def test_an_answer_that_was_begun_is_continued(ask, content, continued):
    user = {"role": "user", "content": "hi"}
    assert ask(messages=[user, {"role": "assistant", "content": content}]).continued is continued


def user(*blocks):
    return {"messages": [{"role": "user", "content": list(blocks)}]}


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}
DOCUMENT = {"type": "document", "source": {"type": "text", "data": "x"}}


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"max_tokens": None}, "max_tokens", "integer"),
        ({"messages": []}, "messages", "at least 1"),
        (user(IMAGE), "messages.0.content.0", "'image' of type is not supported here"),
        (user(text("a"), DOCUMENT), "messages.0.content.1", "supported: 'text', 'tool_result'"),
        (
            user({"type": "tool_result", "tool_use_id": "a", "content": [text("a"), IMAGE]}),
            "messages.0.content.0.content.1",
            "'image'",
        ),
        (
            user({"type": "tool_use", "id": "a", "name": "b", "input": {}}),
            "messages.0.content.0",
            "'tool_use'",
        ),
        (user({"type": "text"}), "messages.0.content.0.text", "is required"),
        (user({"text": "a"}), "messages.0.content.0", "must have the field 'type'"),
        (user({"type": "tool_result"}), "messages.0.content.0.tool_use_id", "is required"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages.0", "'tool' of role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content", "is required"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages.0.content", "string"),
        ({"system": [IMAGE]}, "system.0.type", "'text'"),
        ({"tools": [{"name": "a"}]}, "tools.0.input_schema", "is required"),
        ({"tools": [{"input_schema": {}}]}, "tools.0.name", "is required"),
        ({"tools": [{"type": "custom", "name": "a"}]}, "tools.0.input_schema", "is required"),
        ({"tool_choice": {"type": "any"}}, "tool_choice", "no tool"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}},
            "tool_choice.name",
            "find",
        ),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name", "find"),
        ({"tool_choice": {"type": "must"}}, "tool_choice.type", "'auto', 'any'"),
        ({"thinking": {"type": "hard"}}, "thinking.type", "'enabled'"),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens", "1"),
        (
            {"output_config": {"format": {"type": "xml"}}},
            "output_config.format.type",
            "json_schema",
        ),
        ({"output_format": {"type": "json_schema"}}, "output_format.schema", "is required"),
        ({"stop_sequences": [""]}, "stop_sequences.0", "at least 1"),
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"n": 2}, "n", "less than or equal to 1"),
    ],
)
def test_refusals(ask, body, field, words):
    with pytest.raises(RequestError) as caught:
        ask(**body)
    assert caught.value.field == field and caught.value.status == 400
    assert words in str(caught.value)


def test_what_is_not_known_is_ignored(ask):
    chat = ask(
        metadata={"user_id": "u"},
        service_tier="auto",
        container={"skills": []},
        mcp_servers=[{"url": "x"}],
        context_management={"edits": []},
        inference_geo=None,
        tools=[
            {"type": "mcp_toolset", "mcp_server_name": "x"},
            {"type": "bash_20250124", "name": "bash", **MARK},
            {**TOOL, "defer_loading": True, "eager_input_streaming": True, **MARK},
        ],
        messages=[{"role": "user", "content": [text("hi", citations=None)], "id": 3}],
    )
    assert [tool["function"]["name"] for tool in chat.tools] == ["find"]
    assert chat.messages == [{"role": "user", "content": [text("hi")]}]
