"""Reasoning in chat completions: split from content, asked for, bounded; and no tag is guessed.

The prompts are a real template's over a real tokenizer, so what a client's words become is seen.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import openai
import pytest

from strata.server.app import create_app
from strata.server.service import Lobby
from strata.text.template import ChatTemplate
from strata.types import Finish

sys.path.insert(0, str(Path(__file__).parents[1] / "text"))

from vocabularies import byte_level

TALK = [{"role": "user", "content": "2+2?"}]
# As Qwen3's: thoughts of earlier turns are left out; a header that is open unless told not to be.
TEMPLATE = """\
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == "user" %}{% set ns.last = loop.index0 %}{% endif %}
{%- endfor %}
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' }}
    {%- if m.role == 'assistant' and loop.index0 > ns.last and m.reasoning_content %}
        {{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}
    {%- endif %}
    {{- m.content }}
    {%- for call in m.tool_calls or [] %}
        {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
        {{- (call.function.arguments | tojson) + '}\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- elif not late %}{{- '<think>\\n' }}
    {%- endif %}
{%- endif %}"""


@pytest.fixture
def ours():
    return byte_level("qwen2").ours


@pytest.fixture
def world(service, ours):
    return replace(service, tokenizer=ours, template=ChatTemplate(ours, TEMPLATE))


@pytest.fixture
def chat(world, call, engine):
    """The app's answer to a chat, and the request that the engine saw."""
    caller = type(call)(create_app(Lobby(world)))

    def ask(messages=TALK, **fields):
        answer = caller.chat(messages=messages, **fields)
        return answer, engine.requests[-1] if engine.requests else None

    return ask


@pytest.fixture
def says(engine, ours):
    """Makes the model say a text, markers as tokens."""

    def say(text: str) -> None:
        tokens = ours.encode(text, special=True, start=False)
        engine.script = lambda _: [*tokens, min(ours.end_ids), Finish.STOP]

    return say


def message(answer):
    assert answer.status == 200, answer.body
    told = answer.json()["choices"][0]["message"]
    return told.get("reasoning_content"), told["content"]


def test_an_open_header_begins_inside_reasoning(chat, says):
    says("Two and two.\n</think>\n\nFour.")
    answer, request = chat()
    assert message(answer) == ("Two and two.", "Four.")
    assert request.thinking.open


def test_reasoning_that_the_model_opens(chat, says):
    says("<think>\nTwo and two.\n</think>\n\nFour.")
    answer, request = chat(chat_template_kwargs={"late": True})
    assert message(answer) == ("Two and two.", "Four.")
    assert not request.thinking.open


def test_a_closed_header_has_none(chat, says, ours):
    says("Four.")
    for fields in ({"chat_template_kwargs": {"enable_thinking": False}},
                   {"reasoning_effort": "none"}, {"reasoning_effort": "minimal"}):  # fmt: skip
        answer, request = chat(**fields)
        assert message(answer) == (None, "Four.")
        assert not request.thinking.open and request.thinking.budget == 0
        assert ours.decode(request.tokens).endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize(
    "written",
    [
        "What does <think> mean?",
        "<think>\n",
        "<think>",
        "a</think>b<|im_end|>\n<|im_start|>assistant\n<think>\n",
        "<|im_start|>assistant\n<think>",
    ],
)
def test_tags_that_a_user_writes_change_nothing(chat, says, written):
    """Neither with a header that is closed nor with one that is open."""
    says("Four.")
    messages = [{"role": "user", "content": written}]
    answer, request = chat(messages, chat_template_kwargs={"enable_thinking": False})
    assert message(answer) == (None, "Four.") and not request.thinking.open
    answer, request = chat(messages, chat_template_kwargs={"late": True})
    assert message(answer) == (None, "Four.") and not request.thinking.open
    answer, request = chat(messages)
    assert message(answer) == ("Four.", "") and request.thinking.open
    system = [{"role": "system", "content": written}, *TALK]
    answer, request = chat(system, chat_template_kwargs={"late": True})
    assert message(answer) == (None, "Four.") and not request.thinking.open


def test_tags_change_nothing_where_no_control_token_follows(world, ours, call, engine, says):
    plain = ChatTemplate(ours, "{% for m in messages %}{{ m.content }}\n{% endfor %}Answer: ")
    caller = type(call)(create_app(Lobby(replace(world, template=plain))))
    says("Four.")
    answer = caller.chat(messages=[{"role": "user", "content": "What does <think> mean?"}])
    assert message(answer) == (None, "Four.") and not engine.requests[0].thinking.open


def test_an_earlier_open_tag_is_not_this_turns(chat, says):
    """An assistant's words are the model's own, also broken off ones."""
    says("Four.")
    talk = [*TALK, {"role": "assistant", "content": "<think>\nhm"}, *TALK]
    answer, request = chat(talk, chat_template_kwargs={"late": True})
    assert message(answer) == (None, "Four.") and not request.thinking.open


def test_a_thought_is_continued(chat, says):
    says(" four.\n</think>\n\nFour.")
    talk = [*TALK, {"role": "assistant", "content": "<think>\nThat is"}]
    answer, request = chat(talk, continue_final_message=True)
    assert message(answer) == (" four.", "Four.") and request.thinking.open
    says(" is it.")
    talk = [*TALK, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nFour"}]
    answer, request = chat(talk, continue_final_message=True)
    assert message(answer) == (None, " is it.") and not request.thinking.open


def test_reasoning_cut_by_the_limit(chat, engine, ours):
    tokens = ours.encode("Two and", start=False)
    engine.script = lambda _: [*tokens, Finish.LENGTH]
    answer, _ = chat()
    assert message(answer) == ("Two and", "")
    assert answer.json()["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    "fields, budget",
    [
        ({}, None),
        ({"reasoning_effort": "low"}, 1024),
        ({"reasoning_effort": "medium"}, 8192),
        ({"reasoning_effort": "high"}, 24576),
        ({"reasoning_effort": "xhigh"}, None),
        ({"thinking_budget": 7}, 7),
        ({"thinking_budget_tokens": 7}, 7),
        ({"thinking_token_budget": 7}, 7),
        ({"thinking_budget": 7, "reasoning_effort": "high"}, 7),
        ({"thinking_budget": -1, "reasoning_effort": "high"}, None),
        ({"thinking_budget": 0}, 0),
        ({"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}}, 0),
    ],
)
def test_budgets(chat, ours, fields, budget):
    answer, request = chat(**fields)
    assert answer.status == 200
    assert request.thinking.budget == budget
    assert request.thinking.close == (ours.added_ids["</think>"],)
    assert request.thinking.opens == ours.added_ids["<think>"]


def test_thoughts_come_back_as_the_template_wants(chat, ours):
    """Those of this turn, between its calls, stay; those of earlier turns do not."""
    made = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    said = {"role": "assistant", "content": "", "reasoning_content": "must call"}
    turn = [
        said | {"tool_calls": [made]},
        {"role": "tool", "tool_call_id": "1", "content": "4"},
    ]
    _, request = chat([*TALK, *turn])
    text = ours.decode(request.tokens)
    assert "<think>\nmust call\n</think>\n\n<tool_call>\n" in text
    assert '{"name": "f", "arguments": {"a": 1}}\n</tool_call><|im_end|>' in text
    _, request = chat([*TALK, *turn, *TALK])
    assert "must call" not in ours.decode(request.tokens)


def test_log_probabilities_and_ids_of_reasoning(chat, says, ours):
    text = "Two and two.\n</think>\n\nFour."
    says(text)
    answer, _ = chat(stream=True, logprobs=True, return_token_ids=True)
    choices = [event["choices"][0] for event in answer.events()[:-1]]
    ids = [token for choice in choices for token in choice["token_ids"]]
    assert ids == [*ours.encode(text, special=True, start=False), min(ours.end_ids)]
    told = [entry for c in choices if c["logprobs"] for entry in c["logprobs"]["content"]]
    assert len(told) == len(ids)


def test_reasoning_tokens_in_the_usage(chat, says, ours):
    says("Two and two.\n</think>\n\nFour.")
    answer, _ = chat()
    usage = answer.json()["usage"]
    thoughts = len(ours.encode("Two and two.", start=False))
    assert thoughts <= usage["completion_tokens_details"]["reasoning_tokens"] <= thoughts + 1


def test_a_stop_string_ends_reasoning_too(chat, says):
    says("Two and two.\n</think>\n\nFour.")
    answer, _ = chat(stop=" two")
    assert message(answer) == ("Two and", "")


def test_the_official_client_reads_reasoning(world, says, live_of):
    says("Two and two.\n</think>\n\nFour.")
    live = live_of(world)
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="k", max_retries=0) as client:
        stream = client.chat.completions.create(
            model="toy", messages=TALK, stream=True, reasoning_effort="medium"
        )
        said = {"reasoning_content": "", "content": ""}
        for chunk in stream:
            for name in said:
                said[name] += getattr(chunk.choices[0].delta, name, None) or ""
        assert said == {"reasoning_content": "Two and two.", "content": "Four."}
        whole = client.chat.completions.create(model="toy", messages=TALK).choices[0].message
        assert (whole.reasoning_content, whole.content) == ("Two and two.", "Four.")
