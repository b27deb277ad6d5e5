"""The Monitor before the real engine: streams, rows that read and decode, the tree, the end."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from server.world import World, raw, tokens_of


class Stream:
    """A connection to /v1/monitor, read event by event."""

    def __init__(self, port: int, key: str = "") -> None:
        self.client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self.client.request("GET", "/v1/monitor", headers={"authorization": f"Bearer {key}"})
        self.response = self.client.getresponse()

    def next(self) -> dict | None:
        """The next snapshot; None at the end of the stream."""
        lines = []
        while line := self.response.readline():
            if line == b"\n":
                assert lines[0] == b"event: snapshot" and lines[1].startswith(b"data: ")
                return json.loads(lines[1][6:])
            lines.append(line.rstrip(b"\n"))
        return None

    def close(self) -> None:
        self.client.close()


@contextmanager
def watching(world: World, key: str = "") -> Iterator[Stream]:
    stream = Stream(world.port, key)
    try:
        yield stream
    finally:
        stream.close()


@pytest.fixture
def world(service):
    made = World(service)
    yield made
    made.close()


def get(world: World, path: str, key: str = "") -> tuple[int, dict]:
    client = http.client.HTTPConnection("127.0.0.1", world.port, timeout=20)
    client.request("GET", path, headers={"authorization": f"Bearer {key}"})
    response = client.getresponse()
    answer = response.status, json.loads(response.read())
    client.close()
    return answer


def slow_down(world: World) -> None:
    """From now on a step takes 20 ms more."""
    forward = world.model.forward

    def slow(plan):
        time.sleep(0.02)
        return forward(plan)

    world.model.forward = slow


def test_two_rows_are_seen_reading_at_once_and_then_decoding(world):
    """Reading 1,600 tokens in steps of 64 takes half a second."""
    slow_down(world)
    world.pulse._beat_s = 0.05
    with watching(world) as stream:
        first = stream.next()
        assert (first["rows"], first["finished"], first["server"]["state"]) == ([], [], "idle")
        body = {"max_tokens": 40, "ignore_eos": True, "stream": True}
        clients = [raw(world, {**body, "prompt": tokens_of(i, 800)}) for i in (1, 2)]
        seen: dict[str, list[dict]] = {}
        together, finished, states = set(), [], set()
        while len(finished) < 2:
            event = stream.next()
            finished += event["finished"]
            states.add(event["server"]["state"])
            together.add(tuple(sorted(row["status"] for row in event["rows"])))
            ended = {row["id"] for row in finished}
            for row in event["rows"]:
                assert row["id"] not in ended
                seen.setdefault(row["id"], []).append(row)
        for client in clients:
            client.close()
    assert ("reading", "reading") in together and ("decoding", "decoding") in together
    assert {"reading", "answering"} <= states
    for rows in seen.values():
        reads = [row["read"] for row in rows if row["status"] == "reading"]
        assert len(set(reads)) > 3 and reads == sorted(reads) and all(0 <= r <= 800 for r in reads)
        outputs = [row["output"] for row in rows if row["status"] == "decoding"]
        assert outputs == sorted(outputs) and outputs[-1] > outputs[0]
        rates = [row["decode_rate"] for row in rows if row["decode_rate"]]
        assert rates and all(5 < rate < 60 for rate in rates)  # a step of both takes 20 ms or more
    assert sorted(r["prompt"] for r in finished) == [800, 800]
    assert all((r["output"], r["status"]) == (40, "length") for r in finished)


def test_who_waits_for_a_prefix_and_who_is_queued(world, eventually):
    gate, forward = threading.Semaphore(0), world.model.forward

    def gated(plan):
        assert gate.acquire(timeout=20)
        return forward(plan)

    world.model.forward = gated
    common = tokens_of(3, 800)
    clients = [raw(world, {"prompt": common, "max_tokens": 300, "ignore_eos": True})]
    eventually(lambda: len(world.engine.view.rows) == 1)
    clients += [raw(world, {"prompt": [*common, i], "max_tokens": 2}) for i in range(2)]
    clients += [raw(world, {"prompt": [i], "max_tokens": 300}) for i in range(5)]
    eventually(lambda: len(world.engine._alive) == 8)
    gate.release()  # the next step begins with all of them
    eventually(lambda: len(world.engine.view.rows) == 8)
    snapshot = get(world, "/v1/monitor?once=1")[1]
    states = [row["status"] for row in snapshot["rows"]]
    gate.release(10**6)
    assert states[0] == "reading" and states.count("waiting") == 2 and states.count("queued") == 2
    assert snapshot["queue"] == {"running": 4, "queued": 2, "waiting": 2, "batch": 4}
    for client in clients:
        client.close()


def test_a_cancelled_request_is_shown_as_closed(world):
    slow_down(world)  # its end is far away when the client leaves
    with watching(world) as stream:
        world.pulse._beat_s = 0.05
        stream.next()
        client = raw(world, {"prompt": [1, 2], "max_tokens": 4000, "ignore_eos": True})
        while not (rows := stream.next()["rows"]):
            pass
        client.close()
        while not (finished := (event := stream.next())["finished"]):
            pass
        assert event["rows"] == []
        assert (finished[0]["id"], finished[0]["status"]) == (rows[0]["id"], "cancelled")
        assert finished[0]["reason"] == "the client left"


def test_the_first_event_has_the_last_100_and_later_ones_what_is_new(world):
    world.pulse._beat_s = 0.05
    for i in range(103):
        world.ask(prompt=[i], max_tokens=1)
    with watching(world) as stream:
        numbers = [row["number"] for row in stream.next()["finished"]]
        assert numbers == list(range(103, 3, -1))
        assert stream.next()["finished"] == []
        world.ask(prompt=[7], max_tokens=1)
        while not (new := stream.next()["finished"]):
            pass
        assert [row["number"] for row in new] == [104]
    with watching(world) as stream:
        assert [row["number"] for row in stream.next()["finished"]] == list(range(104, 4, -1))


def test_a_watcher_that_sleeps_misses_no_finished_request(world, eventually):
    world.pulse._beat_s = 0.01
    with watching(world) as stream:
        assert stream.next()["finished"] == []
        for i in range(20):
            world.ask(prompt=[i], max_tokens=1)
        found: list[int] = []
        while len(found) < 20:
            found += [row["number"] for row in stream.next()["finished"]][::-1]
        assert found == list(range(1, 21))


def test_the_stream_ends_with_the_server(service):
    world = World(service)
    with watching(world) as stream:
        stream.next()
        begun = time.monotonic()
        world.close()
        while stream.next() is not None:
            pass
        assert time.monotonic() - begun < 5  # uvicorn's grace is ten seconds


def test_a_hundred_watchers_cost_one_building(world, eventually, monkeypatch):
    world.pulse._beat_s = 0.2
    built, build = [], world.pulse._build

    async def counted():
        built.append(1)
        return await build()

    monkeypatch.setattr(world.pulse, "_build", counted)
    streams = [Stream(world.port) for _ in range(100)]
    times = [[stream.next()["time"] for _ in range(3)] for stream in streams]
    assert len({time for told in times for time in told}) <= len(built)
    count = len(built)
    for stream in streams:
        stream.next()
    assert len(built) - count <= 20  # not 100: what lies in their buffers is older
    for stream in streams:
        stream.close()
    eventually(lambda: world.pulse._task.done())
    count = len(built)
    time.sleep(0.5)
    assert len(built) == count  # nobody watches
    assert "strata_client_disconnects_total 0.0" in page(world)


def page(world: World) -> str:
    client = http.client.HTTPConnection("127.0.0.1", world.port, timeout=20)
    client.request("GET", "/metrics")
    text = client.getresponse().read().decode()
    client.close()
    return text


def test_the_key_is_needed(service):
    world = World(service, keys=("one", "two"))
    try:
        for path in ("/v1/monitor", "/v1/monitor?once=1", "/v1/about", "/v1/cache/tree"):
            assert get(world, path)[0] == 401
        assert get(world, "/v1/monitor?once=1", "one")[0] == 200
        with watching(world, "two") as stream:
            assert stream.next()["server"]["state"] == "idle"
    finally:
        world.close()


def test_the_tree_has_what_is_cached_and_its_text_is_for_the_owner(service):
    world = World(service, keys=("one", "two"))
    try:
        text = "the quick brown fox jumps over the lazy dog. " * 4
        stem = list(text.encode())
        world.ask("one", prompt=[*stem, *b"first"], max_tokens=1)
        world.ask("one", prompt=[*stem, *b"second!"], max_tokens=1)
        world.ask("two", prompt=tokens_of(9, 40), max_tokens=1)
        world.ask("two", prompt=tokens_of(9, 40), max_tokens=1, cache_salt="s")
        tree = get(world, "/v1/cache/tree", "one")[1]
        assert tree["shown"] == tree["total"] == world.engine.snapshot().pages_cached
        mine = [node for node in tree["nodes"] if node["own"]]
        assert len({node["namespace"] for node in tree["nodes"]}) == 3
        top = [node for node in mine if node["parent"] is None]
        below = [node for node in mine if node["parent"] == top[0]["id"]]
        assert len(top) == 1 and len(below) == 2 and len(mine) == 3
        assert top[0]["tokens"] == top[0]["depth_tokens"] == len(stem) // 16 * 16
        assert top[0]["hits"] == 1 and 0 <= top[0]["last_used_s"] < 60
        assert sum(node["bytes"] for node in tree["nodes"]) == (
            tree["total"] * world.engine.snapshot().page_bytes
        )
        texts = {get(world, f"/v1/cache/text?node={n['id']}", "one")[1]["text"] for n in below}
        assert {t[: len(text) + 5] for t in texts} == {text + "first", text + "secon"}
        answer = get(world, f"/v1/cache/text?node={top[0]['id']}", "one")[1]
        assert answer["text"] == text[: top[0]["tokens"]] and answer["above"] == 0
        for key, path in (("two", top[0]["id"]), ("one", 10**6), ("one", other(tree))):
            assert get(world, f"/v1/cache/text?node={path}", key)[0] == 404
        salted = [node for node in get(world, "/v1/cache/tree", "two")[1]["nodes"]
                  if node["tokens"] == 40 and not node["own"]]  # fmt: skip
        ask = f"/v1/cache/text?node={salted[0]['id']}"
        assert get(world, ask, "two")[0] == 404
        assert get(world, f"{ask}&cache_salt=s", "two")[0] == 200
        assert len(get(world, "/v1/cache/tree?limit=1", "one")[1]["nodes"]) == 1
        flat = get(world, "/v1/cache/tree?depth=1", "one")[1]
        assert {node["parent"] for node in flat["nodes"]} == {None}
        for bad in ("limit=0", "limit=x", "depth=-1", "depth=1000"):
            status, answer = get(world, f"/v1/cache/tree?{bad}", "one")
            assert (status, answer["error"]["param"]) == (400, bad.split("=")[0])
    finally:
        world.close()


def other(tree: dict) -> int:
    return next(node["id"] for node in tree["nodes"] if not node["own"])
