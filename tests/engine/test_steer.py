"""Guides, thinking budgets and the guard, in the sampler and in the engine on a scripted model.

What must come is worked out by hand or by brute force; a scripted guide stands for a grammar.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scripted import Bench, ScriptedModel

from strata.engine.draw import NotFinite
from strata.engine.sampler import Choice, Chooser, Sampler
from strata.engine.steer import CIRCLE, SPAN, Steer, runaway
from strata.types import (
    DoneEvent,
    FailedEvent,
    Finish,
    Request,
    RequestError,
    Sampling,
    Thinking,
    TokenEvent,
)

VOCAB = 61
END = 60
GREEDY = Sampling(temperature=0.0)


@dataclass
class Script:
    """A guide that allows `places[i]` at place i, and the end token after them."""

    places: list[set[int]]
    taken: list[int] = field(default_factory=list)
    fails_at: int | None = None

    @property
    def ended(self) -> bool:
        return END in self.taken

    def mask(self, row: np.ndarray) -> None:
        if len(self.taken) == self.fails_at:
            raise RequestError("grammar: too complex", field="grammar")
        can = self.places[len(self.taken)] if len(self.taken) < len(self.places) else {END}
        row[[token for token in range(row.shape[0]) if token not in can]] = -np.inf

    def accept(self, token: int) -> None:
        assert len(self.taken) <= len(self.places) and not self.ended
        self.taken.append(token)


def ask(bench: Bench, tokens: Any = (1, 2, 3), **fields: Any) -> Request:
    fields.setdefault("stop_token_ids", frozenset((END,)))
    return bench.ask(tokens, fields.pop("max_tokens", 12), **fields)


def finish(bench: Bench, request: Request) -> Finish:
    end = bench.end(request)
    assert isinstance(end, DoneEvent)
    return end.finish


def answer(bench: Bench, request: Request) -> list[int]:
    bench.drain()
    return bench.tokens(request)


def favour(token: int, by: float = 100.0) -> Sampling:
    return Sampling(temperature=0.0, logit_bias=((token, by),))


# ---------------------------------------------------------------- the order of operations


def chosen(row: np.ndarray, sampling: Sampling, steer: Steer | None, said: int = 0) -> Choice:
    chooser = Chooser(sampling, sampling.seed or 0, (), frozenset((END,)), steer)
    return Sampler(VOCAB).choose(row.copy(), chooser, said)


def guided(*places: set[int]) -> Steer:
    return Steer(Script(list(places)), None)


ROW = np.linspace(-3, 3, VOCAB).astype(np.float32)


def test_the_best_allowed_token_is_taken_and_its_logprob_is_that_of_the_raw_row() -> None:
    sampling = Sampling(temperature=0.0, logprobs=2)
    choice = chosen(ROW, sampling, guided({7, 31, 12}))
    exact = ROW.astype(np.float64) - np.log(np.exp(ROW.astype(np.float64)).sum())
    assert choice.token == 31 and choice.logprob is not None
    assert choice.logprob.logprob == pytest.approx(exact[31], abs=1e-5)
    assert [token for token, _ in choice.logprob.top] == [60, 59]


def test_penalties_and_bias_come_before_the_mask() -> None:
    bias = Sampling(temperature=0.0, logit_bias=((7, 50.0), (20, 1000.0)))
    assert chosen(ROW, bias, guided({7, 31})).token == 7


def test_a_draw_stays_within_the_mask_and_follows_its_weights() -> None:
    counts = {7: 0, 12: 0}
    for seed in range(400):
        for sampling in (Sampling(seed=seed), Sampling(seed=seed, top_k=40, top_p=0.99)):
            counts[chosen(ROW, sampling, guided({7, 12})).token] += 1
    share = np.exp(ROW[12]) / (np.exp(ROW[7]) + np.exp(ROW[12]))
    assert counts[12] / 800 == pytest.approx(share, abs=0.05)


def test_min_tokens_does_not_break_a_grammar() -> None:
    sampling = Sampling(temperature=0.0, min_tokens=5)
    assert chosen(ROW, sampling, None).token == 59, "without a guide the end waits"
    assert chosen(ROW, sampling, guided()).token == END


def test_a_row_that_nothing_steers_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chooser, "alter", lambda *_: pytest.fail("altered"))
    thinking = Thinking(close=(9,), open=True, budget=3)
    for steer in (None, Steer(None, thinking), Steer.of(Request("r", (1,), 4))):
        assert chosen(ROW, GREEDY, steer).token == END
    with pytest.raises(pytest.fail.Exception):
        chosen(ROW, GREEDY, guided({1}))


def test_a_broken_row_is_seen_though_its_token_is_forced() -> None:
    broken = np.full(VOCAB, np.nan, dtype=np.float32)
    steer = Steer(None, Thinking(close=(9,), open=True, budget=0))
    with pytest.raises(NotFinite):
        chosen(broken, GREEDY, steer)


def test_one_row_s_failing_guide_is_its_own() -> None:
    rows = np.stack([ROW, ROW])
    choosers = [
        (Chooser(GREEDY, 0, (), frozenset(), Steer(Script([], fails_at=0), None)), 0),
        (Chooser(GREEDY, 0, (), frozenset(), None), 0),
    ]
    failed, fine = Sampler(VOCAB).choose_all(rows, choosers)
    assert isinstance(failed, RequestError) and fine == Choice(60)


# ---------------------------------------------------------------- guides in the engine


def test_an_answer_follows_its_guide_and_ends_with_it() -> None:
    bench = Bench()
    request = ask(bench, guide=lambda: Script([{4, 5}, {6}, {7, 8}]))
    first, second, third, last = answer(bench, request)
    assert first in (4, 5) and second == 6 and third in (7, 8) and last == END
    assert finish(bench, request) is Finish.STOP
    assert bench.tokens(request) == [e.token for e in bench.model.answer(request)]


def test_a_grammar_s_end_ends_the_answer_whatever_else_was_asked() -> None:
    bench = Bench()
    ignoring = ask(bench, stop_token_ids=frozenset(), guide=lambda: Script([{4}]), max_tokens=50)
    minimum = ask(
        bench, guide=lambda: Script([{4}]), sampling=Sampling(temperature=0.0, min_tokens=9)
    )
    exact = ask(bench, guide=lambda: Script([{4}]), max_tokens=2)
    short = ask(bench, guide=lambda: Script([{4}, {5}, {6}]), max_tokens=2)
    bench.drain()
    for request in (ignoring, minimum, exact):
        assert bench.tokens(request) == [4, END] and finish(bench, request) is Finish.STOP
    assert bench.tokens(short) == [4, 5] and finish(bench, short) is Finish.LENGTH


def test_a_guide_that_fails_fails_its_own_answer_only() -> None:
    bench = Bench()
    free = ask(bench, (5, 6, 7))
    failing = ask(bench, guide=lambda: Script([{4}, {5}, {6}], fails_at=2))
    bench.drain()
    end = bench.end(failing)
    assert isinstance(end, FailedEvent) and end.status == 400 and "too complex" in end.message
    assert bench.tokens(failing) == [4, 5]
    assert bench.tokens(free) == [e.token for e in bench.model.answer(free)]
    assert bench.idle_pages() == 64
    again = ask(bench, (1, 2, 3, 4, 5, 6, 7))
    bench.drain()
    event = bench.said(again)[0]
    assert isinstance(event, TokenEvent) and event.cached_tokens == 5, "what it computed is kept"


def test_preempted_sequences_keep_their_guides() -> None:
    bench = Bench(pages=24, batch=4)
    places = [{i % 50, (i * 7) % 50, (i * 11) % 50} for i in range(30)]
    thinking = Thinking(close=(9, 9), open=True, budget=5)
    requests = [
        ask(
            bench,
            range(i, i + 9),
            max_tokens=50,
            guide=lambda: Script(places),
            thinking=thinking if i % 2 else None,
            sampling=Sampling(seed=i),
            cached=False,
        )
        for i in range(6)
    ]
    bench.drain()
    assert bench.core.scheduler.preemptions > 0
    for request in requests:
        assert bench.tokens(request) == [e.token for e in bench.model.answer(request)]
        assert finish(bench, request) is Finish.STOP
        assert len(bench.tokens(request)) >= 31


# ---------------------------------------------------------------- thinking


@pytest.mark.parametrize("budget", [0, 1, 4])
@pytest.mark.parametrize("close", [(9,), (9, 8, 9, 7)])
def test_a_used_up_budget_closes_reasoning_token_by_token(
    budget: int, close: tuple[int, ...]
) -> None:
    bench = Bench()
    thinking = Thinking(close=close, open=True, budget=budget)
    request = ask(bench, thinking=thinking, sampling=favour(20))
    said = answer(bench, request)
    assert said == [20] * budget + list(close) + [20] * (12 - budget - len(close))
    events = bench.said(request)
    assert [e.index for e in events if isinstance(e, TokenEvent)] == list(range(12))
    end = bench.end(request)
    assert isinstance(end, DoneEvent) and end.usage.completion_tokens == 12
    # Forced tokens are cached as others are: the next turn finds the whole answer but its last.
    again = ask(bench, (1, 2, 3, *said, 33))
    bench.drain()
    event = bench.said(again)[0]
    assert isinstance(event, TokenEvent) and event.cached_tokens == 14


def test_what_the_model_began_to_close_is_not_begun_again() -> None:
    steer = Steer(None, Thinking(close=(9, 8, 9, 7), open=True, budget=3))
    for token in (9, 8, 9):
        assert not steer.acts
        steer.accept(token)
    row = ROW.copy()
    steer.mask(row)
    assert np.flatnonzero(row > -np.inf).tolist() == [7]
    steer.accept(7)
    assert not steer.acts


@given(
    st.lists(st.integers(7, 9), max_size=30), st.lists(st.integers(7, 9), min_size=1, max_size=4)
)
@settings(max_examples=300, deadline=None)
def test_reasoning_is_closed_by_the_last_tokens(said: list[int], close: list[int]) -> None:
    guide = Script([{1}] * 31)
    steer = Steer(guide, Thinking(close=tuple(close), open=True))
    n = len(close)
    ends = [i + n for i in range(len(said)) if said[i : i + n] == close]
    for token in said:
        steer.accept(token)
    assert guide.taken == (said[ends[0] :] if ends else [])
    assert steer.acts == bool(ends) and steer.waits == (not ends)


def test_a_guide_begins_when_reasoning_is_closed() -> None:
    bench = Bench()
    thinking = Thinking(close=(9,), open=True, budget=4)
    request = ask(bench, thinking=thinking, guide=lambda: Script([{4}]), sampling=favour(20))
    assert answer(bench, request) == [20, 20, 20, 20, 9, 4, END]
    assert finish(bench, request) is Finish.STOP
    closing = ask(bench, thinking=thinking, guide=lambda: Script([{4}]), sampling=favour(9))
    assert answer(bench, closing) == [9, 4, END], "the model may close it itself"


def test_an_answer_does_not_end_in_reasoning_before_its_guide() -> None:
    thinking = Thinking(close=(9,), open=True, budget=3)
    bench = Bench()
    request = ask(bench, thinking=thinking, guide=lambda: Script([{4}]), sampling=favour(END))
    said = answer(bench, request)
    assert END not in said[:3] and said[3:] == [9, 4, END]
    free = ask(bench, thinking=thinking, sampling=favour(END))
    assert answer(bench, free) == [END], "without a guide it may"


def test_a_model_may_open_reasoning_itself() -> None:
    thinking = Thinking(close=(9,), open=False, opens=10, budget=2)
    bench = Bench()
    request = ask(bench, thinking=thinking, guide=lambda: Script([{4}, {5}]), sampling=favour(10))
    # 10 opens it, two more are reasoning, then the guide has begun: no 10 any more.
    assert answer(bench, request) == [10, 10, 10, 9, 4, 5, END]
    plain = ask(bench, thinking=thinking, guide=lambda: Script([{4}, {5}]), sampling=favour(4))
    assert answer(bench, plain) == [4, 5, END], "it need not"
    unnamed = Thinking(close=(9,), open=False, budget=2)
    never = ask(bench, thinking=unnamed, guide=lambda: Script([{4}, {5}]), sampling=favour(10))
    assert answer(bench, never) == [4, 5, END]


def test_the_opening_token_keeps_its_logit_beside_the_guide_s() -> None:
    steer = Steer(Script([{4, 5}]), Thinking(close=(9,), open=False, opens=10))
    row = ROW.copy()
    steer.mask(row)
    assert np.flatnonzero(row > -np.inf).tolist() == [4, 5, 10] and row[10] == ROW[10]
    steer.accept(4)
    row = ROW.copy()
    steer.mask(row)
    assert np.flatnonzero(row > -np.inf).tolist() == [END]


def test_all_reasoning_of_an_answer_shares_one_budget() -> None:
    steer = Steer(None, Thinking(close=(9, 9), open=False, opens=10, budget=4))
    for token in (10, 1, 2, 9, 9, 5, 10):
        assert not steer.acts, token
        steer.accept(token)
    for _ in range(2):
        assert steer.acts, "1, 2 and what closed it were reasoning: nothing is left"
        row = ROW.copy()
        steer.mask(row)
        assert np.flatnonzero(row > -np.inf).tolist() == [9]
        steer.accept(9)
    assert not steer.acts


def test_no_budget_means_no_end() -> None:
    bench = Bench()
    thinking = Thinking(close=(9,), open=True)
    request = ask(bench, thinking=thinking, sampling=favour(20), guide=lambda: Script([{4}]))
    assert answer(bench, request) == [20] * 12 and finish(bench, request) is Finish.LENGTH


@pytest.mark.parametrize(
    "thinking",
    [
        Thinking(close=(), open=True),
        Thinking(close=(VOCAB,), open=True),
        Thinking(close=(-1,), open=True),
        Thinking(close=(1,), open=False, opens=VOCAB),
    ],
)
def test_thinking_must_be_closed_by_tokens_of_the_model(thinking: Thinking) -> None:
    with pytest.raises(RequestError) as caught:
        ask(Bench(), thinking=thinking)
    assert caught.value.status == 400 and caught.value.field == "thinking"


# ---------------------------------------------------------------- the guard


def stopped_at(tokens: list[int]) -> int | None:
    """After how many tokens of an answer the guard ends it."""
    ends = (n for n in range(1, len(tokens) + 1) if runaway(tokens[:n], n))
    return next(ends, None)


def circles(tokens: list[int]) -> bool:
    """By brute force: whether every token of the last SPAN equals the one a fixed step before."""
    tail = tokens[-SPAN:]
    return len(tail) == SPAN and any(
        all(tail[i] == tail[i - step] for i in range(step, SPAN)) for step in range(1, CIRCLE + 1)
    )


@given(
    st.lists(st.integers(0, 3), max_size=200),
    st.lists(st.integers(0, 3), min_size=1, max_size=CIRCLE),
)
@settings(max_examples=40, deadline=None)
@example([], [5])
@example([1, 2], list(range(CIRCLE)))
@example([7] * 10, [7] * 40 + [8])
def test_a_circle_is_always_stopped(before: list[int], circle: list[int]) -> None:
    rounds = (SPAN + 2 * CIRCLE) // len(circle) + 1
    end = stopped_at(before + circle * rounds)
    assert end is not None and SPAN <= end < len(before) + SPAN + CIRCLE


@given(
    st.lists(st.integers(0, 1), min_size=1, max_size=CIRCLE + 20),
    st.integers(0, SPAN - 1),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_only_a_whole_span_of_circles_counts(circle: list[int], where: int, spoil: bool) -> None:
    tokens = (circle * SPAN)[:SPAN]
    if spoil:
        tokens[where] = 2
    assert runaway(tokens, SPAN) == circles(tokens)


@pytest.mark.parametrize(
    "text",
    [
        "0, " * 341,
        "[" + ", ".join(["0.0"] * 200) + "]",
        "\n".join("| " + " | ".join(["---"] * 8) + " |" for _ in range(20)),
        "\n".join(f"| {i} | {i * i} | yes |" for i in range(200)),
        "0." + "142857" * 170,
        "\n".join(f"{i}" for i in range(1000)),
        "\n".join(" " * (20 - i) + "*" * (2 * i + 1) for i in range(20)) * 3,
        "-" * 500 + "\n" + "=" * 500,
        "".join(f"if (x == {i}) return {i};\n" for i in range(200)),
    ],
)
def test_texts_that_repeat_themselves_for_a_reason_are_not_stopped(text: str) -> None:
    """A token for each character: harsher than any vocabulary."""
    assert stopped_at(list(text.encode())) is None


@pytest.mark.parametrize("guide", [False, True])
def test_an_answer_that_goes_round_is_ended(guide: bool) -> None:
    bench = Bench(pages=700)
    make = (lambda: Script([{5, 6}] * 4000)) if guide else None
    request = ask(bench, max_tokens=2000, sampling=favour(5), guide=make)
    assert answer(bench, request) == [5] * SPAN
    assert finish(bench, request) is Finish.REPETITION
    assert bench.core.counters.requests["repetition"] == 1
    assert bench.core.journal.records[0].status == "repetition"


def test_the_guard_is_off_by_request_and_waits_for_min_tokens() -> None:
    bench = Bench(pages=1200)
    free = ask(bench, max_tokens=1200, sampling=favour(5), guard=False)
    told = Sampling(temperature=0.0, logit_bias=((5, 100.0),), min_tokens=1100)
    later = ask(bench, max_tokens=1200, sampling=told)
    bench.drain()
    assert finish(bench, free) is Finish.LENGTH and len(bench.tokens(free)) == 1200
    assert finish(bench, later) is Finish.REPETITION and len(bench.tokens(later)) == 1152


def test_a_prompt_that_goes_round_is_no_reason() -> None:
    bench = Bench(ScriptedModel(), pages=700)
    request = ask(bench, [5] * 1500, max_tokens=100, sampling=favour(5))
    assert answer(bench, request) == [5] * 100 and finish(bench, request) is Finish.LENGTH
