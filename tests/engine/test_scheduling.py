"""The policy of docs/scheduling.md, each stated bound measured on a scripted clock."""

import numpy as np
import pytest
from scripted import Bench, ScriptedModel

from strata.types import DoneEvent, FailedEvent, ForwardPlan, TokenEvent


def timed(per_token: float = 0.001, per_row: float = 0.001, base: float = 0.002) -> ScriptedModel:
    """A model whose steps take time: a base, and something for each row and token."""
    model = ScriptedModel()

    def cost(plan: ForwardPlan) -> float:
        return base + per_row * (len(plan.row_starts) - 1) + per_token * len(plan.tokens)

    model.cost = cost
    return model


def prompt(seed: int, length: int) -> list[int]:
    """Different seeds differ from the first token on: nothing is shared by chance."""
    return [seed % 61, *np.random.default_rng(seed).integers(0, 61, length - 1).tolist()]


class Watch(Bench):
    """A bench that keeps the time of every event."""

    def watch(self, turns: int = 100_000) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {}
        for _ in range(turns):
            before = len(self.heard)
            more = self.engine.turn()
            for event in self.heard[before:]:
                if isinstance(event, TokenEvent):
                    times.setdefault(event.request_id, []).append(self.model.clock.time)
            if not more:
                break
        return times


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("rows", [1, 4])
def test_a_long_prompt_slows_decoding_by_a_stated_bound(share: float, rows: int) -> None:
    bench = Watch(timed(), pages=4000, block=4, batch=8, decode_share=share)
    talking = [bench.ask(prompt(i, 5), 600) for i in range(rows)]
    for _ in range(30):
        bench.turn()
    solo = bench.model.cost(bench.model.plans[-1])
    long = bench.ask(prompt(99, 3000), 1)
    begun = bench.model.clock.time
    times = bench.watch()
    first = times[long.id][0]
    mixed = max(
        bench.model.cost(p) for p in bench.model.plans if len(p.tokens) > len(p.row_starts) - 1
    )
    mixed = 0.002 + 0.001 * (rows + 1) + 0.001 * (rows + 64)
    for request in talking:
        seen = [t for t in times[request.id] if begun < t <= first]
        gaps = np.diff(seen)
        assert gaps.max() <= mixed + 1e-9, "the largest gap is one mixed step"
        # Tokens in any window: the share of the solo rate, short of one mixed step.
        for i in range(0, len(seen), 7):
            for j in range(i + 1, len(seen), 11):
                assert (j - i + 1) * solo >= share * (seen[j] - seen[i] - mixed)
    # And the prompt gets the rest of the time.
    spent = first - begun
    assert 3000 / spent >= 64 / (mixed + solo * (1 + share * mixed / (solo * (1 - share))))


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    bench = Watch(timed(), pages=4000, batch=4, prefill_chunk=64)
    long = bench.ask(prompt(1, 4000), 2)
    for _ in range(3):
        bench.turn()
    short = bench.ask(prompt(2, 40), 2)
    steps = bench.core.counters.steps
    while not bench.tokens(short):
        bench.turn()
    assert bench.core.counters.steps - steps <= 2  # 40 tokens at 48 of each 64
    assert not bench.tokens(long)
    bench.drain()
    assert bench.tokens(long) and isinstance(bench.end(long), DoneEvent)


def test_the_oldest_prompt_keeps_a_quarter_against_a_stream_of_short_ones() -> None:
    bench = Watch(timed(), pages=4000, batch=4, prefill_chunk=64)
    long = bench.ask(prompt(1, 1600), 1)
    bench.turn()
    index, steps = 0, 0
    while not bench.tokens(long):
        index += 1
        if len(bench.core.scheduler.queue) < 4:
            bench.ask(prompt(1000 + index, 47), 1, cached=False)
        bench.turn()
        steps += 1
    assert steps <= 1600 / 16 + 1


