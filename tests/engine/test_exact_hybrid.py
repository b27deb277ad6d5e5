"""Tiny models of every hybrid and sparse family: one answer, however it is computed.

The yardstick is the same model asked alone, uncached, in one chunk. With native kernels tokens and
log-probabilities of every other way must equal it to the bit; the reference's bits may depend
on the batch, so there it is tokens, and log-probabilities within rounding.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from strata import kernels
from strata.engine.loop import Engine
from strata.engine.outlet import QueueOutlet
from strata.engine.settings import EngineSettings
from strata.files import open_model
from strata.models import loader
from strata.synth import folder
from strata.synth.shape import FAMILIES, Shape
from strata.types import (
    Backend,
    DoneEvent,
    FailedEvent,
    Request,
    RequestError,
    Sampling,
    TokenEvent,
    silent,
)

SIZES = Shape(
    layers=3, interval=3, hidden=64, heads=4, kv_heads=2, head_dim=32, ffn=64, experts=6, top_k=2,
    expert_ffn=32, shared_ffn=32, vocab=512, context=640, key_heads=2, value_heads=4, state_dim=16,
    streams=4, stream_rank=8, index_heads=2, index_dim=16, index_budget=64, index_ratio=4,
    ngram_heads=4, ngram_vocab=64,
)  # fmt: skip
OWN: dict[str, dict[str, int]] = {"olmoe": {"hidden": 128, "kv_heads": 4}}
GREEDY = Sampling(temperature=0.0, logprobs=3)
SEEDED = Sampling(temperature=0.9, top_p=0.95, seed=7, logprobs=1)
CASES = [
    ("reference", "qwen4_exp", "auto"),
    *(("native", name, "f16") for name in ("qwen3_5", "qwen3_next", "qwen3_5_moe", "qwen4_exp")),
    *(("native", name, "f16") for name in ("qwen3_moe", "olmoe")),
    ("native", "qwen3_moe", "bf16"),
    ("native", "qwen3_moe", "q8"),
    ("native", "qwen4_exp", "q8"),
]

Answer = list[tuple[int, Any]]
Load = Callable[..., Any]


class Lab:
    """One engine on one model, stepped by hand."""

    def __init__(self, model: Any, *, exact: bool, **changes: Any) -> None:
        sizes = {"pages": 200, "states": 40, **changes}
        own = {name: sizes.pop(name) for name in ("pages", "states", "context") if name in sizes}
        settings = EngineSettings(**{"prefill_chunk": 4096, **sizes})
        self.engine = Engine(model, settings, **own)
        self.exact = exact
        self._count = 0

    def submit(self, words: Sequence[int], count: int, **fields: Any) -> QueueOutlet:
        self._count += 1
        outlet = QueueOutlet()
        fields = {"sampling": GREEDY, "stable_len": len(words) * 2 // 3, **fields}
        self.engine.submit(Request(f"q{self._count}", tuple(words), count, **fields), outlet)
        return outlet

    def hear(self, outlet: QueueOutlet) -> tuple[Answer, int]:
        """The answer, and how much of the prompt was reused."""
        while outlet.events.empty() or self.engine.core.busy:
            self.engine.turn()
        events = []
        while not outlet.events.empty():
            events.append(outlet.events.get())
        end = events[-1]
        assert isinstance(end, DoneEvent), end
        said = [(e.token, e.logprob) for e in events if isinstance(e, TokenEvent)]
        return said, end.usage.cached_tokens

    def ask(self, words: Sequence[int], count: int = 3, **fields: Any) -> tuple[Answer, int]:
        return self.hear(self.submit(words, count, **fields))

    def cold(self, words: Sequence[int], count: int = 3, **fields: Any) -> Answer:
        """The yardstick."""
        return self.ask(words, count, cached=False, **fields)[0]

    def same(self, got: Answer, want: Answer) -> None:
        """To the bit, or as near as the reference is."""
        assert [token for token, _ in got] == [token for token, _ in want]
        if self.exact:
            assert got == want
        for (_, mine), (_, theirs) in zip(got, want, strict=True):
            assert mine.logprob == pytest.approx(theirs.logprob, abs=1e-4)


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Makes a Lab on a fresh model of one family; settings as for `Lab`."""
    kind, name, kv_type = request.param
    if kind == "native":
        pytest.importorskip("strata.kernels._cpu", reason="the native kernels were not built")
    family = FAMILIES[name]
    shape = Shape(**{**{f: getattr(SIZES, f) for f in SIZES.__slots__}, **OWN.get(name, {})})
    shape.check(family)
    path = tmp_path_factory.mktemp(name) / name
    folder.write(path, family, shape, "F32", 3, silent)

    def made(threads: int = 2, rows: tuple[int, int] | None = None, **changes: Any) -> Lab:
        # The reference is a loop of small operations, which a second thread only slows down.
        threads = threads if kind == "native" else 1
        kv = None if kv_type == "auto" else kv_type
        chosen = kernels.choose(Backend(kind), "cpu", threads, kv_type=kv)
        model = loader.load(open_model(path), chosen)
        if rows is not None and not model.cache_rows(*rows):
            pytest.skip("nothing is read by the row")
        return Lab(model, exact=kind == "native", **changes)

    return made


