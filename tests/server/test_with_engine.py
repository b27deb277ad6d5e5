"""The server in front of the real engine and cache, with a model that needs no weights.

Over sockets and with threads: what is reused, what a client that leaves gives back, and
that every answer is the one the model gives to that prompt alone.
"""

from __future__ import annotations

import contextlib
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from server.world import QUEUE, World, raw, tokens_of

from strata.types import Finish


@pytest.fixture
def world(service):
    made = World(service)
    yield made
    made.close()


def cached(answer: dict) -> int:
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_reuse_is_exact_to_the_token_and_told(world):
    prompt = tokens_of(1, 333)
    first = world.ask(prompt=prompt, max_tokens=4, return_token_ids=True)[1]
    assert cached(first) == 0
    assert first["choices"][0]["token_ids"] == world.expected(prompt, 4)
    longer = [*prompt[:301], *tokens_of(2, 50)]
    second = world.ask(prompt=longer, max_tokens=4, return_token_ids=True)[1]
    assert cached(second) == 301
    assert second["choices"][0]["token_ids"] == world.expected(longer, 4)
    assert cached(world.ask(prompt=prompt, max_tokens=1)[1]) == 332
    assert cached(world.ask(prompt=prompt, max_tokens=1, cache_prompt=False)[1]) == 0


def test_a_burst_reads_its_common_prefix_once(world):
    common = tokens_of(3, 800)
    prompts = [[*common, i, *tokens_of(100 + i, 19)] for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda p: world.ask(prompt=p, max_tokens=3)[1], prompts))
    assert world.model.computed <= 800 + 8 * (20 + 3)
    assert sum(cached(a) == 0 for a in answers) == 1
    assert sorted(cached(a) for a in answers)[1:] == [800] * 7


def test_choices_read_their_prompt_once(world):
    prompt = tokens_of(4, 640)
    answer = world.ask(prompt=prompt, max_tokens=2, n=4)[1]
    assert len(answer["choices"]) == 4 and cached(answer) == 0
    assert answer["usage"]["prompt_tokens"] == 640
    assert world.model.computed <= 640 + 4 * 3


def test_salts_and_keys_do_not_share(service):
    world = World(service, keys=("one", "two"))
    try:
        prompt = tokens_of(5, 100)

        def reused(key, salt=None):
            return cached(world.ask(key, prompt=prompt, max_tokens=1, cache_salt=salt)[1])

        assert [reused("one"), reused("one")] == [0, 99]
        assert [reused("two"), reused("two")] == [0, 99]
        assert [reused("one", "s"), reused("one", "s"), reused("one", "t")] == [0, 99, 0]
        assert world.ask("three", prompt=prompt)[0] == 401
    finally:
        world.close()


def test_a_stop_string_is_recorded_as_a_stop(world, eventually):
    prompt = tokens_of(21, 40)
    text = world.ask(prompt=prompt, max_tokens=12)[1]["choices"][0]["text"]
    stop = text[3:6]
    answer = world.ask(prompt=prompt, max_tokens=4000, stop=stop)[1]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["text"] == text[: text.index(stop)]
    eventually(world.idle)
    newest = world.engine.records[0]
    assert newest.status == Finish.STOP.value
    assert newest.output < 4000


def test_scored_prompt(world):
    answer = world.ask(prompt=tokens_of(6, 40), echo=True, logprobs=1, max_tokens=0)[1]
    scores = answer["choices"][0]["logprobs"]["token_logprobs"]
    assert len(scores) == 40 and scores[0] is None and all(s < 0 for s in scores[1:])
    again = world.ask(prompt=tokens_of(6, 40), echo=True, logprobs=1, max_tokens=1)[1]
    assert again["choices"][0]["logprobs"]["token_logprobs"][:40] == scores


def test_full_queue_is_429_and_passes(world, eventually):
    open_ones = [raw(world, {"prompt": [i], "max_tokens": 4000, "ignore_eos": True})
                 for i in range(4 + QUEUE)]  # fmt: skip
    eventually(lambda: len(world.engine._alive) == 4 + QUEUE, 10)
    status, answer = world.ask(prompt=[1], max_tokens=1)
    assert status == 429 and answer["error"]["code"] == "queue_full"
    for connection in open_ones:
        connection.close()
    eventually(world.idle, 10)
    assert world.ask(prompt=[1], max_tokens=1)[0] == 200
    records = world.engine.records
    assert sum(r.status == Finish.CANCELLED for r in records) == 4 + QUEUE


def test_random_clients_a_third_of_which_leave(world, eventually):
    """No wrong token, no leak, no 5xx."""
    stems = [tokens_of(50 + i, 200) for i in range(3)]
    faults: list[str] = []

    def client(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(12):
            stem = rng.choice(stems)
            prompt = [*stem[: rng.randrange(1, 200)], *rng.choices(range(256), k=rng.randrange(40))]
            limit = rng.randrange(1, 30)
            body = {"prompt": prompt, "max_tokens": limit, "return_token_ids": True,
                    "cache_prompt": rng.random() < 0.9}  # fmt: skip
            if rng.random() < 1 / 3:
                connection = raw(world, {**body, "stream": rng.random() < 0.5})
                connection.settimeout(rng.choice([0.001, 0.005, 0.02]))
                with contextlib.suppress(TimeoutError):
                    connection.recv(rng.randrange(1, 300))
                connection.close()
                continue
            status, answer = world.ask(**body)
            if status != 200:
                faults.append(f"{status}: {answer}")
            elif answer["choices"][0]["token_ids"] != world.expected(prompt, limit):
                faults.append(f"wrong tokens for {prompt}")

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not faults
    eventually(world.idle, 10)
    assert world.engine.error is None
    failed = [r for r in world.engine.records if r.status == Finish.FAILED]
    assert not failed and len(world.engine.records) >= 8
