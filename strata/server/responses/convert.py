"""A Responses body as a ChatRequest: items to messages, flat tools to chat's, choice and format.

What an assistant did between two items of others is one message, as chat completions has it:
its reasoning, its text and its calls. Two messages of text side by side stay two. So a talk has
the same tokens through either API. Knows no store: references are resolved before.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from strata.server.errors import Refusal
from strata.server.responses.schema import (
    Call,
    CallOutput,
    Content,
    Item,
    Message,
    Part,
    ResponsesBody,
    Thought,
)
from strata.server.talk import EFFORTS, ChatRequest, Format, format_of

_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
# What this server writes into encrypted_content: the reasoning, which the client may read anyway.
_SEAL = "strata:"
_REFUSED = {
    "background": "background: answers are made while the client waits; leave it out",
    "conversation": "conversation: there are no conversations here; use previous_response_id",
    "prompt": "prompt: there are no stored prompts here; use instructions and input",
}


def chat_request(body: ResponsesBody, before: Sequence[Item], given: Sequence[Item]) -> ChatRequest:
    """What a body asks for. `before` are the items of earlier responses, `given` the input's.

    Raises a 400 that names the field.
    """
    for name, sentence in _REFUSED.items():
        if getattr(body, name):
            raise Refusal(sentence, field=name)
    messages = messages_of([*before, *given], -len(before))
    if body.instructions:
        messages.insert(0, {"role": "system", "content": body.instructions})
    choice, allowed = _choice(body.tool_choice)
    tools = [tool for tool, _, _ in functions(body.tools)]
    if allowed is not None:
        tools = [tool for tool in tools if tool["function"]["name"] in allowed]
    effort = body.reasoning.effort if body.reasoning else None
    thinking, budget = EFFORTS[effort] if effort else (None, None)
    variables = ({"reasoning_effort": effort} if effort else {}) | (body.chat_template_kwargs or {})
    wish = variables.get("enable_thinking")
    wanted = "message.output_text.logprobs" in (body.include or ())
    return ChatRequest(
        body,
        messages,
        tools=tools,
        tool_choice=choice,
        parallel=body.parallel_tool_calls is not False,
        format=_format(body),
        variables=variables,
        thinking=wish if isinstance(wish, bool) else thinking,
        budget=budget,
        max_tokens=body.max_output_tokens,
        logprobs=(body.top_logprobs or 0) if wanted or body.top_logprobs else None,
    )


def messages_of(items: Iterable[Item], first: int = 0) -> list[dict[str, Any]]:
    """Items as chat messages; `first` numbers the first of them, for errors."""
    out: list[dict[str, Any]] = []
    last: Item | None = None
    for i, item in enumerate(items, first):
        here = f"input.{i}"
        if isinstance(item, Message) and item.role != "assistant":
            out.append({"role": item.role, "content": _texts(item.content, f"{here}.content")})
        elif isinstance(item, CallOutput):
            text = _texts(item.output, f"{here}.output")
            out.append({"role": "tool", "tool_call_id": item.call_id, "content": text})
        elif isinstance(item, Message | Call | Thought):
            apart = isinstance(item, Message) and isinstance(last, Message)
            if not out or out[-1]["role"] != "assistant" or apart:
                out.append({"role": "assistant", "content": None})
            _add(out[-1], item, here)
        else:
            raise Refusal(
                f"{here}: items of type {item.type!r:.60} are not supported; supported: message, "
                "function_call, function_call_output, reasoning, item_reference",
                field=f"{here}.type",
            )
        last = item
    return out


def _add(message: dict[str, Any], item: Message | Call | Thought, here: str) -> None:
    """One more thing that the assistant did in its turn."""
    if isinstance(item, Call):
        function = {"name": flat(item.namespace, item.name), "arguments": item.arguments}
        call = {"id": item.call_id, "type": "function", "function": function}
        message.setdefault("tool_calls", []).append(call)
    elif isinstance(item, Thought):
        text = message.get("reasoning_content", "") + _thought(item)
        message.update({"reasoning_content": text} if text else {})
    else:
        text = _texts(item.content, f"{here}.content")
        if message["content"] is not None:
            text = _joined(message["content"]) + _joined(text)
        message["content"] = text


def _texts(content: Content, field: str) -> str | list[dict[str, Any]]:
    """Content for the text layer, which joins parts."""
    if isinstance(content, str):
        return content
    return [{"type": "text", "text": _text(p, f"{field}.{i}")} for i, p in enumerate(content)]


def _text(part: Part, field: str) -> str:
    name = _TEXTS.get(part.type)
    if name is None:
        raise Refusal(
            f"{field}: a part of type {part.type!r:.60} is not supported: this model reads text",
            field=f"{field}.type",
        )
    text = getattr(part, name)
    if not isinstance(text, str):
        raise Refusal(f"{field}.{name}: must be a string", field=f"{field}.{name}")
    return text


def _joined(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def _thought(item: Thought) -> str:
    """A reasoning item's text."""
    sealed = unsealed(item.encrypted_content)
    if not item.content and sealed is not None:
        return sealed
    return "".join(piece.text for piece in item.content or item.summary or ())


