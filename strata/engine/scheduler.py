"""Who runs, and how many tokens of each the next step computes.

Knows the cache by its verbs and sequences by their lengths; no model, no tensor,
no clock (the loop tells `Pace` how long steps took). `docs/scheduling.md` states
the policy and its bounds.

Invariants: a sequence is in exactly one of queue, parked, running; only running
ones hold a lease; the running row of first rank is never preempted, so as every
accepted request fits alone, some row always gets on.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from strata.cache.lease import Run, Wait
from strata.cache.prefix import PrefixCache
from strata.engine.pace import Pace, share_out
from strata.engine.sequence import Sequence, Status
from strata.engine.settings import SCORE_CHUNK, EngineSettings
from strata.types import Copy


@dataclass(frozen=True, slots=True)
class Grant:
    """One row of the next step: `count` tokens of `sequence` from `start` on."""

    sequence: Sequence
    start: int
    count: int


@dataclass(slots=True)
class Schedule:
    """What `Scheduler.schedule` decided.

    grants      rows of the next step, in order; empty when nothing can run
    woken       sequences that wait for a prefix no longer
    parked      sequences that now do
    admitted    sequences that begin (or resume) to run with it
    refused     sequences that got no memory although alone; removed already
    """

    grants: list[Grant] = field(default_factory=list)
    woken: list[Sequence] = field(default_factory=list)
    parked: list[Sequence] = field(default_factory=list)
    admitted: list[Sequence] = field(default_factory=list)
    refused: list[Sequence] = field(default_factory=list)


class Scheduler:
    """Queue, parking place and running rows. Used by the engine thread only.

    `copy` carries copies out at once.
    """

    def __init__(
        self, settings: EngineSettings, cache: PrefixCache, copy: Callable[[Iterable[Copy]], None]
    ) -> None:
        self.queue: list[Sequence] = []
        self.parked: dict[str, Sequence] = {}
        self.running: list[Sequence] = []
        self.pace = Pace(settings.decode_share)
        self.preemptions = 0
        self._settings = settings
        self._cache = cache
        self._copy = copy
        self._pages, self._block = cache.stats().pages_total, cache.block
        self._shut = False

    # -------------------------------------------------------------- coming and going

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence. The cache is told what it will want."""
        self._enqueue(sequence)
        if len(self.running) >= self._settings.batch:
            self._cache.touch(sequence)

    def remove(self, sequence: Sequence, *, keep: bool = True) -> None:
        """Take a sequence out wherever it is; its memory returns at once.

        With `keep` what it computed stays reusable; without, nothing that is not
        sealed already is kept (its last step failed).
        """
        if sequence.status is Status.QUEUED:
            self.queue.remove(sequence)
            self._cache.forget(sequence)
        elif sequence.status is Status.PARKED:
            del self.parked[sequence.id]
            self._cache.forget(sequence)
        elif sequence.status is Status.RUNNING:
            self._stop(sequence, Status.FINISHED, keep=keep)
            self._shut = False
        sequence.status = Status.FINISHED

    def _enqueue(self, sequence: Sequence) -> None:
        sequence.status = Status.QUEUED
        insort(self.queue, sequence, key=lambda waiting: waiting.rank)

    def _stop(self, sequence: Sequence, status: Status, *, keep: bool = True) -> None:
        assert sequence.lease is not None
        self.running.remove(sequence)
        if keep:
            self._copy(self._cache.release(sequence.lease, sequence.computed_len))
        else:
            self._cache.discard(sequence.lease)
        sequence.let_go(status)

    # -------------------------------------------------------------- the next step

    def schedule(self) -> Schedule:
        """Admit who may run and choose the rows of the next step."""
        schedule = Schedule()
        self._admit(schedule)
        while self.running and not schedule.grants:
            # Each turn that leaves no row has preempted or refused one, so this ends.
            schedule.grants = self._reserve(self._choose(), schedule.refused)
        return schedule

    def _admit(self, schedule: Schedule) -> None:
        for holder in self._cache.woken():
            sequence = self.parked.pop(holder.id)
            self._enqueue(sequence)
            schedule.woken.append(sequence)
        while self.queue and len(self.running) < self._settings.batch:
            if self._shut and self.running:
                return  # until a row leaves, the head could only be preempted again
            head = self.queue[0]
            verdict = self._cache.acquire(head)
            if isinstance(verdict, Run):
                self._copy(verdict.copies)
                self.queue.pop(0)
                head.hold(verdict.lease)
                self.running.append(head)
                if len(self.running) > 1 and not self._room_to_grow():
                    self._stop(head, Status.QUEUED)
                    self._enqueue(head)
                    self._shut = True
                    return
                schedule.admitted.append(head)
            elif isinstance(verdict, Wait):
                self.queue.pop(0)
                head.status = Status.PARKED
                self.parked[head.id] = head
                schedule.parked.append(head)
            elif self.running:
                self._shut = True  # nobody passes the head
                return
            else:
                self.remove(head)
                schedule.refused.append(head)

    def _room_to_grow(self) -> bool:
        """Whether what runs can read its prompts to the end, and a block more each."""
        held: set[int] = set()
        wanted = 0
        for sequence in self.running:
            lease, request = sequence.lease, sequence.request
            assert lease is not None
            held.update(lease.pages)
            worst = self._blocks(len(request.tokens) + request.max_tokens)
            whole = min(self._blocks(len(sequence.tokens)) + 1, worst)
            wanted += max(0, whole - len(lease.pages))
        return len(held) + wanted <= self._pages

    def _blocks(self, length: int) -> int:
        return -(-length // self._block)

    def _choose(self) -> list[Grant]:
        """Decoding rows first, then prompts within the budget that the pace allows."""
        rows = [s for s in self.running if s.todo == 1]
        prompts = sorted((s for s in self.running if s.todo > 1), key=lambda s: s.rank)
        grants = [Grant(s, s.computed_len, 1) for s in rows]
        if not prompts or not self.pace.may_read(len(rows)):
            return grants
        settings = self._settings
        budget = settings.mixed_chunk if rows else settings.prefill_chunk
        todos = [min(s.todo, SCORE_CHUNK) if s.scoring else s.todo for s in prompts]
        for sequence, count in zip(prompts, share_out(budget, todos), strict=True):
            if count:
                grants.append(Grant(sequence, sequence.computed_len, count))
        return grants

    # -------------------------------------------------------------- memory

    def _reserve(self, grants: list[Grant], refused: list[Sequence]) -> list[Grant]:
        """Pages for every grant, preempting from the last rank up; what remains can run."""
        for grant in sorted(grants, key=lambda grant: grant.sequence.rank):
            sequence = grant.sequence
            planned = grant.start + grant.count
            while sequence.status is Status.RUNNING:
                assert sequence.lease is not None
                if self._cache.reserve(sequence.lease, planned):
                    sequence.planned_len = planned
                    break
                victim = max(self.running, key=lambda running: running.rank)
                if len(self.running) == 1:
                    self.remove(victim, keep=False)
                    refused.append(victim)
                else:
                    self._stop(victim, Status.QUEUED)
                    self._enqueue(victim)
                    self._shut = True
                    self.preemptions += 1
        return [grant for grant in grants if grant.sequence.status is Status.RUNNING]
