"""What other threads see of the engine: rows at each step, and the records of those that ended."""

import numpy as np
import pytest
from scripted import Bench, ScriptedModel

from strata.figures import LiveRow
from strata.types import Finish, ForwardPlan


def prompt(seed: int, length: int) -> list[int]:
    return [seed % 61, *np.random.default_rng(seed).integers(0, 61, length - 1).tolist()]


class Steps(Bench):
    """A bench whose steps take a second; `seen` are the views while each ran."""

    def __init__(self, **more) -> None:
        model = ScriptedModel()
        super().__init__(model, **more)
        self.seen: list[dict[str, LiveRow]] = []

        def cost(plan: ForwardPlan) -> float:
            self.seen.append({row.id: row for row in self.engine.view.rows})
            return 1.0

        model.cost = cost

    def row(self, request) -> LiveRow:
        return self.seen[-1][request.id]


def test_a_row_while_it_reads_and_while_it_answers() -> None:
    bench = Steps(prefill_chunk=8)
    request = bench.ask(prompt(1, 20), 3)
    told = []
    while bench.engine.turn():
        row = bench.row(request)
        told.append((row.status, row.read, row.computed, row.output))
    told.append((bench.row(request).status, bench.row(request).read, 20, bench.row(request).output))
    assert told == [
        ("reading", 0, 0, 0), ("reading", 8, 8, 0), ("reading", 16, 16, 0),
        ("decoding", 20, 20, 1), ("decoding", 20, 20, 2),
    ]  # fmt: skip
    assert bench.engine.view.rows == ()
    view = bench.engine.view
    assert (view.steps, view.prefill_tokens, view.decode_tokens, view.ended) == (5, 20, 3, 1)
    assert view.stepped == bench.model.clock.time and view.prefill_s + view.decode_s == 5.0


def test_moments_are_of_the_engine_s_clock() -> None:
    bench = Steps(prefill_chunk=8)
    request = bench.ask(prompt(1, 12), 4)
    for _ in range(4):
        bench.turn()
    row = bench.row(request)
    assert (row.arrived, row.admitted, row.first, row.last) == (100.0, 100.0, 102.0, 103.0)
    assert bench.engine.view.wall - bench.engine.view.at == 1e9


def test_reused_tokens_are_read_from_the_start() -> None:
    bench = Steps(prefill_chunk=8)
    bench.ask(prompt(1, 40), 1)
    bench.drain()
    request = bench.ask([*prompt(1, 40), *prompt(2, 20)], 2)
    bench.turn()
    assert (bench.row(request).reused, bench.row(request).read) == (40, 40)
    bench.turn()
    assert (bench.row(request).read, bench.row(request).computed) == (48, 8)


def test_who_waits_and_who_is_queued() -> None:
    bench = Steps(batch=2, prefill_chunk=8)
    first = bench.ask(prompt(1, 40), 30)
    bench.turn()
    other = bench.ask([*prompt(1, 40), 5], 2)
    more = [bench.ask(prompt(i, 9), 30) for i in (2, 3)]
    bench.turn()
    seen = bench.seen[-1]
    assert seen[first.id].status == "reading" and seen[first.id].stepping
    assert seen[other.id].status == "parked" and not seen[other.id].stepping
    assert [seen[one.id].status for one in more] == ["reading", "queued"]
    while other.id in bench.seen[-1] and bench.row(other).status == "parked":
        bench.turn()
    begun = bench.engine.core.clocks.now()
    bench.drain()
    (record,) = [one for one in bench.engine.records if one.id == other.id]
    ((begin, end),) = record.waits
    # It came at 101, parked with the step that began then, and was woken four steps later.
    assert begin == 0.0 and end == record.wait_s == 4.0 and 101 + end == begun - 1
    assert record.queue_s >= record.wait_s


def test_a_preempted_row_is_queued_again_and_reads_again() -> None:
    bench = Steps(batch=2, pages=12, block=4, prefill_chunk=64)
    rows = [bench.ask(prompt(i, 12), 30) for i in (1, 2)]
    bench.drain()
    assert bench.engine.core.scheduler.preemptions > 0
    statuses = [seen[rows[1].id].status for seen in bench.seen if rows[1].id in seen]
    assert "queued" in statuses[3:] and "reading" in statuses[statuses.index("queued") :]


