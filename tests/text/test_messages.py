"""What messages may look like, and that nothing but a RequestError comes of the rest."""

from __future__ import annotations

from typing import Any

import pytest
from conversations import CHATML
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import Pair

from strata.text.messages import Habits, normalise, without_system
from strata.text.template import ChatTemplate
from strata.types import RequestError

PLAIN = Habits(text_arguments=False, null_content=False)


def one(message: dict[str, Any], habits: Habits = PLAIN) -> dict[str, Any]:
    (found,) = normalise([message], habits)
    return found


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", ""),
        ("x", "x"),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a"}], "a"),
        ([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, "c"], "a\nb\nc"),
        ([{"type": "refusal", "refusal": "no"}, {"text": "d"}], "no\nd"),
    ],
)
def test_content(content: Any, expected: str) -> None:
    assert one({"role": "user", "content": content})["content"] == expected


@pytest.mark.parametrize(
    ("messages", "field", "message"),
    [
        ([], "messages", "at least one"),
        (None, "messages", "at least one"),
        ("x", "messages", "at least one"),
        ([1], "messages.0", "role and content"),
        ([{"content": "x"}], "messages.0.role", "None is not supported; supported: system"),
        ([{"role": "user"}, {"role": "wizard"}], "messages.1.role", "wizard"),
        ([{"role": ["user"]}], "messages.0.role", "not supported"),
        ([{"role": "user", "content": 5}], "messages.0.content", "must be a string"),
        ([{"role": "user", "content": {"text": "x"}}], "messages.0.content", "must be a string"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}],
            "messages.0.content.0",
            "'image_url' is not supported: this model reads text",
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages.0.content.0.text", "string"),
        ([{"role": "user", "content": [7]}], "messages.0.content.0", "not supported"),
        ([{"role": "user", "content": [{"type": []}]}], "messages.0.content.0", "not supported"),
        ([{"role": "assistant", "tool_calls": 3}], "messages.0.tool_calls", "must be a list"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages.0.tool_calls.0", "name"),
    ],
)
def test_refusals_name_the_field(messages: Any, field: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        normalise(messages, PLAIN)
    assert caught.value.field == field and caught.value.status == 400


def test_roles_and_reasoning_have_other_names() -> None:
    assert one({"role": "developer", "content": "x"})["role"] == "system"
    assert one({"role": "function", "content": "x"})["role"] == "tool"
    for name in ("reasoning", "thinking", "reasoning_content"):
        found = one({"role": "assistant", "content": "x", name: "why"})
        assert found["reasoning_content"] == found["thinking"] == "why"
    assert "reasoning_content" not in one({"role": "assistant", "reasoning": None, "content": "x"})


def test_tool_call_arguments() -> None:
    def arguments(given: Any, habits: Habits = PLAIN) -> Any:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": given}}
        found = one({"role": "assistant", "content": None, "tool_calls": [call]}, habits)
        return found["tool_calls"][0]["function"]["arguments"]

    assert arguments('{"a": [1, "é"]}') == {"a": [1, "é"]}
    assert arguments({"a": 1}) == {"a": 1}
    assert arguments("") == arguments(None) == {}
    for text in ("[1]", "nonsense", '"x"', "{" * 100_000, "9" * 5000):
        assert arguments(text) == text
    taking_text = Habits.of("{% if tool_call.arguments is string %}")
    assert arguments('{"a":1}', taking_text) == '{"a":1}'


def test_null_content_for_templates_that_ask_for_it() -> None:
    call = {"function": {"name": "f", "arguments": {}}}
    asking = Habits.of("{% if message['content'] is none %}")
    assert asking.null_content and Habits.of("{% if m.content is not none %}").null_content
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert one(calling, asking)["content"] is None and one(calling)["content"] == ""
    assert one({"role": "assistant", "content": None}, asking)["content"] == ""


def test_moving_system_messages_keeps_every_text_in_order() -> None:
    @settings(max_examples=300, deadline=None)
    @given(st.lists(st.sampled_from("sua"), min_size=1, max_size=10), st.booleans())
    def check(roles: list[str], keep_first: bool) -> None:
        names = {"s": "system", "u": "user", "a": "assistant"}
        messages = [{"role": names[r], "content": f"<{i}>"} for i, r in enumerate(roles)]
        moved = without_system(messages, keep_first)
        joined = "".join(message["content"].replace("\n\n", "") for message in moved)
        assert joined == "".join(message["content"] for message in messages)
        late = moved[1:] if keep_first and roles[0] == "s" else moved
        assert all(message["role"] != "system" for message in late)

    check()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "tool_calls", "function", "name"])
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
_shaped = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "tool", "developer"])},
    optional={
        "content": st.text(max_size=8) | json_values,
        "tool_calls": json_values
        | st.lists(st.fixed_dictionaries({"function": st.fixed_dictionaries({"name": st.text()})})),
        "reasoning_content": json_values,
        "name": json_values,
    },
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(_shaped | json_values, max_size=4) | json_values,
    json_values | st.lists(st.fixed_dictionaries({"function": json_values})),
    st.none() | st.dictionaries(st.text(max_size=4), json_values, max_size=3),
    st.booleans(),
)
def test_any_json_is_rendered_or_refused(
    bytes_pair: Pair, messages: Any, tools: Any, variables: Any, continued: bool
) -> None:
    chat = _template(bytes_pair)
    try:
        prompt = chat.render(
            messages, tools=tools, variables=variables, continue_final_message=continued
        )
    except RequestError as error:
        assert error.status == 400 and str(error)
        return
    assert all(0 <= token < bytes_pair.ours.vocab_size for token in prompt.tokens)
    assert 0 <= prompt.stable_len <= len(prompt.tokens)
    assert all(0 < anchor < len(prompt.tokens) for anchor in prompt.anchors)


_made: dict[int, ChatTemplate] = {}


def _template(pair: Pair) -> ChatTemplate:
    return _made.setdefault(id(pair), ChatTemplate(pair.ours, CHATML))


def test_deep_and_foreign_values_are_refused(bytes_pair: Pair) -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    chat = _template(bytes_pair)
    talk = [{"role": "user", "content": "x"}]
    with pytest.raises(RequestError, match="deeper"):
        chat.render([{"role": "user", "content": "x", "extra": deep}])
    with pytest.raises(RequestError, match="deeper"):
        chat.render(talk, tools=[{"function": {"name": "f", "parameters": deep}}])
    with pytest.raises(RequestError, match="no JSON value"):
        chat.render(talk, variables={"x": object()})
    for name in ("messages", "tools", "add_generation_prompt"):
        with pytest.raises(RequestError, match=name):
            chat.render(talk, variables={name: 1})
