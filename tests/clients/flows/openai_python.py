"""openai-python: chat, stream, tools, structured output, responses, early close."""

from __future__ import annotations

import json
from typing import Any

import openai
from common import CITY, MODEL, PERSON, URL, run, user
from pydantic import BaseModel

client = openai.OpenAI(base_url=f"{URL}/v1", api_key="EMPTY", max_retries=0)
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}
FLAT = {"type": "function", "name": "get_weather", "parameters": CITY, "strict": False}


class Person(BaseModel):
    name: str
    age: int


def chat() -> dict[str, Any]:
    answer = client.chat.completions.create(model=MODEL, messages=[user("Say hello")])
    message = answer.choices[0].message
    reason = answer.choices[0].finish_reason
    return {"text": message.content, "reasoning": message.reasoning_content, "finish": reason}


def stream() -> dict[str, Any]:
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=[user("Say hello")],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    deltas = [chunk.choices[0].delta for chunk in chunks[:-1]]
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0
    assert len(deltas) > 5
    reasoning = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
    text = "".join(delta.content or "" for delta in deltas)
    finish = chunks[-2].choices[0].finish_reason
    return {"text": text, "reasoning": "".join(reasoning), "finish": finish}


def tools() -> dict[str, Any]:
    talk = [user("What is the weather?")]
    first = client.chat.completions.create(model=MODEL, messages=talk, tools=[TOOL])
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    call = message.tool_calls[0]
    talk.append(message.model_dump(exclude_none=True))
    talk.append({"role": "tool", "tool_call_id": call.id, "content": "21 degrees"})
    last = client.chat.completions.create(model=MODEL, messages=talk, tools=[TOOL])
    return {
        "call": [call.function.name, json.loads(call.function.arguments)],
        "text": last.choices[0].message.content,
        "read": first.usage.prompt_tokens,
        "cached": last.usage.prompt_tokens_details.cached_tokens,
    }


def tools_stream() -> dict[str, Any]:
    talk = [user("What is the weather in two cities?")]
    with client.chat.completions.stream(model=MODEL, messages=talk, tools=[TOOL]) as events:
        message = events.get_final_completion().choices[0].message
    calls = [[c.function.name, json.loads(c.function.arguments)] for c in message.tool_calls]
    return {"calls": calls}


def forced() -> dict[str, Any]:
    choice = {"type": "function", "function": {"name": "get_weather"}}
    answer = client.chat.completions.create(
        model=MODEL, messages=[user("What is the weather?")], tools=[TOOL], tool_choice=choice
    )
    (call,) = answer.choices[0].message.tool_calls
    return {"call": [call.function.name, json.loads(call.function.arguments)]}


def structured() -> dict[str, Any]:
    answer = client.chat.completions.parse(
        model=MODEL, messages=[user("A person as JSON")], response_format=Person
    )
    return {"object": answer.choices[0].message.parsed.model_dump()}


def responses() -> dict[str, Any]:
    answer = client.responses.create(model=MODEL, input="Say hello")
    following = client.responses.create(
        model=MODEL, input="Say hello again", previous_response_id=answer.id
    )
    assert answer.status == "completed"
    return {
        "text": answer.output_text,
        "read": answer.usage.input_tokens,
        "cached": following.usage.input_tokens_details.cached_tokens,
    }


def responses_stream() -> dict[str, Any]:
    with client.responses.stream(model=MODEL, input="Say hello") as events:
        text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        answer = events.get_final_response()
    assert answer.output_text == text
    return {"text": text}


def responses_tools() -> dict[str, Any]:
    talk: list[Any] = [user("What is the weather?")]
    first = client.responses.create(model=MODEL, input=talk, tools=[FLAT, {"type": "web_search"}])
    (call,) = [item for item in first.output if item.type == "function_call"]
    talk += [item.model_dump(exclude_none=True) for item in first.output]
    talk.append({"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"})
    last = client.responses.create(model=MODEL, input=talk, tools=[FLAT, {"type": "web_search"}])
    return {
        "call": [call.name, json.loads(call.arguments)],
        "text": last.output_text,
        "read": first.usage.input_tokens,
        "cached": last.usage.input_tokens_details.cached_tokens,
    }


def responses_structured() -> dict[str, Any]:
    answer = client.responses.parse(model=MODEL, input="A person as JSON", text_format=Person)
    return {"object": answer.output_parsed.model_dump()}


def early_close() -> dict[str, Any]:
    events = client.chat.completions.create(model=MODEL, messages=[user("Count")], stream=True)
    next(iter(events))
    events.close()
    return {}


def responses_early_close() -> dict[str, Any]:
    events = client.responses.create(model=MODEL, input="Count", stream=True)
    for event in events:
        if event.type.endswith("delta"):
            break
    events.close()
    return {}


assert PERSON
run(
    chat, stream, tools, tools_stream, forced, structured, responses, responses_stream,
    responses_tools, responses_structured, early_close, responses_early_close,
)  # fmt: skip
