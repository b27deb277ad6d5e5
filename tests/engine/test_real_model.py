"""The default model on native kernels: the same bits in any batch, chunk or cache state.

One way of running (alone, uncached, one big chunk, one thread) is the yardstick;
tokens and log-probabilities of every other way must equal it to the bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strata.engine.loop import Engine
from strata.engine.outlet import QueueOutlet
from strata.engine.settings import EngineSettings
from strata.files import open_model
from strata.types import Backend, DoneEvent, Request, Sampling, TokenEvent, silent

kernels = pytest.importorskip("strata.kernels")
loader = pytest.importorskip("strata.models.loader")

GREEDY = Sampling(temperature=0.0, logprobs=3)
SEEDED = Sampling(temperature=0.8, top_p=0.95, seed=11, logprobs=1)


Load = Callable[[int], Any]


@pytest.fixture(scope="module")
def load(default_model: Path) -> Load:
    """Loads the model for a number of threads. It serves one engine in its life."""
    file = open_model(default_model)

    def loaded(threads: int) -> Any:
        try:
            chosen = kernels.choose(Backend.NATIVE, "cpu", threads)
        except Exception as error:  # a source tree whose extension was not built
            pytest.skip(f"no native kernels: {error}")
        return loader.load(file, chosen, progress=silent)

    return loaded


def prompts(count: int) -> list[tuple[int, ...]]:
    """Prompts that share some or all of a prefix, of lengths around block borders."""
    r = random.Random(4)
    common = [r.randrange(1000, 40_000) for _ in range(170)]
    cuts = [0, 170, 160, 161, 95, 170, 16, 33]
    return [
        (*common[: cuts[i]], *(r.randrange(1000, 40_000) for _ in range(1 + 9 * i)))
        for i in range(count)
    ]


class Way:
    """One way of running requests. `answers` gives tokens and log-probabilities of each."""

    def __init__(self, model: Any, pages: int = 200, cached: bool = True, **settings: Any) -> None:
        self.engine = Engine(model, EngineSettings(**settings), pages=pages)
        self.cached = cached
        self._count = 0

    def answers(self, gap: int = 0) -> list[list[tuple[int, Any]]]:
        asked = []
        for i, words in enumerate(prompts(8)):
            self._count += 1
            outlet = QueueOutlet()
            request = Request(
                id=f"q{self._count}",
                tokens=words,
                max_tokens=10,
                sampling=SEEDED if i % 3 == 2 else GREEDY,
                cached=self.cached,
            )
            self.engine.submit(request, outlet)
            asked.append(outlet)
            for _ in range(gap):
                self.engine.turn()
        while self.engine.turn():
            pass
        made = []
        for outlet in asked:
            events = []
            while not outlet.events.empty():
                events.append(outlet.events.get())
            assert isinstance(events[-1], DoneEvent)
            made.append([(e.token, e.logprob) for e in events if isinstance(e, TokenEvent)])
        return made


@pytest.fixture(scope="module")
def yardstick(load: Load) -> list[list[tuple[int, Any]]]:
    return Way(load(1), cached=False, batch=1, prefill_chunk=4096).answers()


@pytest.mark.parametrize(
    "threads, gap, settings",
    [
        (2, 0, {"batch": 1, "cached": False}),
        (2, 0, {"batch": 8, "cached": False, "prefill_chunk": 100}),
        (2, 0, {"batch": 4}),
        (1, 2, {"batch": 8, "prefill_chunk": 37, "mixed_chunk": 5}),
        (2, 1, {"batch": 3, "prefill_chunk": 16, "mixed_chunk": 16}),
        (2, 0, {"batch": 5, "pages": 20}),
    ],
    ids=str,
)
def test_any_way_of_running_gives_the_same_bits(
    load: Load,
    yardstick: list[list[tuple[int, Any]]],
    threads: int,
    gap: int,
    settings: dict[str, Any],
) -> None:
    way = Way(load(threads), **settings)
    cold = way.answers(gap)
    assert cold == yardstick
    if way.cached:
        computed = way.engine.core.counters.prefill_tokens
        assert way.answers(gap) == yardstick, "warm"
        again = way.engine.core.counters.prefill_tokens - computed
        if settings.get("pages", 200) >= 200:
            assert again == 8, "of a repeated prompt only the last token is computed"


def test_preemption_does_not_show(load: Load, yardstick: Any) -> None:
    way = Way(load(2), batch=4, pages=17, prefill_chunk=64)
    assert way.answers() == yardstick
    way = Way(load(2), batch=4, pages=17, prefill_chunk=64, cached=False)
    assert way.answers(gap=1) == yardstick


def test_prompt_logprobs_equal_those_of_generation(load: Load) -> None:
    """What the model says of its own greedy answer, read back as a prompt: the same bits."""
    engine = Engine(load(2), EngineSettings(prefill_chunk=50), pages=100)

    def ask(name: str, words: tuple[int, ...], count: int, sampling: Sampling) -> list[Any]:
        outlet = QueueOutlet()
        engine.submit(Request(name, words, count, sampling), outlet)
        while engine.turn():
            pass
        events = []
        while not outlet.events.empty():
            events.append(outlet.events.get())
        return events

    words = prompts(2)[1]
    said = ask("a", words, 20, Sampling(temperature=0.0, logprobs=2))[:-1]
    whole = (*words, *(event.token for event in said))
    done = ask("b", whole, 0, Sampling(temperature=0.0, prompt_logprobs=2))[0]
    assert list(done.prompt_logprobs[len(words) :]) == [event.logprob for event in said]
