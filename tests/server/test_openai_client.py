"""The official client against the server on a socket."""

from __future__ import annotations

import openai
import pytest

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture
def client(live):
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="EMPTY", max_retries=0) as made:
        yield made


def test_models(client):
    assert [m.id for m in client.models.list()] == ["toy"]
    assert client.models.retrieve("toy").owned_by == "strata"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_chat(client, engine):
    engine.cached = 4
    answer = client.chat.completions.create(model="toy", messages=MESSAGES, n=2)
    assert [c.message.content for c in answer.choices] == ["Hello", "Hello"]
    assert answer.usage.prompt_tokens_details.cached_tokens == 4


def test_chat_stream(client):
    stream = client.chat.completions.create(
        model="toy", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == "Hello"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 6


def test_stream_helper(client):
    with client.chat.completions.stream(model="toy", messages=MESSAGES) as stream:
        completion = stream.until_done().get_final_completion()
    assert completion.choices[0].message.content == "Hello"


def test_chat_logprobs(client):
    answer = client.chat.completions.create(
        model="toy", messages=MESSAGES, logprobs=True, top_logprobs=3
    )
    first = answer.choices[0].logprobs.content[0]
    assert first.token == "H" and len(first.top_logprobs) == 3


def test_completion_with_echo_and_logprobs(client):
    answer = client.completions.create(
        model="toy", prompt="ab", echo=True, logprobs=2, max_tokens=1
    )
    choice = answer.choices[0]
    assert choice.text == "abH"
    assert choice.logprobs.tokens == ["<s>", "a", "b", "H"]
    assert choice.logprobs.token_logprobs[0] is None
    assert set(choice.logprobs.top_logprobs[3]) == {"H", "I"}


def test_completion_of_token_lists_streamed(client):
    stream = client.completions.create(model="toy", prompt=[[97], [98]], stream=True)
    texts = {0: "", 1: ""}
    for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == {0: "Hello", 1: "Hello"}


def test_closing_early_cancels(client, engine, eventually):
    def forever(request):
        while True:
            yield 0.005
            yield 97

    engine.script = forever
    stream = client.chat.completions.create(model="toy", messages=MESSAGES, stream=True)
    next(iter(stream))
    stream.close()
    eventually(lambda: engine.cancelled)


def test_errors(client, engine):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="toy", messages=MESSAGES, temperature=-1)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=MESSAGES)
    from strata.types import FailedEvent, RequestError

    engine.refusal = RequestError("full", status=429, retry_after=3)
    with pytest.raises(openai.RateLimitError) as full:
        client.chat.completions.create(model="toy", messages=MESSAGES)
    assert full.value.response.headers["retry-after"] == "3"
    engine.refusal = None
    engine.script = lambda request: [97, FailedEvent(request.id, "broken", 500)]
    with pytest.raises(openai.APIError, match="broken"):
        list(client.chat.completions.create(model="toy", messages=MESSAGES, stream=True))
