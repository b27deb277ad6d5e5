"""The default model behind both of OpenAI's APIs: one conversation, one place in the cache."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from strata.engine.client import EngineClient
from strata.engine.loop import Engine
from strata.engine.settings import EngineSettings
from strata.files import open_model
from strata.server.app import create_app
from strata.server.service import Lobby, ModelFacts, Service
from strata.text import template, tokenizer
from strata.types import Backend, Sampling, silent

kernels = pytest.importorskip("strata.kernels")
loader = pytest.importorskip("strata.models.loader")

# Reasoning, calls and their results, as Qwen's templates write them.
SOURCE = """{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>
{% endif %}{{ m.content }}
{%- for call in m.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
FUNCTION = {"name": "weather", "description": "d", "parameters": {"type": "object"}}


@pytest.fixture
def served(default_model: Path):
    """POSTs to the model; each answer is of some words."""
    file = open_model(default_model)
    try:
        chosen = kernels.choose(Backend.NATIVE, "cpu", 1)
    except Exception as error:  # a source tree whose extension was not built
        pytest.skip(f"no native kernels: {error}")
    engine = Engine(loader.load(file, chosen, progress=silent), EngineSettings(), pages=100)
    engine.start()
    words = tokenizer.load(file)
    service = Service(
        engine=EngineClient(engine),
        tokenizer=words,
        template=template.load(file, SOURCE, words),
        model=ModelFacts("small", "small", 1500, 0),
        defaults=Sampling(temperature=0.0),
    )
    app = create_app(Lobby(service))

    async def post(path: str, body: dict[str, Any]) -> Any:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as caller:
            return await caller.post(path, json=body, timeout=60)

    with asyncio.Runner() as runner:
        yield lambda path, **body: runner.run(post(path, body)).json()
    engine.stop()


def test_a_talk_with_a_call_is_read_once(served):
    """Through chat, then through Responses, then through chat again with one turn more."""
    asked = "What is the weather in Rome, and in Oslo? " * 8
    call = {"id": "c1", "type": "function"}
    made = {"name": "weather", "arguments": '{"city": "Rome"}'}
    chat = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": asked},
        {
            "role": "assistant",
            "reasoning_content": "Two cities.",
            "content": "Let me see.",
            "tool_calls": [call | {"function": made}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sun"},
    ]
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": asked}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Two cities."}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "c1", **made},
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
    ]
    tools = [{"type": "function", "function": FUNCTION}]
    first = served("/v1/chat/completions", messages=chat, tools=tools, max_tokens=8)
    read = first["usage"]["prompt_tokens"]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0

    answer = served(
        "/v1/responses",
        instructions="Be kind.",
        input=items,
        tools=[{"type": "function", **FUNCTION}],
        max_output_tokens=8,
    )
    usage = answer["usage"]
    assert usage["input_tokens"] == read
    assert usage["input_tokens_details"]["cached_tokens"] == read - 1
    (message,) = answer["output"]
    text = message["content"][0]["text"]
    assert text == first["choices"][0]["message"]["content"]

    going_on = [*chat, {"role": "assistant", "content": text}, {"role": "user", "content": "More"}]
    last = served("/v1/chat/completions", messages=going_on, tools=tools, max_tokens=1)["usage"]
    more = served(
        "/v1/responses",
        instructions="Be kind.",
        previous_response_id=answer["id"],
        input="More",
        tools=[{"type": "function", **FUNCTION}],
        max_output_tokens=1,
    )["usage"]
    assert last["prompt_tokens_details"]["cached_tokens"] >= read
    assert more["input_tokens"] == last["prompt_tokens"]
    assert more["input_tokens_details"]["cached_tokens"] == last["prompt_tokens"] - 1
