"""langchain-openai (chat and responses) and langchain-anthropic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from common import CITY, MODEL, PERSON, URL, run
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

TOOL = {"name": "get_weather", "description": "The weather.", "parameters": CITY}
OPENAI = {"base_url": f"{URL}/v1", "api_key": "EMPTY", "model": MODEL, "max_retries": 0}
CHAT = ChatOpenAI(**OPENAI)
RESPONSES = ChatOpenAI(**OPENAI, use_responses_api=True)
ANTHROPIC = ChatAnthropic(
    base_url=URL, api_key="EMPTY", model=MODEL, max_retries=0, max_tokens=20_000
)


def chat(model: Any) -> dict[str, Any]:
    return {"text": model.invoke("Say hello").text}


def stream(model: Any) -> dict[str, Any]:
    chunks = list(model.stream("Say hello"))
    assert len(chunks) > 5
    return {"text": "".join(chunk.text for chunk in chunks)}


def tools(model: Any) -> dict[str, Any]:
    bound = model.bind_tools([TOOL])
    talk: list[Any] = [HumanMessage("What is the weather?")]
    first = bound.invoke(talk)
    (call,) = first.tool_calls
    last = bound.invoke([*talk, first, ToolMessage("21 degrees", tool_call_id=call["id"])])
    return {
        "call": [call["name"], call["args"]],
        "text": last.text,
        "read": first.usage_metadata["input_tokens"],
        "cached": last.usage_metadata["input_token_details"]["cache_read"],
    }


def forced(model: Any) -> dict[str, Any]:
    bound = model.bind_tools([TOOL], tool_choice="get_weather")
    (call,) = bound.invoke("What is the weather?").tool_calls
    return {"call": [call["name"], call["args"]]}


def structured(model: Any) -> dict[str, Any]:
    schema = {"title": "person", "description": "A person.", **PERSON}
    asked = model.with_structured_output(schema, method="json_schema")
    return {"object": asked.invoke("A person as JSON")}


def early_close(model: Any) -> dict[str, Any]:
    events = model.stream("Count")
    for chunk in events:
        if chunk.text:
            break
    events.close()
    return {}


def of(name: str, model: Any, *flows: Callable[[Any], dict[str, Any]]) -> list[Callable[[], Any]]:
    made = []
    for flow in flows:

        def bound(flow: Callable[[Any], Any] = flow) -> dict[str, Any]:
            return dict(flow(model))

        bound.__name__ = f"{name}_{flow.__name__}" if name else flow.__name__
        made.append(bound)
    return made


run(
    *of("", CHAT, chat, stream, tools, forced, structured, early_close),
    *of("responses", RESPONSES, chat, stream, tools, forced, structured, early_close),
    *of("anthropic", ANTHROPIC, chat, stream, tools, forced, early_close),
)
