"""Templates and random conversations for tests."""

from __future__ import annotations

import random
from typing import Any

CHATML = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- 'Tools:' }}
    {%- for tool in tools %}{{- '\\n' ~ (tool | tojson) }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content %}
        {%- if '</think>' in content %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' + content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<result>\\n' + message.content + '\\n</result><|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

_WORDS = (
    *("the", "a", "of", "Paris", "3.14", "漢字", "😀", "e\u0301", "don't", "\n\n", "\t", "<b>"),
    *("{x}", '"q"', "\\", "ok", "100", "…"),
)


def text(rng: random.Random, longest: int = 12) -> str:
    """Words with blanks in all mixes; sometimes nothing."""
    blanks = (" ", " ", " ", "\n", "  ", "\n\n")
    count = rng.randrange(longest)
    return "".join(rng.choice(_WORDS) + rng.choice(blanks) for _ in range(count))


def value(rng: random.Random, depth: int = 2) -> Any:
    """A JSON value."""
    leaves = [None, True, 1, -2.5, text(rng, 3), "x"]
    if depth == 0 or rng.random() < 0.5:
        return rng.choice(leaves)
    if rng.random() < 0.5:
        return [value(rng, depth - 1) for _ in range(rng.randrange(3))]
    return {f"k{i} é": value(rng, depth - 1) for i in range(rng.randrange(3))}


def conversation(seed: int) -> list[dict[str, Any]]:
    """A talk as clients send it, its tool-call arguments already parsed."""
    rng = random.Random(seed)
    messages: list[dict[str, Any]] = []
    if rng.random() < 0.6:
        messages.append({"role": "system", "content": text(rng)})
    for _ in range(rng.randrange(1, 4)):
        messages.append({"role": "user", "content": text(rng)})
        while rng.random() < 0.3:
            call = {"name": "find", "arguments": {"q": text(rng, 3), "n": value(rng)}}
            messages.append(
                {
                    "role": "assistant",
                    "content": text(rng, 4),
                    "tool_calls": [{"type": "function", "id": "c1", "function": call}],
                }
            )
            messages.append({"role": "tool", "content": text(rng), "tool_call_id": "c1"})
        answer: dict[str, Any] = {"role": "assistant", "content": text(rng)}
        if rng.random() < 0.3:
            answer["reasoning_content"] = text(rng)
        messages.append(answer)
    if rng.random() < 0.7:
        messages.pop()
    if rng.random() < 0.2:
        messages.append({"role": "system", "content": "later " + text(rng, 3)})
    return messages


def tools(seed: int) -> list[dict[str, Any]] | None:
    """Function tools, or none."""
    rng = random.Random(seed)
    if rng.random() < 0.5:
        return None
    return [
        {
            "type": "function",
            "function": {
                "name": f"find{i}",
                "description": text(rng),
                "parameters": {"type": "object", "properties": {"q": value(rng, 3)}},
            },
        }
        for i in range(rng.randrange(1, 3))
    ]
