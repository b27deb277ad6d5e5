"""What watching costs: the engine's tokens/s with and without open streams of the Monitor.

    python bench/monitor_cost.py [MODEL.gguf] [--streams 3] [--rounds 20] [--tokens 256]

A server runs in this process as in `strata serve`, and its engine answers four requests at a time;
the streams are read by a process of their own. Rounds have none and all of them open, alternately;
who begins changes from round to round. Printed are the medians of tokens/s and the median of the
ratios within rounds, with the least and the largest; the same of this process's processor time per
token; and what watching takes by clocks of its own, which no noise hides: its parts, and all of it
on an idle server.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from strata.cli import assemble
from strata.config import model_folder
from strata.engine.outlet import QueueOutlet
from strata.engine.window import Window
from strata.server.app import create_app
from strata.server.monitor.machine import Machine
from strata.server.monitor.pulse import Pulse
from strata.server.run import address, bind, make_server
from strata.server.service import Lobby
from strata.settings import Config
from strata.types import DoneEvent, FailedEvent, Request, Sampling, silent

ROWS, PROMPT, REST_S = 4, 64, 10
GREEDY = Sampling(temperature=0.0)
# Opens streams and reads them until its standard input ends; says a line when all have begun.
READER = """
import http.client, sys, threading
def read(response):
    while response.readline():
        pass
for _ in range(int(sys.argv[2])):
    client = http.client.HTTPConnection(sys.argv[1])
    client.request("GET", "/v1/monitor")
    response = client.getresponse()
    response.readline()
    threading.Thread(target=read, args=(response,), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def watched(host: str, streams: int) -> Iterator[None]:
    """While this lasts, so many streams are open."""
    if not streams:
        yield
        return
    command = [sys.executable, "-c", READER, host, str(streams)]
    reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert reader.stdin is not None and reader.stdout is not None
    try:
        assert reader.stdout.readline() == b"ready\n"
        yield
    finally:
        reader.stdin.close()
        reader.wait()


_number = itertools.count()


def work(engine: Any, length: int) -> int:
    """Four greedy answers of `length` tokens side by side, to prompts that nothing is known of."""
    outlets = []
    for _ in range(ROWS):
        number, outlet = next(_number), QueueOutlet()
        prompt = tuple((7 * number + i) % engine.limits.vocab for i in range(PROMPT))
        request = Request(f"load-{number}", prompt, length, GREEDY, cached=False, guard=False)
        engine.submit(request, outlet)
        outlets.append(outlet)
    for outlet in outlets:
        while not isinstance(event := outlet.events.get(), DoneEvent):
            if isinstance(event, FailedEvent):
                raise SystemExit(f"the engine failed: {event.message}")
    return ROWS * (PROMPT + length)


def measure(engine: Any, host: str, streams: int, length: int) -> tuple[float, float]:
    """Tokens/s, and processor seconds of this process per token."""
    with watched(host, streams):
        begun, spent = time.perf_counter(), time.process_time()
        done = work(engine, length)
        return done / (time.perf_counter() - begun), (time.process_time() - spent) / done


def resting(host: str, streams: int) -> float:
    """Processor seconds of this process in a second in which nothing is answered."""
    with watched(host, streams):
        time.sleep(1)
        spent = time.process_time()
        time.sleep(REST_S)
        return (time.process_time() - spent) / REST_S


@contextmanager
def serving(service: Any) -> Iterator[str]:
    """A server in this process; its host and port."""
    listener, lobby, up = bind("127.0.0.1", 0), Lobby(service), threading.Event()
    server = make_server(create_app(lobby), on_ready=up.set, on_end=lobby.close)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    up.wait()
    try:
        yield address(listener).removeprefix("http://")
    finally:
        server.should_exit = True
        thread.join()


def parts(plant: assemble.Plant) -> dict[str, float]:
    """Processor seconds of what watching does, each by itself, while four rows decode."""
    core, lobby = plant.engine.core, Lobby(plant.service)
    pulse, machine = Pulse(lobby), Machine()
    worker = threading.Thread(target=work, args=(plant.engine, 512), daemon=True)
    worker.start()
    while len(core.window.view.rows) < ROWS:
        time.sleep(0.01)
    told = machine.sample()
    own = {
        "a beat, once a second": cost(lambda: pulse._state(told).json()),
        "the machine's figures, once a second": cost(machine.sample),
        "the engine's rows laid out, ten times a second": cost(lambda: _show(core)),
    }
    worker.join()
    return own


def _show(core: Any) -> None:
    window = Window(time.time)
    window.show(0.0, core.scheduler, core.counters, core.journal)


def cost(act: Callable[[], object], times: int = 200) -> float:
    """Mean processor time of this thread."""
    begun = time.thread_time()
    for _ in range(times):
        act()
    return (time.thread_time() - begun) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="")
    parser.add_argument("--streams", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=256, help="of each of four answers")
    parser.add_argument("--threads", type=int, default=0)
    wanted = parser.parse_args()
    config = Config(
        model=wanted.model, threads=wanted.threads, batch=ROWS, ctx_size=2048, cache_size="512MiB"
    )
    plant = assemble.build(config, model_folder(), silent, lambda line: None)
    found: dict[int, list[tuple[float, float]]] = {0: [], wanted.streams: []}
    with serving(plant.service) as host:
        for turn in range(wanted.rounds + 1):
            for streams in sorted(found, reverse=bool(turn % 2)):
                told = measure(plant.engine, host, streams, wanted.tokens)
                if turn:  # the first is to warm up
                    found[streams].append(told)
        idle = {n: resting(host, n) for n in found}
    own = parts(plant)
    own[f"{wanted.streams} streams of an idle server, all in all, a second"] = (
        idle[wanted.streams] - idle[0]
    )
    plant.stop()
    for what, place in (("tokens/s", 0), ("processor ms per token", 1)):
        scale = 1e3 if place else 1
        without, with_them = ([told[place] * scale for told in found[n]] for n in found)
        ratios = sorted(w / o for w, o in zip(with_them, without, strict=True))
        print(
            f"{what}: {statistics.median(without):.4g} without, {statistics.median(with_them):.4g}"
            f" with {wanted.streams} streams; ratio {statistics.median(ratios):.4f}"
            f" (rounds {ratios[0]:.4f} to {ratios[-1]:.4f})"
        )
    for what, seconds in own.items():
        print(f"{what}: {seconds * 1e6:.0f} µs of one processor")


if __name__ == "__main__":
    main()
