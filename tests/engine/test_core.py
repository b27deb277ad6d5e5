"""One step and its consequences: endings, cancellation at each stage, failures, scores."""

import numpy as np
import pytest
from scripted import Bench, ScriptedModel, prefix_hash

from strata.types import (
    DoneEvent,
    FailedEvent,
    Finish,
    ForwardPlan,
    Request,
    RequestError,
    Sampling,
    TokenEvent,
)

greedy = Sampling(temperature=0.0)


def prompt(seed: int, length: int) -> list[int]:
    return [seed % 61, *np.random.default_rng(seed).integers(0, 61, length - 1).tolist()]


# ---------------------------------------------------------------- endings


def test_an_answer_from_first_to_last_event() -> None:
    bench = Bench()
    request = bench.ask(prompt(1, 10), 5)
    bench.drain()
    said = bench.said(request)
    assert [type(e) for e in said] == [TokenEvent] * 5 + [DoneEvent]
    assert [e.index for e in said[:-1]] == list(range(5))
    assert bench.tokens(request) == [e.token for e in bench.model.answer(request)]
    end = said[-1]
    assert end.finish is Finish.LENGTH
    assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (10, 5)
    assert end.usage.cached_tokens == 0


def test_a_stop_token_is_the_last_one() -> None:
    bench = Bench()
    tokens = [e.token for e in bench.model.answer(Request("x", tuple(prompt(1, 9)), 30, greedy))]
    stop = next(t for t in tokens if tokens.index(t) > 3)
    request = bench.ask(prompt(1, 9), 30, stop_token_ids=frozenset({stop}))
    bench.drain()
    assert bench.tokens(request) == tokens[: tokens.index(stop) + 1]
    assert bench.end(request).finish is Finish.STOP


def test_a_prompt_may_be_read_without_an_answer() -> None:
    bench = Bench()
    request = bench.ask(prompt(1, 30), 0)
    bench.drain()
    assert [type(e) for e in bench.said(request)] == [DoneEvent]
    assert bench.end(request).finish is Finish.LENGTH
    again = bench.ask(prompt(1, 30), 1)
    bench.drain()
    assert bench.said(again)[0].cached_tokens == 29


def test_the_next_turn_reuses_all_but_the_last_token() -> None:
    bench = Bench(pages=100)
    first = bench.ask(prompt(1, 37), 9)
    bench.drain()
    history = [*first.tokens, *bench.tokens(first)]
    follow = bench.ask([*history, 5, 6, 7], 3)
    bench.drain()
    # The last token of the answer was never computed: nobody asked for what follows it.
    assert bench.end(follow).usage.cached_tokens == len(history) - 1
    assert bench.tokens(follow) == [e.token for e in bench.model.answer(follow)]


def test_the_prefix_is_reusable_when_the_last_event_comes() -> None:
    bench = Bench(pages=100)
    request = Request("first", tuple(prompt(1, 37)), 4, greedy)
    follow = None

    class Eager:
        """Asks again the moment the answer ends, as a client would."""

        def __init__(self) -> None:
            self.channel = self.send

        def send(self, batch) -> None:
            nonlocal follow
            bench.heard.extend(event for _, event in batch)
            if any(isinstance(event, DoneEvent) for _, event in batch):
                follow = bench.ask(request.tokens, 1)

    bench.engine.submit(request, Eager())
    bench.drain()
    bench.drain()
    assert follow is not None and bench.end(follow).usage.cached_tokens == 36