def test_prompts_alike_end_together() -> None:
    bench = Watch(timed(), pages=4000, batch=4, prefill_chunk=64)
    asked = [bench.ask(prompt(i, 240 + 40 * i), 1) for i in range(4)]
    times = bench.watch()
    ends = [times[r.id][0] for r in asked]
    assert len(set(ends)) == 1
    work = bench.model.computed
    assert work == 1200 and len(bench.model.plans) == -(-1200 // 64)  # no slot left empty


def test_a_full_prefix_hit_joins_the_decoding_rows() -> None:
    bench = Watch(timed(), pages=4000, batch=4)
    words = prompt(3, 400)
    bench.ask(words, 1)
    bench.drain()
    talking = bench.ask(prompt(4, 5), 500)
    for _ in range(20):
        bench.turn()
    bench.ask(prompt(5, 2000), 1)
    for _ in range(5):
        bench.turn()
    again = bench.ask(words, 1)
    bench.turn()
    assert len(bench.tokens(again)) == 1, "one token to compute: the very next step has it"
    assert bench.said(again)[0].cached_tokens == 399
    assert bench.tokens(talking)


def test_priority_then_arrival() -> None:
    bench = Watch(timed(), pages=400, batch=1)
    running = bench.ask(prompt(0, 8), 3)
    bench.turn()
    low = bench.ask(prompt(1, 8), 1, priority=-1)
    usual = [bench.ask(prompt(2 + i, 8), 1) for i in range(2)]
    high = bench.ask(prompt(9, 8), 1, priority=5)
    times = bench.watch()
    order = sorted(times, key=lambda name: times[name][0])
    assert order == [running.id, high.id, *(r.id for r in usual), low.id]


def test_no_more_than_batch_rows_run() -> None:
    bench = Watch(timed(), pages=400, batch=3)
    asked = [bench.ask(prompt(i, 9), 12) for i in range(10)]
    bench.drain()
    assert max(len(p.row_starts) - 1 for p in bench.model.plans) == 3
    assert all(len(bench.tokens(r)) == 12 for r in asked)


def test_rows_join_and_leave_at_any_step() -> None:
    bench = Watch(timed(), pages=400, batch=4)
    first = bench.ask(prompt(0, 9), 40)
    for _ in range(10):
        bench.turn()
    second = bench.ask(prompt(1, 9), 3)
    bench.turn()
    bench.turn()
    assert bench.tokens(second), "joined at once"
    bench.drain()
    for request in (first, second):
        assert bench.tokens(request) == [e.token for e in bench.model.answer(request)]


# ---------------------------------------------------------------- memory


def test_growth_preempts_the_youngest_and_resumes_it_exactly() -> None:
    model = timed()
    bench = Watch(model, pages=24, block=4, batch=3)
    asked = [bench.ask(prompt(i, 10), 50) for i in range(3)]  # 15 pages each at the end
    victims = set()
    before: dict[str, int] = {}
    while bench.core.busy or not bench.heard:
        bench.turn()
        running = {s.id for s in bench.core.scheduler.running}
        for name in before:
            if name not in running and not bench.end(next(r for r in asked if r.id == name)):
                victims.add(name)
        before = dict.fromkeys(running, 0)
    assert bench.core.scheduler.preemptions > 0
    assert asked[0].id not in victims, "the first in rank is never preempted"
    for request in asked:
        assert bench.tokens(request) == [e.token for e in model.answer(request)]
    assert bench.idle_pages() == 24


def test_low_priority_is_preempted_before_the_young() -> None:
    bench = Watch(timed(), pages=24, block=4, batch=2)
    low = bench.ask(prompt(1, 10), 60, priority=-1)
    bench.turn()
    high = bench.ask(prompt(2, 10), 60)
    times = bench.watch()
    assert bench.core.scheduler.preemptions > 0
    assert times[high.id][-1] < times[low.id][-1]
    assert np.diff(times[high.id]).max() < 0.02, "the one of higher priority never stopped"


def test_memory_is_not_wasted_on_preempting_again_and_again() -> None:
    bench = Watch(timed(), pages=30, block=4, batch=6, prefill_chunk=64)
    asked = [bench.ask(prompt(i, 30), 30) for i in range(6)]
    bench.drain()
    assert all(len(bench.tokens(r)) == 30 for r in asked)
    # 6 x 30 prompt tokens; what preemption reads again stays in proportion.
    assert bench.core.scheduler.preemptions <= 6
    assert bench.core.counters.prefill_tokens <= 2 * 180


def test_the_head_of_the_queue_is_not_passed_by_smaller_ones() -> None:
    bench = Watch(timed(), pages=30, block=4, batch=4)
    bench.ask(prompt(0, 40), 40)  # 20 pages in the end
    bench.turn()
    big = bench.ask(prompt(1, 100), 4)  # 26 pages: only alone
    small = [bench.ask(prompt(2 + i, 6), 30) for i in range(5)]
    admitted: list[str] = []
    while bench.core.busy:
        bench.turn()
        new = [s.id for s in bench.core.scheduler.running if s.id not in admitted]
        admitted += new
    assert admitted[:2] == ["r0", big.id] and len(admitted) == 7
    assert all(isinstance(bench.end(r), DoneEvent) for r in [big, *small])


@pytest.mark.parametrize("states", [1, 2, 3])
def test_without_states_requests_wait_in_order(states: int) -> None:
    bench = Bench(ScriptedModel(recurrent=True), pages=400, states=states, batch=4)
    asked = [bench.ask(prompt(i, 12), 20 - 3 * i) for i in range(6)]
    admitted: list[str] = []
    while bench.core.busy or not admitted:
        bench.turn()
        admitted += [s.id for s in bench.core.scheduler.running if s.id not in admitted]
    assert admitted == [r.id for r in asked]
    for request in asked:
        assert bench.tokens(request) == [e.token for e in bench.model.answer(request)]


def test_who_must_wait_is_not_tried_at_every_step() -> None:
    bench = Watch(timed(), pages=24, block=4, batch=3)
    tries = 0
    acquire = bench.core.cache.acquire

    def counted(holder):
        nonlocal tries
        tries += 1
        return acquire(holder)

    bench.core.cache.acquire = counted  # type: ignore[method-assign]
    asked = [bench.ask(prompt(i, 10), 50) for i in range(3)]
    bench.drain()
    assert bench.core.scheduler.preemptions > 0
    # Each is tried when it comes, when it was preempted, and when another has left.
    assert tries <= 2 * len(asked) + bench.core.scheduler.preemptions


def test_a_request_that_fits_alone_always_ends() -> None:
    bench = Watch(timed(), pages=16, block=4, batch=5, prefill_chunk=16)
    asked = [bench.ask(prompt(i, 3 + 7 * i), 20) for i in range(6)]  # the last: 58 of 64 tokens
    bench.drain()
    for request in asked:
        run = bench.engine.limits.admit(request)
        assert bench.tokens(request) == [e.token for e in bench.model.answer(run)]


# ---------------------------------------------------------------- sharing


@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize("recurrent", [False, True])
def test_a_burst_reads_its_common_prefix_once(count: int, recurrent: bool) -> None:
    model = ScriptedModel(recurrent=recurrent)
    bench = Bench(model, pages=800, states=64, batch=8, prefill_chunk=64)
    common = prompt(0, 600)
    asked = [bench.ask(common + prompt(1 + i, 20), 1) for i in range(count)]
    bench.drain()
    own = count * 20
    assert model.computed <= 600 + own + count * 4  # a follower may round down to its block
    for request in asked:
        assert bench.tokens(request) == [e.token for e in model.answer(request)]


def test_equal_prompts_at_once_are_read_once() -> None:
    bench = Bench(pages=800, batch=4, prefill_chunk=64)
    words = prompt(0, 500)
    asked = [bench.ask(words, 3) for _ in range(4)]
    bench.drain()
    assert bench.core.counters.prefill_tokens <= 500 + 3 * 4
    assert len({tuple(bench.tokens(r)) for r in asked}) == 1


# ---------------------------------------------------------------- deadlines


def test_deadlines_hold_at_every_stage() -> None:
    bench = Watch(timed(), pages=800, batch=2, prefill_chunk=16)
    now = bench.model.clock.time
    common = prompt(9, 400)
    reading = bench.ask(common, 5, deadline=now + 0.1)
    parked = bench.ask([*common, 3], 5, deadline=now + 0.2)
    decoding = bench.ask(prompt(1, 4), 10_000, deadline=now + 0.5, cached=False)
    waiting = bench.ask(prompt(2, 4), 5, deadline=now + 0.05)
    other = bench.ask(prompt(3, 4), 5)
    bench.turn()
    assert parked.id in bench.core.scheduler.parked
    bench.drain()
    for request in (reading, parked, decoding, waiting):
        end = bench.end(request)
        assert isinstance(end, FailedEvent) and end.status == 504, request.id
    assert isinstance(bench.end(other), DoneEvent)
    assert bench.tokens(decoding)
    assert bench.idle_pages() == 800
    assert bench.core.counters.requests["failed"] == 4
