"""A Messages body as the chat it asks for, in OpenAI's shapes.

So the same talk has the same tokens through either API. A user's message with results of tools
becomes one message for each result, and one for the texts between them. An assistant's texts are
put together as they are, and so are its thoughts: they are pieces of one answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from strata.server.anthropic.schema import (
    AnyMessage,
    AssistantMessage,
    Block,
    CountBody,
    OutputFormat,
    TextBlock,
    ThinkingBlock,
    Tool,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from strata.server.errors import Refusal
from strata.server.service import Service
from strata.server.talk import EFFORTS, ChatRequest, Format, format_of

# Claude Code's first line. It differs from talk to talk, and so would everything behind it.
_BILLING = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n*")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_THINKING = {"enabled": True, "disabled": False}

Message = dict[str, Any]


def chat_request(service: Service, body: CountBody) -> ChatRequest:
    """What a body asks for. Raises RequestError."""
    tools = list(_tools(body.tools or ()))
    config = body.output_config
    think = _THINKING.get(body.thinking.type) if body.thinking else None
    effort = {"reasoning_effort": config.effort} if config and config.effort else {}
    updates = {"model": _model(service, body.model), "stop": body.stop_sequences or body.stop}
    last = body.messages[-1]
    messages = [*_system(body.system), *(m for each in body.messages for m in _messages(each))]
    return ChatRequest(
        body=body.model_copy(update=updates),
        messages=messages,
        tools=tools,
        tool_choice=_choice(body, tools),
        parallel=not (body.tool_choice and body.tool_choice.disable_parallel_tool_use),
        format=_format(config.format if config else None, body.output_format) or format_of(body),
        variables=effort | ({} if think is None else {"enable_thinking": think}),
        thinking=think,
        budget=_budget(body),
        max_tokens=body.max_tokens,
        continued=last.role == "assistant" and "tool_calls" not in messages[-1],
    )


def _model(service: Service, name: str | None) -> str | None:
    """The model's name, or None for the served one: clients ask for Claude until told otherwise."""
    known = (service.model.id, *service.model.aliases)
    return None if name and name.startswith("claude") and name not in known else name


def _tools(tools: Sequence[Tool]) -> Iterator[dict[str, Any]]:
    for i, tool in enumerate(tools):
        if tool.type in (None, "custom"):
            for name in ("name", "input_schema"):
                if getattr(tool, name) is None:
                    field = f"tools.{i}.{name}"
                    raise Refusal(f"{field}: is required", field=field)
        if tool.input_schema is not None:
            told = {"description": tool.description} if tool.description is not None else {}
            function = {"name": tool.name, **told, "parameters": tool.input_schema}
            yield {"type": "function", "function": function}


def _choice(body: CountBody, tools: Sequence[dict[str, Any]]) -> str:
    """auto, none, required, or a function's name."""
    choice = body.tool_choice
    if choice is None:
        return "auto"
    if choice.type == "any" and not tools:
        raise Refusal("tool_choice: there is no tool to call", field="tool_choice")
    if choice.type != "tool":
        return _CHOICES[choice.type]
    names = [tool["function"]["name"] for tool in tools]
    if choice.name is None or choice.name not in names:
        said = f"must be one of the tools: {', '.join(names)[:200]}" if names else "has no tools"
        raise Refusal(f"tool_choice.name: {said}", field="tool_choice.name")
    return choice.name


def _budget(body: CountBody) -> int | None:
    """For how many tokens to think: as many as are given, else as the effort says."""
    if body.thinking and body.thinking.type == "enabled" and body.thinking.budget_tokens:
        return body.thinking.budget_tokens
    effort = body.output_config.effort if body.output_config else None
    return EFFORTS.get(effort or "", (None, None))[1]


def _format(wanted: OutputFormat | None, older: OutputFormat | None) -> Format | None:
    """What the text must be; `older` is where it stood in a beta."""
    for found, field in ((wanted, "output_config.format.schema"), (older, "output_format.schema")):
        if found is not None:
            return Format("json_schema", found.schema_, field)
    return None


def _system(system: str | Sequence[TextBlock] | None) -> Iterator[Message]:
    texts = [system] if isinstance(system, str) else _texts(system or ())
    kept = [left for text in texts if (left := _BILLING.sub("", text))]
    if kept:
        content = kept[0] if isinstance(system, str) else [_part(text) for text in kept]
        yield {"role": "system", "content": content}


def _messages(message: AnyMessage) -> Iterator[Message]:
    if isinstance(message.content, str) or not message.content:
        yield {"role": message.role, "content": message.content or ""}
    elif isinstance(message, UserMessage):
        yield from _user(message.content)
    elif isinstance(message, AssistantMessage):
        yield _anchored(_assistant(message.content), message.content)
    else:
        yield _anchored({"role": "system", "content": _parts(message.content)}, message.content)


def _user(content: Iterable[Block]) -> Iterator[Message]:
    """A message for each result of a tool and for each run of texts between them."""
    for results, group in groupby(content, key=lambda block: isinstance(block, ToolResultBlock)):
        blocks = list(group)
        if results:
            yield from (
                _anchored(_result(b), [b]) for b in blocks if isinstance(b, ToolResultBlock)
            )
        else:
            yield _anchored({"role": "user", "content": _parts(blocks)}, blocks)


def _result(block: ToolResultBlock) -> Message:
    content = block.content or ""
    text = content if isinstance(content, str) else "\n".join(_texts(content))
    text = f"Error: {text}" if block.is_error else text
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": text}


def _assistant(content: Iterable[Block]) -> Message:
    message: Message = {"role": "assistant", "content": "".join(_texts(content))}
    if thoughts := "".join(b.thinking for b in content if isinstance(b, ThinkingBlock)):
        message["reasoning_content"] = thoughts
    if calls := [_call(block) for block in content if isinstance(block, ToolUseBlock)]:
        message["tool_calls"] = calls
    return message


def _call(block: ToolUseBlock) -> Message:
    function = {"name": block.name, "arguments": block.input}
    return {"id": block.id, "type": "function", "function": function}


def _texts(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, TextBlock):
            yield block.text
        elif isinstance(block, ToolReferenceBlock):
            yield block.tool_name


def _parts(blocks: Iterable[Block]) -> list[dict[str, str]]:
    return [_part(text) for text in _texts(blocks)]


def _part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _anchored(message: Message, blocks: Iterable[Block]) -> Message:
    """With an anchor at the message's end, where one of its blocks asks for one anywhere."""
    asked = any(block.cache_control is not None for block in blocks)
    return {**message, "cache_anchor": True} if asked else message
