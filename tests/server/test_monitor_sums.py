"""The table, the totals and /metrics agree after 500 random requests, a third of them cancelled."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import random
import threading
from collections import Counter

from prometheus_client.parser import text_string_to_metric_families
from server.world import World, raw, tokens_of

COUNT, CLIENTS = 500, 8


def play(world: World, seed: int, count: int, told: list[dict]) -> None:
    """`count` requests of one client; what it was told of usage."""
    rng = random.Random(seed)
    stems = [tokens_of(50 + i, 200) for i in range(3)]
    for _ in range(count):
        prompt = [*rng.choice(stems)[: rng.randrange(1, 200)], *tokens_of(rng.randrange(99), 9)]
        body = {"prompt": prompt, "max_tokens": rng.randrange(1, 40),
                "cache_prompt": rng.random() < 0.9}  # fmt: skip
        if rng.random() < 2 / 3:
            status, answer = world.ask(**body)
            assert status == 200
            told.append(answer["usage"])
            continue
        connection = raw(world, {**body, "stream": True, "max_tokens": 1000, "ignore_eos": True})
        connection.settimeout(rng.choice([0.001, 0.01, 0.03]))
        with contextlib.suppress(TimeoutError):
            connection.recv(1)
        connection.close()


def page(world: World, path: str) -> bytes:
    client = http.client.HTTPConnection("127.0.0.1", world.port, timeout=20)
    client.request("GET", path)
    body = client.getresponse().read()
    client.close()
    return body


def test_the_sums_of_the_table_are_the_counters(service, eventually):
    world = World(service)
    try:
        told: list[dict] = []
        threads = [
            threading.Thread(target=play, args=(world, seed, COUNT // CLIENTS, told))
            for seed in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        # One that was closed before its head was read never reached the engine: make up for those.
        eventually(world.idle, 20)
        while len(world.engine.records) < COUNT:
            told.append(world.ask(prompt=[1, 2, 3], max_tokens=1)[1]["usage"])
        eventually(world.idle, 20)
        check(world, told)
    finally:
        world.close()


def check(world: World, told: list[dict]) -> None:
    table = json.loads(page(world, "/v1/requests"))["data"]
    snapshot = json.loads(page(world, "/v1/monitor?once=1"))
    values = {
        (sample.name, sample.labels.get("finished_reason", "")): sample.value
        for family in text_string_to_metric_families(page(world, "/metrics").decode())
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }

    def metric(name: str, reason: str = "") -> float:
        return values[f"vllm:{name}", reason]

    def column(name: str) -> float:
        return math.fsum(row[name] for row in table)

    assert [row["number"] for row in table] == list(range(COUNT, 0, -1))
    statuses = Counter(row["status"] for row in table)
    assert statuses["cancelled"] > 50 and statuses["length"] > 200
    names = {"cancelled": "abort", "failed": "error"}
    for status in ("stop", "length", "repetition", "cancelled", "failed"):
        name = names.get(status, status)
        assert metric("request_success_total", name) == statuses[status]
        assert snapshot["totals"]["requests"][status] == statuses[status]
    assert metric("generation_tokens_total") == column("output") == snapshot["totals"]["output"]
    assert values["strata_cached_tokens_total", ""] == column("reused") > 1000
    assert snapshot["totals"]["reused"] == column("reused")
    assert metric("request_prompt_tokens_sum") == column("prompt")
    assert metric("request_generation_tokens_sum") == column("output")
    # A cancelled one that never began to run is in no counter of what was read.
    begun = [row for row in table if row["queue_s"] < row["duration_s"]]
    prompts = sum(row["prompt"] for row in begun)
    assert metric("prompt_tokens_total") == prompts == snapshot["totals"]["prompt"]
    for name, figure in (
        ("e2e_request_latency_seconds", "duration_s"),
        ("request_queue_time_seconds", "queue_s"),
        ("request_prefill_time_seconds", "prefill_s"),
        ("request_decode_time_seconds", "decode_s"),
    ):
        assert metric(f"{name}_count") == COUNT
        assert math.isclose(metric(f"{name}_sum"), column(figure), rel_tol=1e-9)
    # What clients were told of their own requests is in the table, request by request.
    usages = Counter(
        (u["prompt_tokens"], u["prompt_tokens_details"]["cached_tokens"], u["completion_tokens"])
        for u in told
    )
    rows = Counter((row["prompt"], row["reused"], row["output"]) for row in table)
    assert usages <= rows
    assert snapshot["queue"]["running"] == snapshot["queue"]["queued"] == 0
    for row in table:
        assert row["queue_s"] + row["prefill_s"] + row["decode_s"] <= row["duration_s"] + 1e-6