def test_views_are_laid_out_when_something_changed_and_else_ten_times_a_second() -> None:
    model = ScriptedModel()
    model.cost = lambda plan: 0.01
    bench = Bench(model, batch=2)
    bench.ask(prompt(1, 10), 100)
    views = set()
    for _ in range(51):  # a read, and half a second of decoding
        bench.turn()
        views.add(id(bench.engine.view))
    kept = len(views)
    assert 5 <= kept <= 8
    bench.ask(prompt(2, 10), 100)
    bench.turn()
    assert len(bench.engine.view.rows) == 2  # the newcomer is seen with its first step


def test_a_reading_row_is_laid_out_before_each_step() -> None:
    bench = Steps(prefill_chunk=4)
    request = bench.ask(prompt(1, 40), 1)
    cost = bench.model.cost
    bench.model.cost = lambda plan: cost(plan) / 100
    bench.drain()
    assert [seen[request.id].read for seen in bench.seen] == list(range(0, 40, 4))


def test_after_the_last_row_nobody_is_shown() -> None:
    bench = Bench()
    request = bench.ask(prompt(1, 10), 100)
    bench.turn()
    bench.turn()
    bench.engine.cancel(request.id)
    bench.turn()
    assert bench.engine.view.rows == () and bench.engine.view.ended == 1


@pytest.mark.parametrize(
    ("end", "status", "words"),
    [
        (None, Finish.LENGTH, "5 tokens are all it may have"),
        (Finish.CANCELLED, Finish.CANCELLED, "the client left"),
        (Finish.STOP, Finish.STOP, "its text is complete: a stop string, or the one call wanted"),
    ],
)
def test_the_reason_of_an_end(end, status, words) -> None:
    bench = Bench()
    request = bench.ask(prompt(1, 10), 5)
    bench.turn()
    if end is not None:
        bench.engine.cancel(request.id, end)
    bench.drain()
    record = bench.engine.records[0]
    assert (record.status, record.reason, record.number) == (status, words, 1)


class Two:
    """A guide that wants two tokens, any."""

    def __init__(self) -> None:
        self.left = 2

    @property
    def ended(self) -> bool:
        return not self.left

    def mask(self, row) -> None:
        pass

    def accept(self, token: int) -> None:
        self.left -= 1


def test_the_reason_of_other_ends() -> None:
    bench = Bench()
    token = bench.model.answer(bench.ask(prompt(1, 10), 9))[0].token
    bench.ask(prompt(1, 10), 9, stop_token_ids=frozenset({token}))
    bench.ask(prompt(3, 10), 0)
    bench.drain()
    bench.ask(prompt(5, 10), 9, guide=Two)
    bench.drain()
    assert bench.engine.records[0].reason == "nothing can follow in its grammar"
    bench.model.fail = lambda plan: True
    bench.ask(prompt(4, 10), 9)
    bench.drain()
    told = {one.id: (one.status, one.reason) for one in bench.engine.records}
    assert told["r1"] == ("stop", f"token {token} ends answers")
    assert told["r2"] == ("length", "only its prompt was wanted")
    assert told["r4"] == ("failed", "computing this answer failed (RuntimeError)")
    assert [one.number for one in bench.engine.records] == [5, 4, 3, 2, 1]


def test_spreads_are_of_the_finished_requests() -> None:
    bench = Steps(prefill_chunk=64)
    bench.ask(prompt(1, 10), 3)
    bench.ask(prompt(2, 30), 5)
    bench.drain()
    told, records = bench.engine.snapshot().spreads, bench.engine.records
    for name in ("prompt", "output", "queue_s", "duration_s", "prefill_s", "decode_s"):
        values = [getattr(record, name) for record in records]
        assert told[name].total == pytest.approx(sum(values)) and sum(told[name].counts) == 2
        for bound, count in zip(told[name].bounds, np.cumsum(told[name].counts), strict=False):
            assert count == sum(value <= bound for value in values)
