"""A model without weights, and a bench to run it on by hand.

Its logits are a pure function of the token prefix. Its keys are a hash of the
prefix, and it checks every row that it attends to: a wrong page, a stale one or
one that nobody wrote is seen at once. With `recurrent` it also keeps a state per
sequence (the hash so far; zeros before the first token) and checks that it begins
where the prefix ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from sim.invariants import verify

from strata.engine.core import Clocks
from strata.engine.loop import Engine
from strata.engine.outlet import QueueOutlet, deliver
from strata.engine.sampler import Chooser, Sampler
from strata.engine.settings import EngineSettings
from strata.engine.steer import Steer
from strata.kernels import StepResult
from strata.memory.arena import SlotArena
from strata.memory.layout import page_layout, state_layout
from strata.types import (
    Capture,
    DoneEvent,
    Event,
    FailedEvent,
    ForwardPlan,
    LayerMemory,
    MemoryField,
    Request,
    Sampling,
    TokenEvent,
)

MASK = (1 << 64) - 1
ROOT = 0x243F6A8885A308D3
A, B = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93


def chain(before: int, token: int) -> int:
    """The hash of a prefix that goes on with `token`."""
    x = before ^ ((token + 1) * A & MASK)
    x = (x ^ (x >> 29)) * B & MASK
    return x ^ (x >> 32)


def chains(before: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """`chain` of many at once, uint64."""
    x = before ^ ((tokens + np.uint64(1)) * np.uint64(A))
    x = (x ^ (x >> np.uint64(29))) * np.uint64(B)
    return x ^ (x >> np.uint64(32))


def prefix_hash(tokens: Iterable[int]) -> int:
    value = ROOT
    for token in tokens:
        value = chain(value, token)
    return value


class Clock:
    """Time that passes only when told."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