def test_usage_and_record_are_measured() -> None:
    model = ScriptedModel()
    model.cost = lambda plan: 0.25 * len(plan.tokens)
    bench = Bench(model, pages=100, prefill_chunk=16, batch=1)
    bench.ask(prompt(1, 16), 1)
    request = bench.ask(prompt(2, 40), 9)
    bench.drain()
    usage = bench.end(request).usage
    assert usage.queue_s == pytest.approx(4.0)
    assert usage.prefill_s == pytest.approx(10.0)
    assert usage.decode_s == pytest.approx(8 * 0.25)
    assert usage.first_token_s == pytest.approx(14.0)
    record = bench.engine.records[0]
    assert record.id == request.id and record.status == "length"
    assert record.prefill_rate == pytest.approx(40 / 10.0)
    assert record.decode_rate == pytest.approx(8 / 2.0)
    assert record.duration_s == pytest.approx(16.0)
    assert (record.prompt, record.reused, record.output) == (40, 0, 9)
    again = bench.ask(prompt(2, 40), 2)
    bench.drain()
    record = bench.engine.records[0]
    assert record.reused == 39 and record.id == again.id
    assert record.prefill_rate == pytest.approx(1 / 0.25), "only what was computed counts"


def test_counters_add_up() -> None:
    bench = Bench(pages=200, batch=3)
    for i in range(6):
        bench.ask(prompt(i % 3, 30), 5)
    bench.drain()
    now = bench.engine.snapshot()
    assert now.prompt_tokens == 180 and now.decode_tokens == 30
    assert now.prompt_tokens == now.cached_tokens + now.prefill_tokens
    assert now.requests["length"] == 6 and now.running == now.queued == now.parked == 0
    assert now.pages_free + now.pages_cached == now.pages_total == 200
    assert now.steps == len(bench.model.plans)
    assert now.prefill_s > 0 and now.decode_s > 0


# ---------------------------------------------------------------- cancellation


def staged(bench: Bench) -> dict[str, Request]:
    """One request at each stage: decoding, reading, parked, queued, not taken in yet."""
    common = prompt(9, 300)
    made = {"decoding": bench.ask(prompt(1, 6), 500)}
    bench.turn()
    made["reading"] = bench.ask(common, 5)
    made["parked"] = bench.ask([*common, 1], 5)
    bench.turn()
    for _ in range(4):
        bench.turn()
    made["third"] = bench.ask(prompt(2, 200), 5)
    bench.turn()
    made["queued"] = bench.ask(prompt(3, 6), 5)
    bench.turn()
    made["in the box"] = bench.ask(prompt(4, 6), 5)
    scheduler = bench.core.scheduler
    assert made["parked"].id in scheduler.parked
    assert [s.id for s in scheduler.queue] == [made["queued"].id]
    assert {s.id for s in scheduler.running} == {
        made[name].id for name in ("decoding", "reading", "third")
    }
    return made


@pytest.mark.parametrize(
    "stage", ["decoding", "reading", "parked", "queued", "in the box", "third"]
)
@pytest.mark.parametrize("recurrent", [False, True])
def test_cancel_at_each_stage(stage: str, recurrent: bool) -> None:
    model = ScriptedModel(recurrent=recurrent)
    bench = Bench(model, pages=400, states=30, batch=3, mixed_chunk=8, prefill_chunk=8)
    made = staged(bench)
    victim = made.pop(stage)
    bench.engine.cancel(victim.id)
    bench.turn()
    end = bench.end(victim)
    assert isinstance(end, DoneEvent) and end.finish is Finish.CANCELLED
    scheduler = bench.core.scheduler
    assert victim.id not in {s.id for s in scheduler.running}
    assert victim.id not in scheduler.parked
    heard = len(bench.said(victim))
    bench.drain()
    assert len(bench.said(victim)) == heard, "nothing is said after the end"
    for request in made.values():
        assert bench.tokens(request) == [e.token for e in model.answer(request)]
    assert bench.idle_pages() == 400
    stats = bench.core.cache.stats()
    assert stats.states_free + stats.states_cached == stats.states_total
    assert bench.core.counters.requests == {
        "stop": 0,
        "length": 5,
        "repetition": 0,
        "cancelled": 1,
        "failed": 0,
    }


def test_what_a_cancelled_request_read_stays_reusable() -> None:
    bench = Bench(pages=200, prefill_chunk=50)
    victim = bench.ask(prompt(1, 200), 5)
    bench.turn()
    bench.turn()
    bench.turn()
    bench.engine.cancel(victim.id)
    again = bench.ask(prompt(1, 200), 1)
    bench.drain()
    assert bench.end(again).usage.cached_tokens == 150


