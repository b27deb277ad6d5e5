"""A client's messages in the shape that chat templates know.

In: OpenAI chat messages as decoded JSON, of any shape. Out: dicts with a known role and text
content, or a RequestError that names the field. The texts of content parts are joined by line
breaks. Tool-call arguments are JSON text on the wire; they are parsed unless the template takes
text (`Habits`), and stay text where they are no JSON object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strata.types import RequestError

_ROLES = {role: role for role in ("system", "user", "assistant", "tool")}
_ROLES |= {"developer": "system", "function": "tool"}
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_REASONING = ("reasoning_content", "reasoning", "thinking")
_TEXT_ARGUMENTS = re.compile(r"arguments['\"]?\]?\s+is\s+string")
_NULL_CONTENT = re.compile(r"content['\"]?\]?\s+is\s+(not\s+)?none")


@dataclass(frozen=True, slots=True)
class Habits:
    """What a template's source says that it looks for.

    text_arguments: it takes tool-call arguments as text, too. null_content: it tells
    messages without content by null; for others null is the empty text.
    """

    text_arguments: bool
    null_content: bool

    @classmethod
    def of(cls, source: str) -> Habits:
        """The habits of a template."""
        return cls(bool(_TEXT_ARGUMENTS.search(source)), bool(_NULL_CONTENT.search(source)))


def normalise(messages: Any, habits: Habits) -> list[dict[str, Any]]:
    """A request's messages as templates expect them. Raises RequestError."""
    if not isinstance(messages, (list, tuple)) or not messages:
        raise RequestError("messages must be a list of at least one message", field="messages")
    return [_message(message, f"messages.{i}", habits) for i, message in enumerate(messages)]


def check_tools(tools: Any) -> list[dict[str, Any]] | None:
    """A request's tools, an empty list being none. Raises RequestError."""
    if tools is None:
        return None
    if not isinstance(tools, (list, tuple)):
        raise RequestError("tools must be a list", field="tools")
    for i, tool in enumerate(tools):
        if _function(tool) is None:
            raise RequestError(
                'a tool must be {"type": "function", "function": {"name": ...}}',
                field=f"tools.{i}",
            )
    return [dict(tool) for tool in tools] or None


def _message(message: Any, field: str, habits: Habits) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError("a message must be an object with role and content", field=field)
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise RequestError(
            f"role {role!r} is not supported; supported: {', '.join(_ROLES)}", field=f"{field}.role"
        )
    kept = {key: value for key, value in message.items() if value is not None}
    kept["role"] = _ROLES[role]
    kept.pop("cache_anchor", None)  # for us, not for the template
    calls = message.get("tool_calls")
    kept.pop("tool_calls", None)
    if calls:
        if not isinstance(calls, (list, tuple)):
            raise RequestError("tool_calls must be a list", field=f"{field}.tool_calls")
        numbered = enumerate(calls)
        kept["tool_calls"] = [_call(c, f"{field}.tool_calls.{i}", habits) for i, c in numbered]
    content = message.get("content")
    null = content is None and habits.null_content and bool(calls)
    kept["content"] = None if null else _content(content, f"{field}.content")
    reasoning = next((kept[name] for name in _REASONING if isinstance(kept.get(name), str)), None)
    if reasoning is not None:
        kept = {"thinking": reasoning, **kept, "reasoning_content": reasoning}
    return kept


def _content(content: Any, field: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        return "\n".join(_part(part, f"{field}.{i}") for i, part in enumerate(content))
    raise RequestError("content must be a string, a list of parts or null", field=field)


def _part(part: Any, field: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type", "text") if isinstance(part, Mapping) else None
    if not isinstance(kind, str) or kind not in _TEXT_PARTS:
        raise RequestError(
            f"a content part of type {kind!r} is not supported: this model reads text"
            ' ({"type": "text", "text": ...})',
            field=field,
        )
    text = part.get(_TEXT_PARTS[kind])
    if not isinstance(text, str):
        raise RequestError(f"a {kind} part must have a string", field=f"{field}.{kind}")
    return text


def _function(item: Any) -> Mapping[str, Any] | None:
    """The named function of a tool or a tool call, with or without its wrapping."""
    function = item.get("function", item) if isinstance(item, Mapping) else None
    named = isinstance(function, Mapping) and isinstance(function.get("name"), str)
    return function if named else None


def _call(call: Any, field: str, habits: Habits) -> dict[str, Any]:
    function = _function(call)
    if function is None:
        raise RequestError(
            'a tool call must be {"function": {"name": ..., "arguments": ...}}', field=field
        )
    arguments = function.get("arguments")
    if isinstance(arguments, str) and not habits.text_arguments:
        try:
            value = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            value = None
        arguments = value if isinstance(value, dict) else arguments
    function = {**function, "arguments": {} if arguments is None else arguments}
    return {**call, "function": function} if "function" in call else function


def without_system(messages: Sequence[dict[str, Any]], keep_first: bool) -> list[dict[str, Any]]:
    """The messages with system ones made part of the talk, for templates that refuse them.

    keep_first: those at the beginning become one and stay. The others join the user's
    message before them, else they become a user's message, which joins a following one.
    Only text moves, and a message's place depends on nothing after it but the next one.
    """
    leading = next(
        (i for i, message in enumerate(messages) if message["role"] != "system"), len(messages)
    )
    out: list[dict[str, Any]] = []
    if leading and keep_first:
        texts = [message["content"] for message in messages[:leading]]
        out.append({**messages[0], "content": "\n\n".join(texts)})
        messages = messages[leading:]
    moved = False  # the last message of `out` is, or ends with, a system message's text
    for message in messages:
        system = message["role"] == "system"
        if out and out[-1]["role"] == "user" and (system or (moved and message["role"] == "user")):
            out[-1] = {**out[-1], "content": f"{out[-1]['content']}\n\n{message['content']}"}
        else:
            out.append({**message, "role": "user"} if system else message)
        moved = system
    return out
