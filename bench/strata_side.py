"""Strata's side of the comparison: the engine bare, and the same engine behind its HTTP server.

Answers the same orders as `llama_side.py`, with times that the engine measured. The server
listens beside it, for what is measured from outside.

    python strata_side.py MODEL THREADS ROWS CONTEXT [KERNELS [NAME=VALUE ...]]

NAME=VALUE are further settings of `strata serve`, as in a configuration file.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from own_keys import OwnKeys

import strata
from strata.cli import assemble
from strata.engine.outlet import QueueOutlet
from strata.server.app import create_app
from strata.server.run import address, bind, make_server
from strata.server.service import Lobby
from strata.settings import Config
from strata.types import DoneEvent, FailedEvent, Request, Sampling, Usage, silent

_number = itertools.count()


class Side:
    """Measurements on one running engine."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self._prefix: list[int] = []

    def _run(self, prompts: list[list[int]], length: int, **what: Any) -> list[Usage]:
        """Usage of greedy answers, all submitted between two steps; `what` is for each request.
        Row i has a namespace of its own.
        """
        outlets = [QueueOutlet() for _ in prompts]
        with self.engine._bell:  # as the peer gets them: together
            for row, (tokens, outlet) in enumerate(zip(prompts, outlets, strict=True)):
                request = Request(
                    id=f"bench-{next(_number)}",
                    tokens=tuple(tokens),
                    max_tokens=length,
                    sampling=Sampling(temperature=0.0),
                    **({"cached": False, "namespace": str(row)} | what),
                )
                self.engine.submit(request, outlet)
        return [_usage(outlet, length) for outlet in outlets]

    def prompt(self, tokens: list[int]) -> float:
        """Tokens a second of reading a cold prompt."""
        (usage,) = self._run([tokens], 1)
        return len(tokens) / usage.prefill_s

    def decode(self, prompts: list[list[int]], length: int) -> float:
        """Total tokens a second of decoding `len(prompts)` rows side by side."""
        usages = self._run(prompts, length)
        return (length - 1) * len(prompts) / max(usage.decode_s for usage in usages)

    def fill(self, tokens: list[int], rows: int) -> float:
        """Tokens a second of reading a cold prompt, which is then the prefix of `rows` rows, the
        keys of each in memory of its own.
        """
        self.engine.clear_cache().result()
        self._prefix = tokens
        own = OwnKeys(self.engine.core.runner, len(tokens))
        kept = {"cached": True, "anchors": (len(tokens),)}
        with own.reading():
            (usage,) = self._run([tokens], 1, **kept)
        with own.copying():
            for row in range(1, rows):
                self._run([tokens], 1, **kept, namespace=str(row))
        return len(tokens) / usage.prefill_s

    def deep(self, prompts: list[list[int]], length: int) -> float:
        """As `decode`, each row behind the prefix."""
        usages = self._run([self._prefix + tokens for tokens in prompts], length, cached=True)
        if any(usage.cached_tokens != len(self._prefix) for usage in usages):
            raise SystemExit(f"the prefix was not in the cache: {usages}")
        return (length - 1) * len(prompts) / max(usage.decode_s for usage in usages)

    def wall(self, prompts: list[list[int]], length: int) -> float:
        """Total tokens a second by the wall clock, from submission to the last token."""
        began = time.perf_counter()
        self._run(prompts, length)
        return length * len(prompts) / (time.perf_counter() - began)


def _usage(outlet: QueueOutlet, length: int) -> Usage:
    while True:
        event = outlet.events.get()
        if isinstance(event, FailedEvent):
            raise SystemExit(f"Strata failed: {event.message}")
        if isinstance(event, DoneEvent):
            if event.usage.completion_tokens != length:
                raise SystemExit(f"not what was asked for: {event.usage}")
            return event.usage


def serve(service: Any) -> str:
    """The service behind HTTP on a free port, in a thread; its URL."""
    listener = bind("127.0.0.1", 0)
    started = threading.Event()
    server = make_server(create_app(Lobby(service)), on_ready=started.set)
    threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
    started.wait()
    return address(listener)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    model, threads, rows, context = sys.argv[1], *map(int, sys.argv[2:5])
    settings: dict[str, Any] = dict(text.split("=", 1) for text in sys.argv[6:])
    own = Config(model=model, threads=threads, batch=rows, ctx_size=context)
    kernels = sys.argv[5] if len(sys.argv) > 5 else "auto"
    config = replace(own, **({"kernels": kernels, "cache_size": "4GiB"} | settings))
    said: list[str] = []
    plant = assemble.build(config, Path(), silent, said.append)
    facts = {
        "program": f"Strata {strata.__version__}",
        "system": next(text for text in said if text.startswith("kernels")),
        "url": serve(plant.service),
    }
    print(json.dumps(facts), file=answers)
    side = Side(plant.engine)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(getattr(side, order.pop("op"))(**order)), file=answers)


if __name__ == "__main__":
    main()