def test_a_follower_goes_on_when_its_owner_is_cancelled() -> None:
    bench = Bench(pages=200, prefill_chunk=50)
    owner = bench.ask(prompt(1, 200), 5)
    follower = bench.ask(prompt(1, 200), 5)
    bench.turn()
    assert follower.id in bench.core.scheduler.parked
    bench.engine.cancel(owner.id)
    bench.drain()
    assert bench.end(follower).usage.cached_tokens == 50
    assert bench.tokens(follower) == [e.token for e in bench.model.answer(follower)]


def test_cancelling_twice_late_or_unknown_is_harmless() -> None:
    bench = Bench()
    request = bench.ask(prompt(1, 5), 50)
    bench.turn()
    for name in (request.id, request.id, "nobody"):
        bench.engine.cancel(name)
    bench.drain()
    bench.engine.cancel(request.id)
    bench.drain()
    assert sum(isinstance(e, DoneEvent) for e in bench.heard) == 1


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("recurrent", [False, True])
def test_a_failed_step_ends_its_rows_and_no_others(recurrent: bool) -> None:
    model = ScriptedModel(recurrent=recurrent)
    bench = Bench(model, pages=200, states=20, batch=2, prefill_chunk=16)
    common = prompt(9, 100)
    bench.ask(common[:40], 2)
    bench.drain()
    hurt = [bench.ask(common, 5), bench.ask(prompt(2, 6), 40)]
    follower = bench.ask([*common, 3], 5)
    waiting = bench.ask(prompt(3, 30), 5)
    for _ in range(3):
        bench.turn()
    model.fail = lambda plan: True
    bench.turn()
    model.fail = lambda plan: False
    for request in hurt:
        end = bench.end(request)
        assert isinstance(end, FailedEvent) and end.status == 500
        assert "injected" not in end.message, "what went wrong inside is for the log"
    bench.drain()
    for request in (follower, waiting):
        assert bench.tokens(request) == [e.token for e in model.answer(request)]
    # What the failed step wrote must never be read: ask for all of it again.
    again = [bench.ask(r.tokens, 5) for r in hurt]
    bench.drain()
    for request in again:
        assert bench.tokens(request) == [e.token for e in model.answer(request)]
    assert bench.idle_pages() == 200


def test_failures_again_and_again_leak_nothing() -> None:
    model = ScriptedModel()
    bench = Bench(model, pages=60, batch=4, prefill_chunk=16)
    model.fail = lambda plan: plan.step % 3 == 0 or len(model.plans) % 5 == 0
    asked = [bench.ask(prompt(i, 20 + i), 10) for i in range(40)]
    bench.drain()
    assert any(isinstance(bench.end(r), FailedEvent) for r in asked)
    for request in asked:
        tokens = [e.token for e in model.answer(request)]
        assert bench.tokens(request) == tokens[: len(bench.tokens(request))]
    assert bench.idle_pages() == 60


@pytest.mark.parametrize("sampling", [greedy, Sampling(seed=3), Sampling(0.0, logprobs=1)])
def test_a_row_whose_logits_break_fails_alone(sampling: Sampling) -> None:
    model = ScriptedModel()
    model.broken_after = 60
    bench = Bench(model, pages=100, batch=4)
    words = [t % 60 for t in prompt(1, 9)]
    good = bench.ask(words, 5, sampling=Sampling(0.0, logit_bias=((60, -100.0),)))
    bad = bench.ask([*words, 1, 60], 5, sampling=sampling)
    bench.drain()
    assert isinstance(bench.end(bad), FailedEvent) and not bench.tokens(bad)
    assert isinstance(bench.end(good), DoneEvent) and len(bench.tokens(good)) == 5
    assert bench.idle_pages() == 100


# ---------------------------------------------------------------- what is refused


