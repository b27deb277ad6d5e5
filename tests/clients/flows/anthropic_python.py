"""anthropic-python: messages, stream, thinking, tools, count_tokens, early close."""

from __future__ import annotations

from typing import Any

import anthropic
from common import CITY, MODEL, URL, run, user

client = anthropic.Anthropic(base_url=URL, api_key="EMPTY", max_retries=0)
TOOL = {"name": "get_weather", "description": "The weather.", "input_schema": CITY}
THINKING = {"type": "enabled", "budget_tokens": 1024}


def blocks(message: Any, kind: str) -> list[Any]:
    return [block for block in message.content if block.type == kind]


def whole(usage: Any) -> int:
    """Tokens of the whole prompt, read from the cache or not."""
    kept = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    return int(usage.input_tokens + kept)


def chat() -> dict[str, Any]:
    answer = client.messages.create(
        model=MODEL, max_tokens=2048, messages=[user("Say hello")], thinking=THINKING
    )
    thinking = "".join(block.thinking for block in blocks(answer, "thinking"))
    text = "".join(block.text for block in blocks(answer, "text"))
    return {"text": text, "reasoning": thinking, "finish": answer.stop_reason}


def stream() -> dict[str, Any]:
    with client.messages.stream(
        model=MODEL, max_tokens=2048, messages=[user("Say hello")], thinking=THINKING
    ) as events:
        kinds = [event.type for event in events]
        answer = events.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert kinds.count("content_block_delta") > 5
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    thinking = "".join(block.thinking for block in blocks(answer, "thinking"))
    text = "".join(block.text for block in blocks(answer, "text"))
    return {"text": text, "reasoning": thinking, "finish": answer.stop_reason}


def tools() -> dict[str, Any]:
    talk: list[Any] = [user("What is the weather?")]
    first = client.messages.create(model=MODEL, max_tokens=2048, messages=talk, tools=[TOOL])
    assert first.stop_reason == "tool_use"
    (call,) = blocks(first, "tool_use")
    talk.append({"role": "assistant", "content": [b.model_dump() for b in first.content]})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "21 degrees"}
    talk.append({"role": "user", "content": [result]})
    last = client.messages.create(model=MODEL, max_tokens=2048, messages=talk, tools=[TOOL])
    return {
        "call": [call.name, call.input],
        "text": "".join(block.text for block in blocks(last, "text")),
        "read": whole(first.usage),
        "cached": last.usage.cache_read_input_tokens,
    }


def tools_stream() -> dict[str, Any]:
    with client.messages.stream(
        model=MODEL,
        max_tokens=2048,
        messages=[user("What is the weather in two cities?")],
        tools=[TOOL],
    ) as events:
        answer = events.get_final_message()
    return {"calls": [[block.name, block.input] for block in blocks(answer, "tool_use")]}


def forced() -> dict[str, Any]:
    answer = client.messages.create(
        model=MODEL,
        max_tokens=2048,
        messages=[user("What is the weather?")],
        tools=[TOOL],
        tool_choice={"type": "tool", "name": "get_weather"},
    )
    (call,) = blocks(answer, "tool_use")
    return {"call": [call.name, call.input]}


def count_tokens() -> dict[str, Any]:
    asked: dict[str, Any] = {
        "model": MODEL,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [user("Say hello")],
        "tools": [TOOL],
    }
    counted = client.messages.count_tokens(**asked).input_tokens
    cold, warm = (client.messages.create(max_tokens=2048, **asked).usage for _ in range(2))
    assert cold.cache_read_input_tokens == 0 < warm.cache_read_input_tokens
    return {"counted": counted == whole(cold) == whole(warm)}


def refusal() -> dict[str, Any]:
    try:
        client.messages.create(model="other", max_tokens=9, messages=[user("Say hello")])
    except anthropic.NotFoundError as error:
        return {"refused": error.body["error"]["type"]}
    return {"refused": ""}


def early_close() -> dict[str, Any]:
    with client.messages.create(
        model=MODEL, max_tokens=50_000, messages=[user("Count")], stream=True
    ) as events:
        for event in events:
            if event.type == "content_block_delta":
                break
    return {}


run(chat, stream, tools, tools_stream, forced, count_tokens, refusal, early_close)