def words(seed: int, length: int) -> list[int]:
    """Random tokens, among which the ends of texts are common."""
    r = random.Random(seed)
    return [
        r.choice((0, 1, 2, 3)) if r.random() < 0.05 else r.randrange(512) for _ in range(length)
    ]


def prompts() -> list[list[int]]:
    """Prompts that share some or all of a prefix, around block borders and the budget of 64."""
    common = words(0, 170)
    cuts = [0, 170, 160, 161, 63, 170, 16, 33]
    return [[*common[: cuts[i]], *words(10 + i, 1 + 9 * i)] for i in range(8)]


def play(lab: Lab, gap: int, cached: bool = True) -> list[Answer]:
    outlets = []
    for i, prompt in enumerate(prompts()):
        sampling = SEEDED if i % 3 == 2 else GREEDY
        outlets.append(lab.submit(prompt, 8, sampling=sampling, cached=cached))
        for _ in range(gap):
            lab.engine.turn()
    return [lab.hear(outlet)[0] for outlet in outlets]


WAYS: list[tuple[int, int, dict[str, Any]]] = [
    (2, 0, {"batch": 4}),
    (1, 2, {"batch": 8, "prefill_chunk": 37, "mixed_chunk": 5}),
    (2, 1, {"batch": 3, "prefill_chunk": 16, "mixed_chunk": 16, "pages": 34, "states": 6}),
]


def test_any_way_of_running_gives_the_same(lab: Load) -> None:
    alone = lab(1, batch=1)
    want = play(alone, 0, cached=False)
    assert len({tuple(token for token, _ in answer) for answer in want}) == 8, "all differ"
    # The reference is slow: the way with the most mixture is enough.
    for threads, gap, settings in WAYS if alone.exact else WAYS[1:2]:
        way = lab(threads, **settings)
        for _ in range(2):
            for got, right in zip(play(way, gap), want, strict=True):
                way.same(got, right)
        if settings.get("pages", 200) == 200:
            assert way.engine.core.cache.stats().hits >= 8, "the second time, all are known"


def test_rows_of_ngrams_from_a_cache(lab: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"prefill_chunk": 37, "mixed_chunk": 5, "pages": 34, "states": 6, "batch": 3}
    way = lab(2, rows=(40_000, 40), **few)
    want = play(lab(1, batch=1), 0, cached=False)
    for _ in range(2):
        for got, right in zip(play(way, 1), want, strict=True):
            way.same(got, right)
    told = way.engine.snapshot().rows
    assert 700 < told.lookups - told.hits < told.hits and told.nbytes

    # A disk that fails ends the requests of that step, with its reason; others are served.
    way = lab(2, rows=(1 << 20, 512))
    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", lambda *call: 0)
        outlet = way.submit(prompts()[0], 8)
        while way.engine.core.busy or outlet.events.empty():
            way.engine.turn()
        event = outlet.events.get()
        assert isinstance(event, FailedEvent) and "the disk well" in event.message
    way.same(way.ask(prompts()[0], 8)[0], want[0])


