"""Core: the whole engine as one function, `step`.

Take sequences in, schedule, build, run, choose, commit, tell. No threads and no
locks: called by hand with a clock of one's own it is deterministic. What it
returns are events; the loop carries them out.

Invariants: nothing of a failed step is published in the cache; a sequence's
memory is back, and its prefix reusable, before its last event is told.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from strata.cache.prefix import PrefixCache
from strata.engine.draw import NotFinite
from strata.engine.outlet import Outlet
from strata.engine.plan import build
from strata.engine.runner import Runner
from strata.engine.sampler import Choice, Sampler
from strata.engine.scheduler import Grant, Scheduler
from strata.engine.sequence import Sequence, Status
from strata.engine.settings import EngineSettings
from strata.engine.stats import Counters, Journal
from strata.types import Capture, DoneEvent, Event, FailedEvent, Finish, TokenEvent

_log = logging.getLogger(__name__)

Told = tuple[Outlet, Event]


@dataclass(frozen=True, slots=True)
class Clocks:
    """`now` in seconds of a clock that never goes back; `wall` in seconds since 1970."""

    now: Callable[[], float]
    wall: Callable[[], float]


@dataclass(slots=True)
class Batch:
    """One step on its way: its rows, and which captures each row was promised."""

    grants: list[Grant]
    captures: list[tuple[Capture, ...]] = field(default_factory=list)


class Core:
    """Everything between a queued sequence and its events. One thread uses it."""

    def __init__(
        self, runner: Runner, cache: PrefixCache, settings: EngineSettings, clocks: Clocks
    ) -> None:
        self.runner = runner
        self.cache = cache
        self.counters = Counters()
        self.journal = Journal(clocks.wall)
        self.scheduler = Scheduler(
            settings, cache, runner.copy, runner.pages.slots, runner.block
        )
        self._sampler = Sampler(runner.model.vocab_size)
        self._clock = clocks.now
        self._living: dict[str, Sequence] = {}
        self._deadlines: list[tuple[float, int, str]] = []

    # -------------------------------------------------------------- between steps

    @property
    def busy(self) -> bool:
        """Whether any sequence is not finished."""
        return bool(self._living)

    def add(self, sequence: Sequence) -> None:
        """Take a sequence in. Its id must not be that of a living one."""
        assert sequence.id not in self._living
        self._living[sequence.id] = sequence
        deadline = sequence.request.deadline
        if deadline is not None:
            heapq.heappush(self._deadlines, (deadline, sequence.order, sequence.id))
        self.scheduler.add(sequence)

    def cancel(self, request_id: str) -> list[Told]:
        """End a sequence, wherever it is; what it computed stays reusable."""
        sequence = self._living.get(request_id)
        return [] if sequence is None else [self._finish(sequence, Finish.CANCELLED)]

    def fail_all(self, message: str, status: int) -> list[Told]:
        """End every sequence without touching cache or scheduler, which may be broken."""
        told = [(s.outlet, _failed(s, message, status)) for s in self._living.values()]
        self._living.clear()
        return told

    # -------------------------------------------------------------- the step

    def step(self) -> list[Told]:
        """Compute one step, if anything can run. Returns what to tell, in order."""
        told = self._expire()
        schedule = self.scheduler.schedule()
        now = self._clock()
        for sequence in schedule.admitted:
            self._note_admission(sequence, now)
        for sequence in schedule.refused:
            told.append(self._fail(sequence, "there is not enough memory for this request", 503))
        if not schedule.grants:
            return told
        batch = Batch(schedule.grants)
        try:
            rows, logits, plan_sample = self._run(batch)
        except Exception as error:
            _log.exception("a step of %d rows failed", len(batch.grants))
            message = f"the engine failed while computing this answer ({type(error).__name__})"
            told.extend(self._fail(grant.sequence, message, 500) for grant in batch.grants)
            return told
        seconds = self._clock() - now
        self._count(batch, seconds)
        told.extend(self._settle(batch, logits, rows, plan_sample))
        return told
