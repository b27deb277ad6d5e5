"""The official client against the server on a socket."""

from __future__ import annotations

import asyncio

import anthropic
import pytest

from strata.types import FailedEvent, RequestError

ASK = {"model": "toy", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
TOOL = {
    "name": "weather",
    "description": "How it is somewhere.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}},
}
CALL = (
    "<think>Look.</think>Let me see."
    '<tool_call>{"name": "weather", "arguments": {"place": "Paris, \\"FR\\""}}</tool_call>'
)


@pytest.fixture
def client(live):
    with anthropic.Anthropic(base_url=live.url, api_key="EMPTY", max_retries=0) as made:
        yield made


def test_create(client, engine):
    engine.cached = 4
    answer = client.messages.create(**ASK, system="Be kind.", stop_sequences=["o"])
    assert answer.content[0].text == "Hell" and answer.role == "assistant"
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "o")
    usage = answer.usage
    assert usage.cache_read_input_tokens == 4 and usage.output_tokens == 5
    assert answer._request_id.startswith("req_")


def test_raw_stream(client):
    kinds = [event.type for event in client.messages.create(**ASK, stream=True)]
    assert kinds == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * 5,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_stream_helper(client):
    with client.messages.stream(**ASK) as stream:
        assert "".join(stream.text_stream) == "Hello"
        assert stream.get_final_message().usage.output_tokens == 6


def test_a_round_trip_of_a_tool(client, engine, speak, template):
    """The answer goes back as the client has it, with what the tool returned."""
    engine.script = speak(CALL)
    with client.messages.stream(**ASK, tools=[TOOL]) as stream:
        first = stream.get_final_message()
    assert first.stop_reason == "tool_use"
    use = first.content[2]
    assert (use.name, use.input) == ("weather", {"place": 'Paris, "FR"'})
    again = client.messages.create(**ASK, tools=[TOOL])
    assert [b.type for b in again.content] == ["thinking", "text", "tool_use"]
    engine.script = speak("Rain.")
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "rain", "is_error": False}
    messages = [
        *ASK["messages"],
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    answer = client.messages.create(**{**ASK, "messages": messages}, tools=[TOOL])
    assert answer.content[0].text == "Rain." and answer.stop_reason == "end_turn"
    _, assistant, tool = template.seen[-1]["messages"]
    assert assistant["reasoning_content"] == "Look." and assistant["content"] == "Let me see."
    assert assistant["tool_calls"][0]["function"]["arguments"] == use.input
    assert tool == {"role": "tool", "tool_call_id": use.id, "content": "rain"}


def test_thinking(client, engine, speak):
    engine.script = speak("<think>Well.</think>Yes")
    answer = client.messages.create(
        **{**ASK, "max_tokens": 3000}, thinking={"type": "enabled", "budget_tokens": 1024}
    )
    thought, said = answer.content
    assert thought.thinking == "Well." and thought.signature and said.text == "Yes"
    with client.messages.stream(
        **{**ASK, "max_tokens": 3000}, thinking={"type": "adaptive"}
    ) as stream:
        thoughts = [event.thinking for event in stream if event.type == "thinking"]
    assert "".join(thoughts) == "Well."
    assert stream.get_final_message().content[0].signature == thought.signature


def test_count_tokens(client):
    body = {**ASK, "system": "Be kind.", "tools": [TOOL]}
    usage = client.messages.create(**body).usage
    del body["max_tokens"]
    counted = client.messages.count_tokens(**body).input_tokens
    created, read = usage.cache_creation_input_tokens, usage.cache_read_input_tokens
    assert counted == usage.input_tokens + created + read > 30


def test_models(client):
    (model,) = client.models.list()
    assert (model.id, model.type, model.display_name) == ("toy", "model", "lab/toy")
    assert model.created_at.timestamp() == 1700000000
    assert client.models.retrieve("gpt-toy").id == "gpt-toy"
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("other")


def test_betas_are_tolerated(client):
    answer = client.beta.messages.create(
        **ASK,
        betas=["context-management-2025-06-27", "interleaved-thinking-2025-05-14"],
        context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
        output_config={"effort": "low"},
        metadata={"user_id": "u"},
        service_tier="auto",
        cache_control={"type": "ephemeral"},
    )
    assert answer.content[0].text == "Hello"


def test_any_claude_is_the_served_model(client):
    assert client.messages.create(**{**ASK, "model": "claude-opus-4-6"}).model == "toy"
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(**{**ASK, "model": "other"})


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, anthropic.BadRequestError, "invalid_request_error"),
        (429, anthropic.RateLimitError, "rate_limit_error"),
        (500, anthropic.InternalServerError, "api_error"),
        (503, anthropic.APIStatusError, "overloaded_error"),
        (504, anthropic.APIStatusError, "timeout_error"),
    ],
)
def test_errors(client, engine, status, error, kind):
    engine.refusal = RequestError("so it is", status=status, retry_after=3)
    with pytest.raises(error, match="so it is") as caught:
        client.messages.create(**ASK)
    assert (caught.value.status_code, caught.value.type) == (status, kind)
    assert caught.value.request_id == caught.value.body["request_id"]
    assert caught.value.response.headers["retry-after"] == "3"


def test_an_error_within_a_stream(client, engine):
    def script(request):
        yield 97
        yield FailedEvent(request.id, "it broke")

    engine.script = script
    with pytest.raises(anthropic.APIStatusError, match="it broke"):
        list(client.messages.create(**ASK, stream=True))


def forever(request):
    while True:
        yield 0.005
        yield 97


def test_closing_early_cancels(client, engine, eventually):
    engine.script = forever
    stream = client.messages.create(**ASK, stream=True)
    next(iter(stream))
    stream.close()
    eventually(lambda: engine.cancelled)


def test_the_async_client(live, engine, eventually):
    engine.script = forever

    async def leave() -> None:
        async with (
            anthropic.AsyncAnthropic(base_url=live.url, api_key="EMPTY", max_retries=0) as client,
            client.messages.stream(**ASK) as stream,
        ):
            async for text in stream.text_stream:
                assert text == "a"
                break

    asyncio.run(leave())
    eventually(lambda: engine.cancelled)