def test_short_suffixes_after_a_hit(lab: Load) -> None:
    here = lab()
    for length in (15, 16, 17, 31, 64, 65):
        base = words(length, length)
        here.ask(base, 1)
        for more in (1, 2, 3):
            prompt = [*base, *words(100 + more, more)]
            got, reused = here.ask(prompt)
            assert reused == length
            here.same(got, here.cold(prompt))


def test_prompts_that_end_around_a_border(lab: Load) -> None:
    """16 tokens either side of the indexer's budget, and of where native attention cuts the keys;
    both are borders of a block as well.
    """
    here = lab(prefill_chunk=64)
    whole = here.exact and here.engine.core.runner.model.architecture.startswith("qwen4")
    for border in (64, 256) if whole else (64,):
        text = words(border, border + 17)
        lengths = range(border - 16, border + 17)
        want = {n: here.cold(text[:n], 2) for n in lengths}
        for n in (border, lengths[-1], lengths[0]):
            here.same(here.ask(text[:n], 2)[0], want[n])
        for n in lengths:
            got, reused = here.ask(text[:n], 2)
            assert reused >= min(n - 1, lengths[0] - 1)
            here.same(got, want[n])
            again, reused = here.ask(text[:n], 2)
            assert reused == n - 1
            here.same(again, want[n])


def test_caches_from_nothing_fits_up(lab: Load) -> None:
    text = words(2, 90)
    with pytest.raises(RequestError):  # five pages of 16 tokens
        lab(pages=5, states=2, batch=1).submit(text, 2)
    want: list[Answer] | None = None
    asked = [text, [*text[:50], *words(3, 20)], text, text[:70], text]
    for pages, states, batch in ((6, 1, 1), (7, 2, 2), (9, 3, 2), (14, 5, 3), (40, 20, 3)):
        here = lab(pages=pages, states=states, batch=batch)
        if want is None:
            want = [here.cold(prompt, 4) for prompt in asked]
        outlets = [here.submit(prompt, 4) for prompt in asked]
        for outlet, right in zip(outlets, want, strict=True):
            here.same(here.hear(outlet)[0], right)


def test_a_long_request_and_short_ones_after_it(lab: Load) -> None:
    """What a short one finds in the pages and states that a long one left is not seen."""
    here = lab(pages=40, states=3, batch=2, prefill_chunk=128)
    short = [words(20 + i, 3 + i) for i in range(4)]
    want = [here.cold(prompt, 4) for prompt in short]
    long = words(4, 500)
    first = here.ask(long, 30)[0]
    for prompt, right in zip(short, want, strict=True):
        here.same(here.ask(prompt, 4)[0], right)
    here.same(first, here.cold(long, 30))


def test_the_last_token_of_the_context(lab: Load) -> None:
    here = lab(context=100)
    text = words(5, 101)
    for length in (100, 101):
        with pytest.raises(RequestError, match="100"):
            here.submit(text[:length], 1)
    for length in (99, 98):
        got, _ = here.ask(text[:length], 10)
        assert len(got) == 100 - length
        here.same(got, here.cold(text[:length], 10))
    got, reused = here.ask(text[:99], 10)
    assert reused == 98


def test_turns_do_not_drift(lab: Load) -> None:
    """Each turn of a chat, resumed from the one before, answers as if it were read whole."""
    here = lab(prefill_chunk=64)
    history = words(6, 40)
    for turn in range(5):
        got, reused = here.ask(history, 5)
        assert bool(reused) == bool(turn)
        here.same(got, here.cold(history, 5))
        history = [*history, *(token for token, _ in got), *words(30 + turn, 7)]
