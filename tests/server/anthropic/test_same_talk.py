"""The same talk through OpenAI's API and through this one: the same tokens, one cache."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from strata.server.app import create_app
from strata.server.service import Lobby
from strata.text.template import ChatTemplate

TESTS = Path(__file__).parents[2]
sys.path.insert(0, str(TESTS / "text"))

from conversations import CHATML, conversation, tools  # noqa: E402
from vocabularies import byte_level  # noqa: E402

ANSWER = "{{- '<|im_start|>assistant\\n' + content }}"
THOUGHTS = (
    "{{- '<|im_start|>assistant\\n' }}"
    "{%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{{- content }}"
)
assert ANSWER in CHATML
TEMPLATE = CHATML.replace(ANSWER, THOUGHTS)


def blocks(rng: random.Random, text: str) -> Any:
    """A text as a string or as a block."""
    return text if rng.random() < 0.5 else [{"type": "text", "text": text}]


def anthropic_body(messages: list[dict[str, Any]], functions: Any, seed: int) -> dict[str, Any]:
    """An OpenAI chat as a client of the other API would have it."""
    rng = random.Random(seed)
    body: dict[str, Any] = {"messages": [], "max_tokens": 5}
    if functions:
        names = {"name": "name", "description": "description", "parameters": "input_schema"}
        body["tools"] = [{names[k]: v for k, v in f["function"].items()} for f in functions]
    for i, message in enumerate(messages):
        role, content = message["role"], message["content"]
        if role == "system" and i == 0 and content:
            body["system"] = blocks(rng, content)
        elif role == "tool":
            call = message["tool_call_id"]
            result = {"type": "tool_result", "tool_use_id": call, "content": blocks(rng, content)}
            body["messages"].append({"role": "user", "content": [result]})
        elif role == "assistant":
            parts = []
            if "reasoning_content" in message:
                thought = message["reasoning_content"]
                parts.append({"type": "thinking", "thinking": thought, "signature": "x"})
            cut = rng.randrange(len(content) + 1)
            parts += [{"type": "text", "text": t} for t in (content[:cut], content[cut:]) if t]
            for call in message.get("tool_calls", ()):
                name, given = call["function"]["name"], call["function"]["arguments"]
                parts.append({"type": "tool_use", "id": call["id"], "name": name, "input": given})
            body["messages"].append({"role": role, "content": parts})
        else:
            last = body["messages"][-1] if body["messages"] else {"role": "", "content": ""}
            text = {"type": "text", "text": content}
            results = isinstance(last["content"], list) and last["content"]
            if role == "user" and results and results[-1]["type"] == "tool_result":
                results.append(text)  # as clients do: beside what the tools returned
            else:
                body["messages"].append({"role": role, "content": blocks(rng, content)})
    return body


def openai_body(messages: list[dict[str, Any]], functions: Any) -> dict[str, Any]:
    """With arguments as text, as that API has them."""
    told = json.loads(json.dumps(messages))
    for message in told:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    more = {"continue_final_message": True, "add_generation_prompt": False}
    begun = told[-1]["role"] == "assistant" and "tool_calls" not in told[-1]
    return {"messages": told, "max_tokens": 5, "tools": functions} | (more if begun else {})


@pytest.fixture(scope="module")
def templates() -> list[ChatTemplate]:
    tokenizer = byte_level("qwen2").ours
    return [ChatTemplate(tokenizer, source) for source in (CHATML, TEMPLATE)]


def test_random_talks_have_the_same_tokens(call, service, engine, templates):
    lobby, compared, tools_seen, begun = Lobby(), 0, 0, 0
    call.app = create_app(lobby)
    for seed in range(120):
        model = replace(service.model, context=100_000)
        lobby.open(replace(service, template=templates[seed % 2], model=model))
        messages, functions = conversation(seed), tools(seed)
        ours = anthropic_body(messages, functions, seed)
        theirs = openai_body(messages, functions)
        told = [call("POST", "/v1/chat/completions", theirs), call("POST", "/v1/messages", ours)]
        assert {answer.status for answer in told} in ({200}, {400}), (seed, told)
        counted = call("POST", "/v1/messages/count_tokens", ours)
        assert counted.status == told[1].status
        if counted.status == 200:
            one, other = engine.requests[-2:]
            assert one.tokens == other.tokens, seed
            assert one.stable_len == other.stable_len and one.anchors == other.anchors
            assert counted.json() == {"input_tokens": len(one.tokens)}
            compared += 1
            tools_seen += bool(functions) and any("tool_calls" in m for m in messages)
            begun += "continue_final_message" in theirs
    assert compared > 100 and tools_seen > 10 and begun > 10


def test_talks_share_their_prefix_whatever_the_billing_header_says(
    call, service, engine, templates
):
    call.app = create_app(Lobby(replace(service, template=templates[0])))
    asked = []
    for version in ("2.1.197.766", "2.1.197.73f"):
        header = f"x-anthropic-billing-header: cc_version={version}; cc_entrypoint=sdk-cli;"
        system = [{"type": "text", "text": text} for text in (header, "You are a coding agent.")]
        body = {"system": system, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
        assert call("POST", "/v1/messages", body).status == 200
        asked.append(engine.requests[-1].tokens)
    assert asked[0] == asked[1]
    assert "billing" not in templates[0]._tokenizer.decode(asked[0])


def test_cache_control_asks_for_an_anchor(call, service, engine, templates):
    """Where the message ends in the prompt of the part of the talk that ends with it."""
    call.app = create_app(Lobby(replace(service, template=templates[0])))

    def ask(*messages):
        assert call("POST", "/v1/messages", {"messages": messages, "max_tokens": 3}).status == 200
        return engine.requests[-1]

    def said(role, text, **more):
        return {"role": role, "content": [{"type": "text", "text": text, **more}]}

    first = [said("user", "one"), said("assistant", "two"), said("user", "three")]
    more = [said("assistant", "four"), said("user", "five")]
    end = ask(*first).stable_len
    assert end not in ask(*first, *more).anchors
    first[-1] = said("user", "three", cache_control={"type": "ephemeral"})
    assert end in ask(*first, *more).anchors


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"{path.stem}_for_messages", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def world(service):
    made = _module(TESTS / "server" / "test_with_engine.py").World(service)
    yield made
    made.close()


@pytest.mark.parametrize("first", ["openai", "anthropic"])
def test_both_share_one_cache(world, first):
    """The engine is real: what one API's request read, the other's next turn reuses."""
    system, hello = "Be kind. " * 20, "Hello there, " * 10
    talk = [{"role": "user", "content": hello}]
    more = [{"role": "assistant", "content": "Hm"}, {"role": "user", "content": "And?"}]

    def openai(messages):
        told = [{"role": "system", "content": system}, *messages]
        usage = ask("/v1/chat/completions", messages=told)["usage"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], 0

    def anthropic(messages):
        usage = ask("/v1/messages", system=system, messages=messages)["usage"]
        created, read = usage["cache_creation_input_tokens"], usage["cache_read_input_tokens"]
        return usage["input_tokens"] + created + read, read, created

    def ask(path, **body):
        url = f"http://127.0.0.1:{world.port}{path}"
        answer = httpx.post(url, json={"max_tokens": 3, **body}, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    before, after = (openai, anthropic) if first == "openai" else (anthropic, openai)
    prompt, cached, created = before(talk)
    repeated = len(f"system: {system}\nuser: {hello}\n") + 1  # and <s>; a byte is a token
    assert (prompt, cached) == (repeated + len("assistant: "), 0)
    assert created == (repeated if first == "anthropic" else 0)
    # The whole header of the answer is what the next turn has in its place.
    again, reused, created = after([*talk, *more])
    assert reused == prompt
    assert created == (again - prompt - len("assistant: ") if first == "openai" else 0)
    assert after([*talk, *more])[1] == again - 1