def test_requests_that_can_never_run_are_refused_with_numbers() -> None:
    model = ScriptedModel()
    model.context_length = 50
    bench = Bench(model, pages=10, block=4)  # room for 40 tokens
    for length, words in (
        (50, ("50", "50")),
        (60, ("60", "50")),
        (40, ("40", "40")),
        (45, ("45", "40")),
    ):
        with pytest.raises(RequestError) as caught:
            bench.ask([1] * length, 4)
        assert caught.value.status == 400 and caught.value.field == "prompt"
        assert all(word in str(caught.value) for word in words)
    bench.ask([1] * 39, 1)
    bench.drain()
    assert isinstance(bench.heard[-1], DoneEvent)


@pytest.mark.parametrize(
    "fields, field",
    [
        ({"tokens": []}, "prompt"),
        ({"tokens": [1, 61]}, "prompt"),
        ({"tokens": [-1]}, "prompt"),
        ({"tokens": [1], "max_tokens": -1}, "max_tokens"),
        ({"tokens": [1], "sampling": Sampling(logit_bias=((61, 1.0),))}, "logit_bias"),
    ],
)
def test_senseless_requests_are_refused(fields, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        Bench().ask(**fields)
    assert (caught.value.status, caught.value.field) == (400, field)


def test_max_tokens_is_cut_to_what_the_context_leaves() -> None:
    model = ScriptedModel()
    model.context_length = 50
    bench = Bench(model, pages=100)
    request = bench.ask(prompt(1, 30), 32_000)
    bench.drain()
    assert len(bench.tokens(request)) == 20 and bench.end(request).finish is Finish.LENGTH


def test_a_full_queue_is_refused_with_a_time() -> None:
    bench = Bench(batch=2, max_queue=3)
    asked = [bench.ask(prompt(i, 5), 20) for i in range(5)]
    with pytest.raises(RequestError) as caught:
        bench.ask(prompt(7, 5), 20)
    assert caught.value.status == 429 and caught.value.retry_after >= 1
    bench.turn()
    with pytest.raises(RequestError):
        bench.ask(prompt(7, 5), 20)
    bench.engine.cancel(asked[4].id)
    bench.turn()
    bench.ask(prompt(7, 5), 20)
    bench.drain()


def test_a_living_id_is_not_taken_twice() -> None:
    bench = Bench()
    bench.ask([1], 3, id="same")
    with pytest.raises(RequestError):
        bench.ask([2], 3, id="same")
    bench.drain()
    bench.ask([2], 3, id="same")
    bench.drain()


# ---------------------------------------------------------------- namespaces, cache off


def test_namespaces_and_uncached_requests_share_nothing() -> None:
    bench = Bench(pages=400)
    words = prompt(1, 60)
    bench.ask(words, 1)
    bench.drain()
    for fields in ({"namespace": "other"}, {"cached": False}, {"cached": False}):
        request = bench.ask(words, 1, **fields)
        bench.drain()
        assert bench.end(request).usage.cached_tokens == 0
    same = bench.ask(words, 1)
    bench.drain()
    assert bench.end(same).usage.cached_tokens == 59


def test_clearing_the_cache() -> None:
    bench = Bench(pages=100)
    words = prompt(1, 60)
    bench.ask(words, 1)
    bench.drain()
    freed = bench.engine.clear_cache()
    bench.turn()
    assert freed.result(0).pages >= 15 and freed.result(0).states == 0
    assert bench.engine.snapshot().pages_free == 100
    again = bench.ask(words, 1)
    bench.drain()
    assert bench.end(again).usage.cached_tokens == 0


# ---------------------------------------------------------------- scores of the prompt


def scores(model: ScriptedModel, words: list[int], count: int) -> list:
    """Brute force: (token, log-probability, most likely ids) of every prompt token."""
    made: list = [None]
    for position in range(1, len(words)):
        row = model.logits(prefix_hash(words[:position])).astype(np.float64)
        exact = row - np.logaddexp.reduce(row)
        order = sorted(range(len(row)), key=lambda i: (-row[i], i))[:count]
        made.append((words[position], exact[words[position]], order))
    return made


@pytest.mark.parametrize("chunk", [1, 7, 512])
@pytest.mark.parametrize("max_tokens", [0, 1, 4])
def test_prompt_logprobs(chunk: int, max_tokens: int) -> None:
    model = ScriptedModel()
    bench = Bench(model, pages=200, prefill_chunk=chunk)
    words = prompt(1, 150)
    bench.ask(words, 1)  # what is cached must not hide positions
    bench.drain()
    bench.ask(prompt(2, 5), 300)
    sampling = Sampling(temperature=0.0, prompt_logprobs=2)
    request = bench.ask(words, max_tokens, sampling=sampling)
    bench.drain()
    first = bench.said(request)[0]
    assert isinstance(first, TokenEvent if max_tokens else DoneEvent)
    got = first.prompt_logprobs
    assert got is not None and len(got) == 150 and got[0] is None
    for mine, (token, value, order) in zip(got[1:], scores(model, words, 2)[1:], strict=True):
        assert mine is not None and mine.token == token
        assert mine.logprob == pytest.approx(value, abs=1e-5)
        assert [t for t, _ in mine.top] == order
    assert all(e.prompt_logprobs is None for e in bench.said(request)[1:])
    assert bench.tokens(request) == [e.token for e in model.answer(request)]
    assert max(len(p.sample) for p in model.plans) <= 66, "logits in one step are bounded"


@pytest.mark.parametrize("chunk", [1, 8])  # preempted while reading, or after
def test_prompt_logprobs_survive_preemption(chunk: int) -> None:
    model = ScriptedModel()
    bench = Bench(model, pages=28, batch=2, mixed_chunk=chunk, prefill_chunk=8)
    bench.ask(prompt(2, 5), 110)
    words = prompt(1, 60)
    sampling = Sampling(temperature=0.0, prompt_logprobs=0)
    request = bench.ask(words, 30, sampling=sampling)
    bench.drain()
    assert bench.core.scheduler.preemptions > 0
    got = bench.said(request)[0].prompt_logprobs
    want = scores(model, words, 0)
    assert [g.token for g in got[1:]] == words[1:]
    assert [g.logprob for g in got[1:]] == pytest.approx([w[1] for w in want[1:]], abs=1e-5)
    assert bench.tokens(request) == [e.token for e in model.answer(request)]


# ---------------------------------------------------------------- seeds


def test_a_seed_gives_the_same_text_in_any_company() -> None:
    model = ScriptedModel(levels=4096)
    sampling = Sampling(temperature=1.2, top_p=0.95, seed=42, frequency_penalty=0.3, logprobs=2)
    alone = Bench(model, pages=200)
    first = alone.ask(prompt(1, 20), 30, sampling=sampling)
    alone.drain()
    crowd = Bench(ScriptedModel(levels=4096), pages=200, batch=6, prefill_chunk=5)
    for i in range(5):
        crowd.ask(prompt(5 + i, 30), 40, sampling=Sampling(seed=i))
    second = crowd.ask(prompt(1, 20), 30, sampling=sampling)
    crowd.drain()
    texts = [
        [(e.token, e.logprob) for e in b.said(r)[:-1]] for b, r in ((alone, first), (crowd, second))
    ]
    assert texts[0] == texts[1]
    other = crowd.ask(prompt(1, 20), 30, sampling=Sampling(temperature=1.2, top_p=0.95, seed=43))
    crowd.drain()
    assert crowd.tokens(other) != crowd.tokens(second)


def test_without_a_seed_answers_differ() -> None:
    bench = Bench(ScriptedModel(levels=4096), pages=200)
    asked = [bench.ask(prompt(1, 20), 20, sampling=Sampling()) for _ in range(3)]
    bench.drain()
    assert len({tuple(bench.tokens(r)) for r in asked}) == 3


def test_plans_are_numbered(steps: int = 6) -> None:
    bench = Bench()
    bench.ask(prompt(1, 5), steps)
    bench.drain()
    numbers = [plan.step for plan in bench.model.plans]
    assert numbers == list(range(len(numbers)))
    assert all(isinstance(plan, ForwardPlan) for plan in bench.model.plans)