def sealed(text: str) -> str:
    """Reasoning for a client that gives back nothing but `encrypted_content`."""
    return _SEAL + base64.b64encode(text.encode("utf-8", "replace")).decode()


def unsealed(value: str | None) -> str | None:
    """What `sealed` was given; None for another server's."""
    if not value or not value.startswith(_SEAL):
        return None
    try:
        return base64.b64decode(value[len(_SEAL) :], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def flat(namespace: str | None, name: str) -> str:
    """The one name under which the model knows a function of a namespace."""
    if not namespace:
        return name
    return namespace + ("" if namespace.endswith("_") else "__") + name


def functions(
    tools: Sequence[Mapping[str, Any]] | None, namespace: str | None = None, at: str = "tools"
) -> list[tuple[dict[str, Any], str | None, str]]:
    """Tools in chat's shape, each with its namespace and its name there.

    Those that are no functions are for other servers. Raises a 400 where one has no name.
    """
    out: list[tuple[dict[str, Any], str | None, str]] = []
    for i, tool in enumerate(tools or ()):
        kind, field = tool.get("type"), f"{at}.{i}"
        if kind not in ("function", "namespace"):
            continue
        said = tool.get("function", tool)
        name = said.get("name") if isinstance(said, dict) else None
        if not isinstance(name, str) or not name:
            raise Refusal(f"{field}.name: a {kind} must have a name", field=f"{field}.name")
        if kind == "namespace":
            inner = tool.get("tools")
            if not isinstance(inner, list) or not all(isinstance(each, dict) for each in inner):
                raise Refusal(f"{field}.tools: must be a list of tools", field=f"{field}.tools")
            out += functions(inner, name, f"{field}.tools")
            continue
        keys = ("description", "parameters", "strict")
        rest = {key: said[key] for key in keys if said.get(key) is not None}
        function = {"name": flat(namespace, name), **rest}
        out.append(({"type": "function", "function": function}, namespace, name))
    return out


def _choice(choice: str | dict[str, Any] | None) -> tuple[str, set[str] | None]:
    """Chat's tool_choice, and the names that may be called where they are not all."""
    if choice is None or isinstance(choice, str):
        if choice not in (None, "auto", "none", "required"):
            raise _bad_choice()
        return choice or "auto", None
    kind, mode, tools = (choice.get(key) for key in ("type", "mode", "tools"))
    if kind == "function" and (name := _named(choice)):
        return name, None
    if kind == "allowed_tools" and mode in (None, "auto", "required") and isinstance(tools, list):
        return mode or "auto", {name for tool in tools if (name := _named(tool))}
    raise _bad_choice()


def _named(tool: Any) -> str | None:
    """The name that the model has for a function; None where nothing is named."""
    said = tool if isinstance(tool, dict) else {}
    name, namespace = said.get("name"), said.get("namespace")
    if not isinstance(name, str) or not isinstance(namespace, str | None):
        return None
    return flat(namespace, name)


def _bad_choice() -> Refusal:
    return Refusal(
        "tool_choice: must be 'auto', 'none', 'required', "
        "{'type': 'function', 'name': ...} or {'type': 'allowed_tools', 'mode': ..., 'tools': ...}",
        field="tool_choice",
    )


def _format(body: ResponsesBody) -> Format | None:
    """The structure that the text must have."""
    wanted, other = body.text.format if body.text else None, format_of(body)
    if wanted is None or wanted.type == "text":
        return other
    if other is not None:
        raise Refusal("text.format and another format cannot both be met", field="text.format")
    if wanted.type == "json_object":
        return Format("json_object", field="text.format")
    if wanted.content is None:
        raise Refusal("text.format.schema: is required", field="text.format.schema")
    return Format("json_schema", wanted.content, "text.format.schema")
