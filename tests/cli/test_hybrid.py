"""A small hybrid model behind the whole server, with its own tokenizer and chat template."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from strata.cli import assemble
from strata.server.app import create_app
from strata.server.service import Lobby
from strata.settings import Config
from strata.synth import gguf_file
from strata.synth.shape import FAMILIES, Shape
from strata.types import ConfigError, silent

STORY = "Once upon a time there was a cache that remembered every word it had read. " * 12


class Client:
    """The routes, called in this process."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def __call__(self, method: str, path: str, body: object = None) -> Any:
        async def call() -> Any:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost", timeout=60
            ) as client:
                response = await client.request(method, path, json=body)
                assert response.status_code == 200, response.text
                return response.json()

        return asyncio.run(call())

    def chat(self, *messages: dict[str, Any], **fields: Any) -> tuple[str, dict[str, int]]:
        """The answer, and tokens: prompt, reused."""
        body = {"messages": messages, "temperature": 0, "max_tokens": 9, **fields}
        answer = self("POST", "/v1/chat/completions", body)
        usage = answer["usage"]
        reused = usage["prompt_tokens_details"]["cached_tokens"]
        text = answer["choices"][0]["message"]["content"]
        return text, {"prompt": usage["prompt_tokens"], "reused": reused}

    def length(self, *messages: dict[str, Any]) -> int:
        """Tokens of a rendered chat without the header of an answer."""
        body = {"messages": messages, "add_generation_prompt": False}
        return int(self("POST", "/tokenize", body)["count"])


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    path = tmp_path_factory.mktemp("hybrid") / "tiny.gguf"
    shape = Shape(
        layers=3, interval=3, hidden=64, heads=2, kv_heads=1, head_dim=32, ffn=64, vocab=1024,
        key_heads=2, value_heads=2, state_dim=16, context=2048,
    )  # fmt: skip
    gguf_file.write(path, FAMILIES["qwen3_5"], shape, "Q8_0", 1, silent)
    facts: list[str] = []
    config = Config(model=str(path), cache_size="32MiB", threads=1)
    plant = assemble.build(config, tmp_path_factory.mktemp("none"), silent, facts.append)
    assert any("states" in fact for fact in facts), "the memory plan has the states"
    yield Client(create_app(Lobby(plant.service)))
    plant.stop()


def user(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


def test_turns_reuse_at_least_the_stable_part_of_the_one_before(client: Client) -> None:
    history = [{"role": "system", "content": STORY}, user("Tell me more.")]
    stable = 0
    for turn in range(4):
        text, tokens = client.chat(*history)
        assert (tokens["reused"] >= stable > 0) if turn else tokens["reused"] == 0
        stable = client.length(*history)
        history += [{"role": "assistant", "content": text}, user(f"And then, number {turn}?")]
    cold, tokens = client.chat(*history, cache_prompt=False)
    assert tokens["reused"] == 0
    assert client.chat(*history)[0] == cold


def test_an_anchor_is_where_another_user_resumes(client: Client) -> None:
    first = [user("Read this: " + STORY), {"role": "assistant", "content": "I have."}]
    place = client.length(*first)
    marked = [first[0], {**first[1], "cache_anchor": True}]
    assert client.chat(*marked, user("Who is it about?"))[1]["reused"] == 0
    assert client.chat(*first, user("What is it called?"))[1]["reused"] == place


def test_what_is_cached_is_told_and_dropped(client: Client) -> None:
    client.chat(user("Hello."))
    told = client("GET", "/v1/cache")
    assert told["states"]["cached"] >= 2 and told["pages"]["cached"] >= 1
    assert told["states"]["bytes_budget"] > 0
    freed = client("DELETE", "/v1/cache")
    assert freed["states_freed"] == told["states"]["cached"]
    assert freed["pages_freed"] == told["pages"]["cached"]
    left = client("GET", "/v1/cache")
    assert left["pages"]["free"] == left["pages"]["total"]
    assert left["states"]["free"] == left["states"]["total"]
    assert client.chat(user("Hello."))[1]["reused"] == 0


def test_ngrams_are_the_same_from_a_cache_and_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    shape = Shape(
        layers=3, interval=3, hidden=64, heads=2, kv_heads=1, head_dim=32, ffn=64, vocab=1024,
        key_heads=2, value_heads=2, state_dim=16, context=2048, experts=4, top_k=2, expert_ffn=32,
        shared_ffn=32, streams=4, stream_rank=8, index_heads=2, index_dim=16, index_budget=64,
        index_ratio=4, ngram_heads=4, ngram_vocab=200,
    )  # fmt: skip
    gguf_file.write(path, FAMILIES["qwen4_exp"], shape, "F32", 1, silent)
    answers, told = [], []
    for size in ("0", "64MiB"):
        facts: list[str] = []
        config = Config(str(path), cache_size="32MiB", threads=1, ngram_cache=size)
        plant = assemble.build(config, tmp_path, silent, facts.append)
        client = Client(create_app(Lobby(plant.service)))
        answers.append([client.chat(user(STORY), max_tokens=20) for _ in range(2)])
        told.append(client("GET", "/v1/experts")["ngram_rows"])
        plant.stop()
    assert answers[0] == answers[1] and told[0] is None
    assert told[1]["hits"] and told[1]["bytes"] and told[1]["hit_rate"] > 0.5

    config = Config(str(path), cache_size="32MiB", prefill_chunk=4096, ngram_cache="4KiB")
    with pytest.raises(ConfigError, match="set --ngram-cache to at least 1MiB"):
        assemble.build(config, tmp_path, silent, facts.append)
