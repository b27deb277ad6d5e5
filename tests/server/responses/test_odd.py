"""Odd JSON in the place of any value of a body that works: answered or refused, never a fault."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FUNCTION = {"type": "function", "name": "look", "description": "d", "strict": True}
BODY: dict[str, Any] = {
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "s"}],
            "content": [{"type": "reasoning_text", "text": "t"}],
            "encrypted_content": "strata:aGk=",
        },
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "namespace": "n"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "text", "text": "b"}]},
    ],
    "instructions": "i",
    "tools": [
        {**FUNCTION, "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}},
        {"type": "namespace", "name": "n", "tools": [FUNCTION]},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION]},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
    "metadata": {"a": "b"},
    "store": True,
    "chat_template_kwargs": {"enable_thinking": True},
}


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path into a value."""
    inner: Any = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    return [at, *(path for key, each in inner for path in places(each, (*at, key)))]


PLACES = [path for key in BODY for path in places(BODY[key], (key,))]
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, width=16) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
CHANGES = st.lists(st.tuples(st.sampled_from(PLACES), ODD), min_size=1, max_size=2)


@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changes=CHANGES, drop=st.sampled_from([None, "text", "tools", "tool_choice"]))
def test_odd_values(call, changes, drop):
    body = copy.deepcopy(BODY)
    for (*way, last), odd in changes:
        holder: Any = body
        for step in way:
            holder = holder[step] if _has(holder, step) else None
        if _has(holder, last):
            holder[last] = odd
    body.pop(drop, None)
    answer = call("POST", "/v1/responses", body)
    assert answer.status in (200, 400, 404), (body, answer.json())


def _has(holder: Any, step: Any) -> bool:
    known: Any = holder if isinstance(holder, dict) else ()
    return step in (range(len(holder)) if isinstance(holder, list) else known)
