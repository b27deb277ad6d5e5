"""Core: the whole engine as one function, `step`.

Schedule, build, run, choose, commit, tell. No threads and no locks: called by
hand with a clock of one's own it is deterministic. What it returns are events;
the loop carries them out.

Invariants: nothing of a failed step is published in the cache; a sequence's
memory is back, and its prefix reusable, before its last event is told.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import compress, count

from strata.cache.prefix import PrefixCache
from strata.engine.draw import NotFinite
from strata.engine.outlet import Told
from strata.engine.plan import build
from strata.engine.runner import Logits, Runner
from strata.engine.sampler import Choice, Sampler
from strata.engine.scheduler import Grant, Scheduler
from strata.engine.sequence import Sequence, Status
from strata.engine.settings import EngineSettings
from strata.engine.stats import Counters, Journal
from strata.engine.window import Window
from strata.types import (
    Capture,
    DoneEvent,
    FailedEvent,
    Finish,
    RequestError,
    StorageError,
    TokenEvent,
)

_log = logging.getLogger(__name__)

# Why a request ended that its reader ended.
_LEFT, _COMPLETE = "the client left", "its text is complete: a stop string, or the one call wanted"


@dataclass(frozen=True, slots=True)
class Clocks:
    """`now` in seconds of a clock that never goes back; `wall` in seconds since 1970."""

    now: Callable[[], float]
    wall: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the step now running.

    `captures` were promised to it. Its logits are rows [first, stop) of the step's;
    `complete` when the last of them choose its next token.
    """

    grant: Grant
    captures: tuple[Capture, ...]
    first: int
    stop: int
    complete: bool


