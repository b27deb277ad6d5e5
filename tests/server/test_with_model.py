"""The default model behind the server: what a grammar forces it to say, and what a turn reuses."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import jsonschema
import openai
import pytest

from strata.cli import assemble
from strata.settings import Config
from strata.text.template import ChatTemplate

TALK = [{"role": "user", "content": "Where is the parcel of order 17? Look it up."}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "track",
            "description": "Where a parcel is.",
            "parameters": {
                "type": "object",
                "properties": {
                    "order": {"type": "integer", "minimum": 1, "maximum": 99},
                    "carrier": {"enum": ["air", "sea"]},
                    "note": {"type": "string", "maxLength": 20},
                },
                "required": ["order", "carrier"],
                "additionalProperties": False,
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "count",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
    },
]
SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
# The Hermes form, as Qwen2.5's template writes it.
TEMPLATE = """\
{%- if tools %}{{- '<|im_start|>system\\nTools, called in <tool_call></tool_call>:' }}
    {%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}{{- '<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages %}
    {%- if m.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
    {%- else %}
        {{- '<|im_start|>' + m.role + '\\n' + m.content }}
        {%- for call in m.tool_calls or [] %}
            {{- ('\\n' if m.content or not loop.first else '') + '<tool_call>\\n{"name": "' }}
            {{- call.function.name + '", "arguments": ' }}
            {{- (call.function.arguments | tojson) + '}\\n</tool_call>' }}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""


@pytest.fixture(scope="module")
def plant(default_model, tmp_path_factory):
    config = Config(model=str(default_model), cache_size="256MiB", ctx_size=2048, threads=2)
    made = assemble.build(
        config, tmp_path_factory.mktemp("models"), lambda *_: None, lambda _: None
    )
    tokenizer = made.service.tokenizer
    template = ChatTemplate(tokenizer, TEMPLATE)
    yield replace(made, service=replace(made.service, template=template))
    made.stop()


@pytest.fixture
def client(plant, live_of):
    url = f"{live_of(plant.service).url}/v1"
    with openai.OpenAI(base_url=url, api_key="k", max_retries=0, timeout=300) as made:
        yield made


def ask(client, messages=TALK, **fields):
    fields = {"max_tokens": 200, "temperature": 0, **fields}
    model = client.models.list().data[0].id
    return client.chat.completions.create(model=model, messages=messages, **fields)


@pytest.mark.parametrize("temperature", [0, 1, 3])
@pytest.mark.parametrize("choice", ["required", "track"])
def test_a_forced_call_parses_against_its_schema(client, choice, temperature):
    named = {"type": "function", "function": {"name": choice}}
    answer = ask(
        client,
        tools=TOOLS,
        tool_choice=choice if choice == "required" else named,
        parallel_tool_calls=False,
        temperature=temperature,
        seed=5,
    ).choices[0]
    assert answer.finish_reason == "tool_calls" and answer.message.content is None
    (call,) = answer.message.tool_calls
    assert choice in ("required", call.function.name)
    jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])


@pytest.mark.parametrize("temperature", [0, 0.7, 2, 5])
def test_a_schema_gives_valid_json(client, temperature):
    schema = {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON, "strict": True}}
    answers = ask(client, response_format=schema, temperature=temperature, seed=1, n=3).choices
    for answer in answers:
        assert answer.finish_reason == "stop"
        jsonschema.validate(json.loads(answer.message.content), PERSON)
    alone = ask(client, temperature=0, max_tokens=8)
    assert alone.choices[0].message.content


def test_an_expression_holds_in_completions(client):
    model = client.models.list().data[0].id
    made = client.completions.create(
        model=model,
        prompt="The date is",
        max_tokens=40,
        temperature=2,
        seed=3,
        extra_body={"regex": " [0-9]{4}-[0-9]{2}-[0-9]{2}"},
    ).choices[0]
    assert (len(made.text), made.finish_reason) == (11, "stop")
    assert made.text.replace("-", "").strip().isdigit()


def test_a_guided_row_changes_no_other(plant, client):
    """A free greedy answer is the same beside rows that are held to a schema."""
    alone = ask(client, max_tokens=24).choices[0].message.content
    beside = client.with_options(timeout=300)
    busy = threading.Thread(
        target=lambda: ask(beside, response_format={"type": "json_object"}, temperature=1, n=3)
    )
    busy.start()
    together = ask(client, max_tokens=24).choices[0].message.content
    busy.join(120)
    assert together == alone


def test_a_round_trip_reuses_the_whole_conversation(client):
    named = {"type": "function", "function": {"name": "track"}}
    first = ask(client, tools=TOOLS, tool_choice=named, parallel_tool_calls=False)
    message = first.choices[0].message
    result = {
        "role": "tool",
        "tool_call_id": message.tool_calls[0].id,
        "content": "It is in the harbour.",
    }
    history = [*TALK, message.model_dump(exclude_none=True), result]
    second = ask(client, history, tools=TOOLS, max_tokens=8)
    # And of the call what the model wrote in the tokens that its text has when it comes back.
    reused = second.usage.prompt_tokens_details.cached_tokens
    assert reused >= first.usage.prompt_tokens + 10
    assert second.usage.prompt_tokens > reused
