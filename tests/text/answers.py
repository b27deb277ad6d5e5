"""Answers in the forms of calls, and what comes out of them, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from strata.text.delta import Delta, Kind
from strata.text.dialects import Dialect, of
from strata.text.segment import Segmenter

# The published templates' way to write an assistant's message, without what stands around it.
XML = """\
{%- for message in messages %}
{%- if message.role == 'assistant' %}
    {{- '<|im_start|>assistant\\n' }}
    {%- set content = (message.content or '') | trim %}
    {%- if message.reasoning_content %}
        {{- '<think>\\n' + message.reasoning_content | trim + '\\n</think>\\n\\n' }}
    {%- endif %}
    {{- content }}
    {%- for tool_call in message.tool_calls or [] %}
        {%- if tool_call.function is defined %}
            {%- set tool_call = tool_call.function %}
        {%- endif %}
        {%- if loop.first %}
            {%- if content %}
                {{- '\\n\\n<tool_call>\\n<function=' + tool_call.name + '>\\n' }}
            {%- else %}
                {{- '<tool_call>\\n<function=' + tool_call.name + '>\\n' }}
            {%- endif %}
        {%- else %}
            {{- '\\n<tool_call>\\n<function=' + tool_call.name + '>\\n' }}
        {%- endif %}
        {%- for args_name, args_value in tool_call.arguments|items %}
            {{- '<parameter=' + args_name + '>\\n' }}
            {%- if args_value is mapping or (args_value is sequence and args_value is not string) %}
                {{- args_value | tojson }}
            {%- else %}
                {{- args_value | string }}
            {%- endif %}
            {{- '\\n</parameter>\\n' }}
        {%- endfor %}
        {{- '</function>\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
"""
HERMES = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role }}
    {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
    {%- for tool_call in message.tool_calls or [] %}
        {%- if tool_call.function is defined %}
            {%- set tool_call = tool_call.function %}
        {%- endif %}
        {{- '\\n<tool_call>\\n{"name": "' }}
        {{- tool_call.name }}
        {{- '", "arguments": ' }}
        {{- tool_call.arguments | tojson }}
        {{- '}\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
"""
LLAMA = """\
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
    {%- if message.tool_calls %}
        {%- set tool_call = message.tool_calls[0].function %}
        {%- if builtin_tools is defined and tool_call.name in builtin_tools %}
            {{- '<|python_tag|>' + tool_call.name + '.call()' }}
        {%- else %}
            {{- '{"name": "' + tool_call.name + '", ' }}
            {{- '"parameters": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}' }}
        {%- endif %}
    {%- else %}
        {{- message.content | trim }}
    {%- endif %}
    {{- '<|eot_id|>' }}
{%- endfor %}
"""

DIALECTS: dict[str, Dialect] = {
    "xml": of(XML, ()),
    "hermes": of(HERMES + "</think>", ()),
    "llama": of(LLAMA, ()),
}

Joined = list[tuple[Kind, str, int | None]]


def joined(deltas: Iterable[Delta]) -> Joined:
    """Deltas with neighbours of a kind made one."""
    out: Joined = []
    for delta in deltas:
        if out and out[-1][::2] == (delta.kind, delta.call) and delta.kind is not Kind.END:
            out[-1] = (delta.kind, out[-1][1] + delta.text, delta.call)
        else:
            out.append((delta.kind, delta.text, delta.call))
    return out


def split(
    dialect: Dialect,
    tools: Mapping[str, Any],
    pieces: Sequence[str],
    thinking: bool = False,
    calls: bool = True,
) -> Joined:
    """What an answer comes to that arrives in these pieces."""
    segmenter = Segmenter(dialect, tools, thinking=thinking, calls=calls)
    deltas = [delta for piece in pieces for delta in segmenter.feed(piece)]
    return joined([*deltas, *segmenter.finish()])


def text(found: Joined, kind: Kind) -> str:
    """All of a kind."""
    return "".join(text for one, text, _ in found if one is kind)


def calls(found: Joined) -> list[tuple[str, str]]:
    """Name and arguments of the calls that are whole."""
    names = {call: text for kind, text, call in found if kind is Kind.CALL}
    ended = [call for kind, _, call in found if kind is Kind.END]
    arguments = {call: text for kind, text, call in found if kind is Kind.ARGUMENTS}
    return [(names[call], arguments[call]) for call in ended]