class Core:
    """Everything between a queued sequence and its events. One thread uses it."""

    def __init__(
        self, runner: Runner, cache: PrefixCache, settings: EngineSettings, clocks: Clocks
    ) -> None:
        self.runner = runner
        self.cache = cache
        self.counters = Counters()
        self.journal = Journal(clocks.wall)
        self.window = Window(clocks.wall)
        self.scheduler = Scheduler(settings, cache, runner.copy)
        self._sampler = Sampler(runner.model.vocab_size)
        self.clocks = clocks
        self._living: dict[str, Sequence] = {}
        self._arrivals = count()
        self._deadlines: list[tuple[float, int, Sequence]] = []

    # -------------------------------------------------------------- between steps

    @property
    def busy(self) -> bool:
        """Whether any sequence is not finished."""
        return bool(self._living)

    def add(self, sequence: Sequence) -> list[Told]:
        """Take a sequence in. Its id must not be that of a living one. Nothing to tell yet."""
        assert sequence.id not in self._living
        sequence.order = next(self._arrivals)
        self._living[sequence.id] = sequence
        deadline = sequence.request.deadline
        if deadline is not None:
            heapq.heappush(self._deadlines, (deadline, sequence.order, sequence))
        self.scheduler.add(sequence)
        return []

    def cancel(self, request_id: str, finish: Finish = Finish.CANCELLED) -> list[Told]:
        """End a sequence wherever it is; what it computed stays reusable."""
        sequence = self._living.get(request_id)
        reason = _LEFT if finish is Finish.CANCELLED else _COMPLETE
        return [] if sequence is None else [self._finish(sequence, finish, reason)]

    def show(self, grants: Iterable[Grant] = ()) -> None:
        """Let other threads see who lives; `grants` are about to run."""
        self.window.show(self.clocks.now(), self.scheduler, self.counters, self.journal, grants)

    # -------------------------------------------------------------- the step

    def step(self) -> list[Told]:
        """Compute one step, if anything can run. Returns what to tell, in order."""
        begun = self.clocks.now()
        told = self._expire(begun)
        schedule = self.scheduler.schedule()
        for sequence in schedule.woken:
            sequence.times.end_wait(begun)
        for sequence in schedule.parked:
            sequence.times.parked = begun
        for sequence in schedule.admitted:
            self._note_admission(sequence, begun)
        for sequence in schedule.refused:
            told.append(self._fail(sequence, "there is no memory left for this request", 503))
        grants = schedule.grants
        self.show(grants)
        if not grants:
            return told
        decoding = sum(grant.sequence.todo == 1 for grant in grants)
        reading = sum(grant.count for grant in grants) - decoding
        try:
            rows, logits, captured = self._run(grants)
        except StorageError as error:
            _log.error("a step of %d rows failed: %s", len(grants), error)
            told.extend(self._fail(g.sequence, str(error), 503, keep=False) for g in grants)
            return told
        except Exception as error:  # whatever the model raises, others must be served
            _log.exception("a step of %d rows failed", len(grants))
            message = f"computing this answer failed ({type(error).__name__})"
            told.extend(self._fail(g.sequence, message, 500, keep=False) for g in grants)
            return told
        told.extend(self._settle(rows, logits, captured))
        self._count(decoding, reading, self.clocks.now() - begun)
        return told

    def _run(self, grants: list[Grant]) -> tuple[list[Row], Logits, frozenset[Capture]]:
        """Build the plan and run it. Changes nothing but bytes that nobody may read yet."""
        rows: list[Row] = []
        wanted = 0
        for index, grant in enumerate(grants):
            sequence = grant.sequence
            assert sequence.lease is not None
            captures = self.cache.captures(sequence.lease, index, grant.start, grant.count)
            complete = grant.start + grant.count == len(sequence.tokens)
            first, wanted = wanted, wanted + (grant.count if sequence.scoring else complete)
            rows.append(Row(grant, captures, first, wanted, complete))
        plan = build(
            grants,
            step=self.counters.steps,
            block=self.runner.block,
            captures=tuple(capture for row in rows for capture in row.captures),
        )
        try:
            return rows, *self.runner.run(plan)
        finally:  # a failed step has moved experts too
            for row, use in zip(rows, self.runner.tally(), strict=False):
                row.grant.sequence.served(use)

    def _settle(self, rows: list[Row], logits: Logits, captured: frozenset[Capture]) -> list[Told]:
        """Choose, commit and tell, once the step's bytes exist."""
        told: list[Told] = []
        choices = self._choose(rows, logits)
        now = self.clocks.now()
        for row, choice in zip(rows, choices, strict=True):
            sequence = row.grant.sequence
            broken = choice if isinstance(choice, NotFinite) else self._score(row, logits)
            if broken is not None:
                _log.error("a row has no usable logits: %s", broken)
                message = "the model gave no usable probabilities for this answer"
                told.append(self._fail(sequence, message, 500, keep=False))
                continue
            self._commit(row, captured)
            if sequence.request.progress and sequence.times.first is None:
                told.append((sequence.outlet, sequence.progress(now)))
            if isinstance(choice, Choice):
                self._append(sequence, choice, now, told)
            elif isinstance(choice, RequestError):  # its guide cannot go on
                told.append(self._fail(sequence, str(choice), choice.status))
            elif row.complete:  # a prompt that only wanted to be read
                told.append(self._finish(sequence, Finish.LENGTH, "only its prompt was wanted"))
        return told

    def _choose(
        self, rows: list[Row], logits: Logits
    ) -> list[Choice | NotFinite | RequestError | None]:
        """The next token of every complete row that may have one; None for the others."""
        speaks = [r.complete and r.grant.sequence.request.max_tokens > 0 for r in rows]
        speaking = list(compress(rows, speaks))
        if len(speaking) < len(logits):
            logits = logits[[row.stop - 1 for row in speaking]]
        choosers = [(r.grant.sequence.chooser, r.grant.sequence.output_len) for r in speaking]
        made = iter(self._sampler.choose_all(logits, choosers))
        return [next(made) if said else None for said in speaks]

    def _score(self, row: Row, logits: Logits) -> NotFinite | None:
        """Log-probabilities of the prompt tokens that this row's logits came before."""
        sequence = row.grant.sequence
        scores, count = sequence.prompt_logprobs, sequence.request.sampling.prompt_logprobs
        if not sequence.scoring or scores is None or count is None:
            return None
        for offset in range(row.grant.count):
            position = row.grant.start + offset + 1
            if position == len(scores) and position < sequence.prompt_len:
                try:
                    line = logits[row.first + offset]
                    scores.append(self._sampler.score(line, sequence.tokens[position], count))
                except NotFinite as error:
                    return error
        return None

    def _commit(self, row: Row, captured: frozenset[Capture]) -> None:
        grant, sequence = row.grant, row.grant.sequence
        assert sequence.lease is not None
        sequence.computed_len = end = grant.start + grant.count
        written = [capture for capture in row.captures if capture in captured]
        self.runner.copy(self.cache.commit(sequence.lease, end, written))
        if sequence.times.first is None:
            sequence.read_tokens += grant.count
        if grant.count > 1 or grant.start < sequence.prompt_len:
            self.counters.prefill_tokens += grant.count

    def _append(self, sequence: Sequence, choice: Choice, now: float, told: list[Told]) -> None:
        """Add a chosen token; end the sequence when it was the last."""
        index = sequence.output_len
        sequence.append(choice.token)
        scores = None
        if index == 0:
            sequence.times.first = now
            if sequence.prompt_logprobs is not None:
                scores = tuple(sequence.prompt_logprobs)
        sequence.times.last = now
        self.counters.decode_tokens += 1
        usage = sequence.usage(now) if sequence.request.timed else None
        cached = sequence.cached_tokens or 0
        event = TokenEvent(sequence.id, choice.token, index, cached, choice.logprob, scores, usage)
        told.append((sequence.outlet, event))
        finish = sequence.finish
        if finish is not None:
            told.append(self._finish(sequence, finish, sequence.why(finish)))

    # -------------------------------------------------------------- endings

    def _finish(self, sequence: Sequence, finish: Finish, reason: str) -> Told:
        self._leave(sequence, finish, reason, keep=True)
        scores = None
        if sequence.prompt_logprobs is not None and not sequence.output_len:
            scores = tuple(sequence.prompt_logprobs)
        usage = sequence.usage(self.clocks.now())
        return sequence.outlet, DoneEvent(sequence.id, finish, usage, scores)

    def _fail(self, sequence: Sequence, message: str, status: int, *, keep: bool = True) -> Told:
        self._leave(sequence, Finish.FAILED, message, keep=keep)
        return sequence.outlet, FailedEvent(sequence.id, message, status)

    def _leave(self, sequence: Sequence, finish: Finish, reason: str, *, keep: bool) -> None:
        self.scheduler.remove(sequence, keep=keep)
        del self._living[sequence.id]
        self.counters.requests[finish] += 1
        now = self.clocks.now()
        sequence.times.end_wait(now)
        self.journal.note(sequence, finish, reason, sequence.usage(now), now)

    def _expire(self, now: float) -> list[Told]:
        """Fail whoever is past its deadline."""
        told: list[Told] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            sequence = heapq.heappop(self._deadlines)[2]
            if sequence.status is not Status.FINISHED:
                message = "the request took longer than its time limit"
                told.append(self._fail(sequence, message, 504))
        return told

    # -------------------------------------------------------------- counting

    def _note_admission(self, sequence: Sequence, now: float) -> None:
        resumed = sequence.times.admitted is not None  # the first reading is what counts
        if resumed or sequence.status is not Status.RUNNING:  # preempted again at once
            return
        sequence.times.admitted = now
        sequence.cached_tokens = sequence.computed_len
        self.counters.prompt_tokens += sequence.prompt_len
        self.counters.cached_tokens += sequence.computed_len

    def _count(self, decoding: int, reading: int, seconds: float) -> None:
        self.counters.steps += 1
        self.counters.stepped = self.clocks.now()
        pace = self.scheduler.pace
        pace.note(decoding, reading, seconds)
        decode_s = seconds if reading == 0 else min(seconds, pace.solo(decoding))
        self.counters.decode_s += decode_s
        self.counters.prefill_s += seconds - decode_s