class ScriptedModel:
    """See the module. `cost(plan)` seconds pass on `clock` in each step."""

    context_length = 4096

    def __init__(self, vocab: int = 61, *, recurrent: bool = False, levels: int = 64) -> None:
        self.vocab_size = vocab
        self.recurrent = recurrent
        self.clock = Clock()
        self.cost: Callable[[ForwardPlan], float] = lambda plan: 0.001
        self.fail: Callable[[ForwardPlan], bool] = lambda plan: False
        self.lose: Callable[[Capture], bool] = lambda capture: False  # it is not written
        self.broken_after: int | None = None  # a row that ends with this token gets NaN
        self.plans: list[ForwardPlan] = []
        self.computed = 0
        self.wrong: list[str] = []
        odd = np.random.default_rng(1).integers(0, 2**63, vocab, dtype=np.uint64)
        self._odd = odd * np.uint64(2) + np.uint64(1)
        self._levels = levels

    def memory(self, block: int) -> tuple[LayerMemory, ...]:
        page = (MemoryField("row", (1, block, 16), "uint8"),)
        state = (MemoryField("sum", (8,), "uint8"),) if self.recurrent else ()
        return (LayerMemory(page=page, state=state),)

    def bind(self, pages: SlotArena, states: SlotArena | None, block: int, experts: object) -> None:
        memory = self.memory(block)
        rows = page_layout(memory).views(pages)[0]["row"].numpy()
        self._rows = rows.view(np.uint64)[:, 0]  # [pages, block, (hash, token)]
        self._rows[:] = 0xDEAD
        if states is not None:
            self._states = state_layout(memory).views(states)[0]["sum"].numpy().view(np.uint64)
            self._states[:] = 0xDEAD

    def rows(self) -> None:
        return None

    def logits(self, value: int) -> np.ndarray:
        """float32 [vocab]: coarse, so that ties at the top are common."""
        words = np.uint64(value) * self._odd
        scaled = (words >> np.uint64(40)) * np.uint64(self._levels) >> np.uint64(24)
        return scaled.astype(np.float32) * np.float32(16.0 / self._levels)

    def forward(self, plan: ForwardPlan) -> StepResult:
        self.plans.append(plan)
        self.clock.time += self.cost(plan)
        failing = self.fail(plan)
        values = np.zeros(len(plan.tokens), dtype=np.uint64)
        lost = {capture for capture in plan.captures if self.lose(capture)}
        captured = tuple(capture for capture in plan.captures if capture not in lost)
        try:
            for row in range(len(plan.row_starts) - 1):
                self._row(plan, row, values)
            for capture in lost:
                self._states[capture.slot, 0] = 0xBAD
        except AssertionError as error:  # the engine takes any exception for a failed step
            self.wrong.append(str(error))
            raise
        self.computed += len(plan.tokens)
        if failing:
            slots = plan.write_slots[plan.write_slots >= 0]
            self._rows[slots // plan.block, slots % plan.block] = 0xBAD
            raise RuntimeError("injected")
        lines = [self.logits(int(values[i])) for i in plan.sample]
        for line, i in zip(lines, plan.sample, strict=True):
            if plan.tokens[i] == self.broken_after:
                line[:] = np.nan
        if not lines:
            return StepResult(torch.empty((0, self.vocab_size)), captured)
        return StepResult(torch.from_numpy(np.stack(lines)), captured)

    def _row(self, plan: ForwardPlan, row: int, values: np.ndarray) -> None:
        first, stop = int(plan.row_starts[row]), int(plan.row_starts[row + 1])
        start, count = int(plan.positions[first]), stop - first
        assert (plan.positions[first:stop] == np.arange(start, start + count)).all()
        places = np.arange(start + count)
        pages = plan.page_table[row][places // plan.block]
        assert (pages >= 0).all(), "a page is missing"
        value = self._attended(pages[:start], places[:start] % plan.block)
        state = int(plan.state_slots[row])
        if self.recurrent:
            assert int(self._states[state, 0]) ^ ROOT == value, (
                "the state is not that of the prefix"
            )
        else:
            assert state == -1
        captures = {c.offset: c for c in plan.captures if c.row == row}
        for i in range(count):
            token, slot = int(plan.tokens[first + i]), int(plan.write_slots[first + i])
            value = chain(value, token)
            page, offset = int(pages[start + i]), (start + i) % plan.block
            if slot == -1:
                assert self._rows[page, offset].tolist() == [value, token], "shared row is wrong"
            else:
                assert slot == page * plan.block + offset
                self._rows[page, offset] = (value, token)
            values[first + i] = value
            if i + 1 in captures:
                capture = captures.pop(i + 1)
                assert capture.position == start + i + 1
                self._states[capture.slot, 0] = value ^ ROOT
        assert not captures
        if self.recurrent:
            self._states[state, 0] = value ^ ROOT

    def _attended(self, pages: np.ndarray, offsets: np.ndarray) -> int:
        """Check the chain of rows that a row attends to; the hash at its end."""
        if not len(pages):
            return ROOT
        rows = self._rows[pages, offsets]
        before = np.concatenate([np.array([ROOT], dtype=np.uint64), rows[:-1, 0]])
        with np.errstate(over="ignore"):
            assert (chains(before, rows[:, 1]) == rows[:, 0]).all(), "attention reads a wrong row"
        return int(rows[-1, 0])

    def answer(self, request: Request) -> list[TokenEvent]:
        """What the answer must be: computed from the prefix alone, without any engine."""
        sampling = request.sampling
        assert sampling.seed is not None or sampling.temperature == 0
        steer = Steer.of(request)
        stops = request.stop_token_ids
        chooser = Chooser(sampling, sampling.seed or 0, request.tokens, stops, steer)
        sampler = Sampler(self.vocab_size)
        value, events = prefix_hash(request.tokens), []
        for index in range(request.max_tokens):
            choice = sampler.choose(self.logits(value), chooser, index)
            chooser.saw(choice.token)
            events.append(TokenEvent(request.id, choice.token, index, 0, choice.logprob))
            if choice.token in stops or (steer is not None and steer.ended):
                break
            value = chain(value, choice.token)
        return events


def generate(engine: Engine, request: Request) -> Iterator[Event]:
    """Answer one request, submitted at once. Closing the iterator cancels."""
    outlet = QueueOutlet()
    engine.submit(request, outlet)

    def events() -> Iterator[Event]:
        try:
            while not isinstance(event := outlet.events.get(), DoneEvent | FailedEvent):
                yield event
            yield event
        finally:
            engine.cancel(request.id)

    return events()


class Ear:
    """An outlet that keeps what it hears, on a list shared by the bench."""

    def __init__(self, heard: list[Event]) -> None:
        self.channel = deliver
        self._heard = heard

    def put(self, event: Event) -> None:
        self._heard.append(event)


class Bench:
    """An engine stepped by hand, on a clock of its own, with everything it said."""

    def __init__(
        self,
        model: ScriptedModel | None = None,
        *,
        pages: int = 64,
        states: int = 16,
        block: int = 4,
        **settings: Any,
    ) -> None:
        self.model = model or ScriptedModel()
        self.heard: list[Event] = []
        clocks = Clocks(self.model.clock, lambda: 1e9 + self.model.clock.time)
        self.engine = Engine(
            self.model,
            EngineSettings(**settings),
            pages=pages,
            states=states,
            block=block,
            clocks=clocks,
        )
        self.core = self.engine.core
        self._names = (f"r{i}" for i in itertools.count())

    def ask(self, tokens: Iterable[int], max_tokens: int = 4, **fields: Any) -> Request:
        """Submit a request; greedy unless `sampling` says otherwise."""
        fields.setdefault("sampling", Sampling(temperature=0.0))
        fields.setdefault("id", next(self._names))
        request = Request(tokens=tuple(tokens), max_tokens=max_tokens, **fields)
        self.engine.submit(request, Ear(self.heard))
        return request

    def turn(self) -> None:
        """One step, after which everything must be in order."""
        self.engine.turn()
        self.check()

    def drain(self, limit: int = 20_000) -> None:
        """Step until nothing lives."""
        while self.engine.turn():
            self.check()
            limit -= 1
            assert limit > 0, "no progress"
        self.check()

    def check(self) -> None:
        """The invariants of cache and scheduler."""
        core = self.core
        assert not self.model.wrong
        verify(core.cache)
        scheduler = core.scheduler
        for sequence in [*scheduler.queue, *scheduler.parked.values()]:
            assert sequence.lease is None
        everyone = [*scheduler.queue, *scheduler.parked.values(), *scheduler.running]
        assert len({s.id for s in everyone}) == len(everyone) == len(core._living)
        assert len(scheduler.running) <= core.scheduler._settings.batch

    def tokens(self, request: Request) -> list[int]:
        return [e.token for e in self.said(request) if isinstance(e, TokenEvent)]

    def said(self, request: Request) -> list[Event]:
        return [e for e in self.heard if e.request_id == request.id]

    def end(self, request: Request) -> DoneEvent | FailedEvent | None:
        last = self.said(request)[-1:]
        return last[0] if last and isinstance(last[0], DoneEvent | FailedEvent) else None

    def idle_pages(self) -> int:
        """Pages that no lease holds: free or cached."""
        stats = self.core.cache.stats()
        return stats.pages_free + stats.pages_cached
