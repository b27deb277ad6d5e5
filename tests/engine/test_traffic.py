"""Random traffic: whatever comes when, every answer is that of its prefix alone.

The model checks each row that it attends to; the cache's invariants are checked
after every step; answers are compared with a pure function of the prompt, which
knows no cache, no batch and no chunk, and their log-probabilities to the bit.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Bench, ScriptedModel

from strata.types import DoneEvent, FailedEvent, Finish, Request, Sampling, TokenEvent

SAMPLINGS = [
    Sampling(temperature=0.0),
    Sampling(temperature=0.0, logprobs=2),
    Sampling(temperature=0.9, seed=5, top_p=0.9, logprobs=0),
    Sampling(seed=1, frequency_penalty=0.5, top_k=12),
    Sampling(temperature=0.0, repetition_penalty=1.3, min_tokens=4),
    Sampling(temperature=0.0, prompt_logprobs=1),
]


class Traffic:
    """A seeded stream of requests with much in common, cancellations and failures."""

    def __init__(self, seed: int) -> None:
        self.random = r = random.Random(seed)
        self.model = ScriptedModel(vocab=31, recurrent=r.random() < 0.4)
        block = r.choice([1, 3, 4, 16])
        self.bench = Bench(
            self.model,
            pages=-(-r.choice([40, 70, 150, 600]) // block),
            states=r.choice([4, 7, 16, 40]) if self.model.recurrent else 0,
            block=block,
            batch=r.choice([1, 2, 4]) if self.model.recurrent else r.choice([1, 2, 4, 8]),
            prefill_chunk=r.choice([1, 5, 16, 100]),
            mixed_chunk=r.choice([1, 4, 16]),
            decode_share=r.choice([0.0, 0.25, 0.7]),
        )
        self.model.cost = lambda plan: 0.001 * r.random() * (1 + len(plan.tokens))
        self.bases = [[r.randrange(31) for _ in range(r.randrange(1, 30))] for _ in range(3)]
        self.asked: list[Request] = []
        self.cancelled: set[str] = set()

    def prompt(self) -> list[int]:
        r = self.random
        done = [q for q in self.asked if isinstance(self.bench.end(q), DoneEvent)]
        if done and r.random() < 0.4:  # the next turn of a conversation
            last = r.choice(done)
            words = [*last.tokens, *self.bench.tokens(last)]
        else:
            base = r.choice(self.bases)
            words = base[: r.randrange(len(base) + 1)]
        words = words + [r.randrange(31) for _ in range(r.randrange(1, 9))]
        return words[: self.bench.engine.limits.room - 1]

    def ask(self) -> None:
        r = self.random
        words = self.prompt()
        request = self.bench.ask(
            words,
            r.choice([0, 1, 2, 5, 12, 30]),
            sampling=r.choice(SAMPLINGS),
            stop_token_ids=frozenset(r.sample(range(31), r.choice([0, 2]))),
            priority=r.choice([0, 0, 0, 1]),
            cached=r.random() < 0.9,
            namespace=r.choice(["", "", "", "other"]),
            stable_len=max(0, len(words) - 2),
            anchors=tuple(sorted(r.sample(range(1, len(words) + 1), min(2, len(words))))),
        )
        self.asked.append(self.bench.engine.limits.admit(request))

    def act(self, failures: float) -> None:
        r = self.random
        self.model.fail = lambda plan: r.random() < failures
        self.model.lose = lambda capture: r.random() < 0.1
        what = r.random()
        if what < 0.35:
            self.ask()
        elif what < 0.45 and self.asked:
            victim = r.choice(self.asked)
            if not self.bench.end(victim):
                self.cancelled.add(victim.id)
            self.bench.engine.cancel(victim.id)
        elif what < 0.47:
            self.bench.engine.clear_cache()
        else:
            self.bench.turn()

    def run(self, actions: int, failures: float = 0.0) -> None:
        for _ in range(actions):
            self.act(failures)
        self.model.fail = lambda plan: False
        self.bench.drain()
        for request in self.asked:
            self.judge(request, failures > 0)
        stats = self.bench.core.cache.stats()
        assert stats.pages_free + stats.pages_cached == stats.pages_total
        assert stats.states_free + stats.states_cached == stats.states_total
        assert not self.bench.engine._alive

    def judge(self, request: Request, may_fail: bool) -> None:
        said = self.bench.said(request)
        end = said[-1]
        assert isinstance(end, DoneEvent | FailedEvent)
        assert all(isinstance(event, TokenEvent) for event in said[:-1])
        want = [(e.token, e.logprob) for e in self.model.answer(request)]
        got = [(e.token, e.logprob) for e in said[:-1]]
        assert [e.index for e in said[:-1]] == list(range(len(got)))
        assert got == want[: len(got)]
        if isinstance(end, FailedEvent):
            assert may_fail and end.status == 500
        elif end.finish is Finish.CANCELLED:
            assert request.id in self.cancelled
        else:
            assert got == want
            stopped = bool(got) and got[-1][0] in request.stop_token_ids
            assert end.finish is (Finish.STOP if stopped else Finish.LENGTH)
            assert end.usage.cached_tokens < len(request.tokens)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_answers_are_exact_in_any_traffic(seed: int) -> None:
    Traffic(seed).run(60)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_answers_are_exact_beside_failing_steps(seed: int) -> None:
    Traffic(seed).run(60, failures=0.15)


def outcome(seed: int, **changes) -> dict[tuple, list]:
    """The answers to one fixed set of requests, by prompt, in one way of running them."""
    r = random.Random(seed)
    common = [r.randrange(61) for _ in range(80)]
    asked = []
    for i in range(8):
        words = common[: r.randrange(81)] + [r.randrange(61) for _ in range(r.randrange(1, 20))]
        asked.append((words, r.choice(SAMPLINGS[:5]), r.randrange(1, 20), i))
    cached = changes.pop("cached", True)
    passes = changes.pop("passes", 1)
    order = changes.pop("order", 0)
    gap = changes.pop("gap", 0)
    bench = Bench(**{"pages": 400, "batch": 4, **changes})
    random.Random(order).shuffle(asked)
    made: dict[tuple, list] = {}
    for _ in range(passes):
        made = {}
        requests = []
        for words, sampling, count, name in asked:
            requests.append((name, bench.ask(words, count, sampling=sampling, cached=cached)))
            for _ in range(gap):
                bench.turn()
        bench.drain()
        for name, request in requests:
            made[name,] = [(e.token, e.logprob) for e in bench.said(request)[:-1]]
    return made


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": 1},
        {"batch": 8},
        {"prefill_chunk": 1, "mixed_chunk": 1},
        {"prefill_chunk": 7, "mixed_chunk": 3, "decode_share": 0.6},
        {"prefill_chunk": 4096},
        {"block": 1},
        {"block": 16, "pages": 30},
        {"cached": False},
        {"passes": 2},
        {"passes": 3, "pages": 36},
        {"pages": 32},
        {"order": 5},
        {"order": 6, "gap": 3},
        {"gap": 20, "passes": 2},
    ],
    ids=str,
)
def test_nothing_but_the_prompt_matters(changes) -> None:
    for seed in range(3):
        assert outcome(seed, **changes) == outcome(seed)
