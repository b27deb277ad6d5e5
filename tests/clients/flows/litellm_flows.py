"""litellm through each of its ways to a server of one's own."""

from __future__ import annotations

import json
import os
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from common import CITY, MODEL, PERSON, URL, run, user

TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}
OPENAI = {"model": f"openai/{MODEL}", "api_base": f"{URL}/v1", "api_key": "EMPTY"}
HOSTED = {**OPENAI, "model": f"hosted_vllm/{MODEL}"}
ANTHROPIC = {"model": f"anthropic/{MODEL}", "api_base": URL, "api_key": "EMPTY"}
litellm.num_retries = 0
litellm.suppress_debug_info = True


def spoken(way: dict[str, str], **more: Any) -> Any:
    return litellm.completion(**way, **more)


def chat() -> dict[str, Any]:
    message = spoken(OPENAI, messages=[user("Say hello")]).choices[0].message
    return {"text": message.content, "reasoning": message.reasoning_content}


def stream() -> dict[str, Any]:
    pieces = list(spoken(OPENAI, messages=[user("Say hello")], stream=True))
    assert len(pieces) > 5
    return {"text": "".join(piece.choices[0].delta.content or "" for piece in pieces)}


def tools(way: dict[str, str] = OPENAI) -> dict[str, Any]:
    talk: list[Any] = [user("What is the weather?")]
    first = spoken(way, messages=talk, tools=[TOOL])
    message = first.choices[0].message
    (call,) = message.tool_calls
    talk.append(message.model_dump(exclude_none=True))
    talk.append({"role": "tool", "tool_call_id": call.id, "content": "21 degrees"})
    last = spoken(way, messages=talk, tools=[TOOL])
    return {
        "call": [call.function.name, json.loads(call.function.arguments)],
        "text": last.choices[0].message.content,
        "read": first.usage.prompt_tokens,
        "cached": last.usage.prompt_tokens_details.cached_tokens,
    }


def structured() -> dict[str, Any]:
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    answer = spoken(OPENAI, messages=[user("A person as JSON")], response_format=form)
    return {"object": json.loads(answer.choices[0].message.content)}


def hosted_chat() -> dict[str, Any]:
    return {"text": spoken(HOSTED, messages=[user("Say hello")]).choices[0].message.content}


def anthropic_chat() -> dict[str, Any]:
    return {"text": spoken(ANTHROPIC, messages=[user("Say hello")]).choices[0].message.content}


def anthropic_tools() -> dict[str, Any]:
    return tools(ANTHROPIC)


def responses_chat() -> dict[str, Any]:
    answer = litellm.responses(input="Say hello", **OPENAI)
    texts = [part.text for item in answer.output if item.type == "message" for part in item.content]
    return {"text": "".join(texts)}


def early_close() -> dict[str, Any]:
    pieces = spoken(OPENAI, messages=[user("Count")], stream=True)
    next(iter(pieces))
    pieces.completion_stream.close()
    return {}


run(
    chat, stream, tools, structured, hosted_chat, anthropic_chat, anthropic_tools,
    responses_chat, early_close,
)  # fmt: skip
