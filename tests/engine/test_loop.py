"""The engine's own thread, and its two faces: asynchronous and plain."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing

import pytest
from scripted import ScriptedModel, generate

from strata.engine.client import EngineClient
from strata.engine.loop import Engine
from strata.engine.settings import EngineSettings
from strata.types import (
    ConfigError,
    DoneEvent,
    Event,
    FailedEvent,
    Finish,
    Request,
    RequestError,
    Sampling,
    TokenEvent,
)

pytestmark = pytest.mark.timeout(90)  # a hung answer must not hang the suite


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = started()
    yield made
    made.stop()


def started(model: ScriptedModel | None = None, **settings) -> Engine:
    made = Engine(model or ScriptedModel(), EngineSettings(**settings), pages=500, block=4)
    made.start()
    return made


def request(name: str, words=(1, 2, 3), max_tokens: int = 5, **fields) -> Request:
    fields.setdefault("sampling", Sampling(temperature=0.0))
    return Request(id=name, tokens=tuple(words), max_tokens=max_tokens, **fields)


def until(what, limit: float = 10.0) -> None:
    """Wait for another thread to make `what` true."""
    end = time.monotonic() + limit
    while not what():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.002)


def test_plain_iteration(engine: Engine) -> None:
    asked = request("a", range(20), 9)
    events = list(generate(engine, asked))
    assert [type(e) for e in events] == [TokenEvent] * 9 + [DoneEvent]
    assert [e.token for e in events[:-1]] == [
        e.token for e in engine.core.runner.model.answer(asked)
    ]


def test_async_iteration_of_many_at_once(engine: Engine) -> None:
    model = engine.core.runner.model
    asked = [request(f"r{i}", range(i % 7, 30), 5 + i) for i in range(20)]

    async def one(client: EngineClient, ask: Request) -> list[Event]:
        return [event async for event in client.submit(ask)]

    async def main() -> list[list[Event]]:
        client = EngineClient(engine)
        assert client.ready and client.error is None
        return await asyncio.gather(*(one(client, ask) for ask in asked))

    for ask, events in zip(asked, asyncio.run(main()), strict=True):
        assert isinstance(events[-1], DoneEvent)
        assert [e.token for e in events[:-1]] == [e.token for e in model.answer(ask)]


def test_one_wakeup_of_the_event_loop_per_step() -> None:
    model = ScriptedModel()
    engine = Engine(model, EngineSettings(batch=8), pages=500, block=4)  # stepped by hand

    async def main() -> None:
        client = EngineClient(engine)
        loop = asyncio.get_running_loop()
        streams = [client.submit(request(f"r{i}", (i, 1, 2), 6)) for i in range(8)]
        calls = 0
        real = loop.call_soon_threadsafe

        def counted(*args, **kwargs):
            nonlocal calls
            calls += 1
            return real(*args, **kwargs)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        while engine.turn():
            pass
        assert calls == len(model.plans)
        for stream in streams:
            assert len([event async for event in stream]) == 7

    asyncio.run(main())


@pytest.mark.parametrize("how", ["aclose", "task", "drop", "cancel"])
def test_a_client_that_goes_away_frees_its_row(engine: Engine, how: str) -> None:
    async def main() -> None:
        client = EngineClient(engine)
        loop = asyncio.get_running_loop()

        async def reader() -> None:
            async with aclosing(client.submit(request("a", max_tokens=3000))) as events:
                async for _ in events:
                    pass

        if how == "task":
            task = asyncio.create_task(reader())
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            stream = client.submit(request("a", max_tokens=3000))
            first = await anext(stream)
            assert isinstance(first, TokenEvent)
            if how == "aclose":
                await stream.aclose()
                with pytest.raises(StopAsyncIteration):
                    await anext(stream)
            elif how == "cancel":
                engine.cancel("a")
                events = [event async for event in stream]
                assert isinstance(events[-1], DoneEvent)
                assert events[-1].finish is Finish.CANCELLED
            else:
                del stream
                gc.collect()
        await loop.run_in_executor(None, until, lambda: not engine.core.busy)
        now = client.snapshot()
        assert now.running == 0 and now.requests["cancelled"] == 1
        assert now.pages_free + now.pages_cached == now.pages_total
        assert client.records()[0].status == "cancelled"

    asyncio.run(main())


def test_closing_a_plain_iterator_cancels(engine: Engine) -> None:
    events = generate(engine, request("a", max_tokens=3000))
    assert isinstance(next(events), TokenEvent)
    events.close()  # type: ignore[attr-defined]
    until(lambda: not engine.core.busy)
    assert engine.snapshot().requests["cancelled"] == 1


def test_a_closed_event_loop_does_not_hurt_others(engine: Engine) -> None:
    async def leave() -> object:
        client = EngineClient(engine)
        return client.submit(request("gone", max_tokens=200))

    kept = asyncio.run(leave())  # the loop is closed, the request still runs
    assert len(list(generate(engine, request("here")))) == 6
    until(lambda: not engine.core.busy)
    assert engine.error is None and kept is not None


def test_idle_it_sleeps(engine: Engine) -> None:
    list(generate(engine, request("a")))
    until(lambda: not engine.core.busy)
    before, cpu = engine.core.counters.steps, time.process_time()
    time.sleep(0.4)
    assert time.process_time() - cpu < 0.2
    assert engine.core.counters.steps == before


def test_refusals_are_raised_at_once(engine: Engine) -> None:
    async def main() -> None:
        client = EngineClient(engine)
        with pytest.raises(RequestError):
            client.submit(request("a", ()))
        assert (await client.clear_cache()).pages == 0

    asyncio.run(main())
    with pytest.raises(RequestError):
        generate(engine, request("a", range(61), 5, sampling=Sampling(logit_bias=((99, 1.0),))))


def test_the_queue_is_bounded() -> None:
    model = ScriptedModel()
    gate = threading.Event()
    model.cost = lambda plan: gate.wait(20) * 0.0
    engine = started(model, batch=1, max_queue=2)
    try:
        streams = [generate(engine, request(f"r{i}")) for i in range(3)]
        with pytest.raises(RequestError) as caught:
            generate(engine, request("more"))
        assert caught.value.status == 429 and caught.value.retry_after is not None
        gate.set()
        assert all(len(list(stream)) == 6 for stream in streams)
        assert len(list(generate(engine, request("more")))) == 6
    finally:
        gate.set()
        engine.stop()


def test_stopping_tells_those_who_wait() -> None:
    engine = started()
    events = generate(engine, request("a", max_tokens=3900))
    next(events)
    engine.stop()
    last = list(events)[-1]
    assert isinstance(last, FailedEvent) and last.status == 503
    assert not engine.ready
    with pytest.raises(RequestError) as caught:
        generate(engine, request("b"))
    assert caught.value.status == 503


def test_a_broken_engine_says_so_and_hangs_nobody() -> None:
    engine = started(batch=1)
    events = generate(engine, request("a", max_tokens=3900))
    waiting = generate(engine, request("b"))
    next(events)

    def broken() -> None:
        raise AssertionError("two owners of one page")

    engine.core.scheduler.schedule = broken  # type: ignore[method-assign,assignment]
    for stream in (events, waiting):
        last = list(stream)[-1]
        assert isinstance(last, FailedEvent) and last.status == 503
    assert engine.error is not None and "two owners" in engine.error
    until(lambda: not engine.ready)
    with pytest.raises(RequestError) as caught:
        generate(engine, request("c"))
    assert caught.value.status == 503
    with pytest.raises(RequestError):
        engine.clear_cache()
    engine.stop()


def test_a_failing_step_does_not_stop_the_thread(engine: Engine) -> None:
    model = engine.core.runner.model
    model.fail = lambda plan: True
    assert isinstance(list(generate(engine, request("a")))[-1], FailedEvent)
    model.fail = lambda plan: False
    assert isinstance(list(generate(engine, request("b")))[-1], DoneEvent)
    assert engine.ready


def test_the_engine_thread_gets_the_interpreter_back_soon(engine: Engine) -> None:
    assert sys.getswitchinterval() <= 0.001


@pytest.mark.parametrize(
    "fields",
    [
        {"batch": 0},
        {"prefill_chunk": 0},
        {"mixed_chunk": -1},
        {"decode_share": 1.0},
        {"max_queue": -1},
    ],
)
def test_senseless_settings(fields) -> None:
    with pytest.raises(ConfigError) as caught:
        EngineSettings(**fields)
    assert next(iter(fields)) in str(caught.value)


def test_storm_of_threads(engine: Engine) -> None:
    """Many threads ask, read a little and leave; nobody hears a wrong token."""
    model = engine.core.runner.model
    wrong: list[str] = []

    def client(name: int) -> None:
        for turn in range(12):
            ask = request(f"{name}-{turn}", range(turn % 5, 20 + name), 12)
            want = [e.token for e in model.answer(ask)]
            heard: list[int] = []
            events = generate(engine, ask)
            for event in events:
                if isinstance(event, TokenEvent):
                    heard.append(event.token)
                if len(heard) == 3 and turn % 3 == 0:
                    events.close()  # type: ignore[attr-defined]
                    break
            if heard != want[: len(heard)] or (turn % 3 and heard != want):
                wrong.append(ask.id)

    threads = [threading.Thread(target=client, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    until(lambda: not engine.core.busy)
    now = engine.snapshot()
    assert now.pages_free + now.pages_cached == now.pages_total
    assert sum(now.requests.values()) == 96 and not engine._alive
    assert not model.wrong
