"""What a mask costs: the time of a decoding step with and without a guide, in one run.

    python bench/guided.py MODEL.gguf [--rounds 7] [--tokens 200] [--threads N]

Greedy answers of one row to one prompt, with a guide (a list of tool calls, as JSON for a schema)
and without, alternately; who begins changes from round to round. Printed are the medians of a
step's time, their ratio, and what of a step the guide's own work takes by a clock of its own: the
mask written into the row, and the token taken. The ratio holds what the sampler does for it too.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from strata.cli import assemble
from strata.engine.outlet import QueueOutlet
from strata.settings import Config
from strata.text.grammar import Grammars
from strata.types import DoneEvent, FailedEvent, Guide, Request, Sampling, Usage, silent

CALL = {
    "type": "object",
    "properties": {
        "name": {"enum": ["get_weather", "send_message", "search_files"]},
        "arguments": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
                "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "arguments"],
    "additionalProperties": False,
}
SCHEMA = {"type": "array", "items": CALL, "minItems": 1000}
PROMPT = "Call some tools for a journey to three cities. Answer as JSON.\n"

_number = itertools.count()


class Timed:
    """A guide with a clock around it: processor time, so that what else runs does not count."""

    def __init__(self, guide: Guide, spent: list[float]) -> None:
        self._guide, self._spent = guide, spent

    @property
    def ended(self) -> bool:
        return self._guide.ended

    def mask(self, row: Any) -> None:
        began = time.thread_time()
        self._guide.mask(row)
        self._spent.append(time.thread_time() - began)

    def accept(self, token: int) -> None:
        began = time.thread_time()
        self._guide.accept(token)
        self._spent[-1] += time.thread_time() - began


def answer(engine: Any, tokens: list[int], length: int, guide: Callable[[], Guide] | None) -> Usage:
    outlet = QueueOutlet()
    greedy = Sampling(temperature=0.0)
    name = f"guided-{next(_number)}"
    request = Request(name, tuple(tokens), length, greedy, guide=guide, guard=False)
    engine.submit(request, outlet)
    while not isinstance(event := outlet.events.get(), DoneEvent):
        if isinstance(event, FailedEvent):
            raise SystemExit(f"the engine failed: {event.message}")
    if event.usage.completion_tokens != length:
        raise SystemExit(f"the answer ended early: {event.usage}")
    return event.usage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=200, help="of each answer")
    parser.add_argument("--threads", type=int, default=0)
    wanted = parser.parse_args()
    config = Config(
        model=wanted.model, threads=wanted.threads, batch=1, ctx_size=2048, cache_size="1GiB"
    )
    plant = assemble.build(config, Path(), silent, lambda line: None)
    words = plant.service.tokenizer
    began = time.perf_counter()
    grammars = Grammars(words)
    made = time.perf_counter()
    make = grammars.json_schema(SCHEMA)
    compiled = time.perf_counter()
    print(f"{Path(wanted.model).name}: {words.vocab_size} tokens in the vocabulary")
    print(f"tokenizer made in {made - began:.3f} s, schema compiled in {compiled - made:.4f} s")
    spent: list[float] = []
    tokens = words.encode(PROMPT)
    ways: dict[str, Callable[[], Guide] | None] = {
        "free": None,
        "guided": lambda: Timed(make(), spent),
    }
    steps: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(wanted.rounds + 1):
        for name in sorted(ways, reverse=bool(turn % 2)):
            usage = answer(plant.engine, tokens, wanted.tokens, ways[name])
            if turn:  # the first is to warm up
                steps[name].append(usage.decode_s / (wanted.tokens - 1))
    plant.stop()
    free, guided = (statistics.median(steps[name]) for name in ("free", "guided"))
    ratios = [g / f for g, f in zip(steps["guided"], steps["free"], strict=True)]
    own = np.array(spent[wanted.tokens :])
    print(f"step free {free * 1e3:.3f} ms, guided {guided * 1e3:.3f} ms: {guided / free - 1:+.2%}")
    print(f"rounds {' '.join(f'{ratio - 1:+.2%}' for ratio in ratios)}")
    shares = [np.median(own), own.mean(), np.percentile(own, 99), own.max()]
    print(
        "the guide's own work: "
        + ", ".join(
            f"{what} {share * 1e6:.0f} µs ({share / free:.2%})"
            for what, share in zip(("median", "mean", "p99", "most"), shares, strict=True)
        )
    )


if __name__ == "__main__":
    main()
