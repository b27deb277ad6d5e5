"""Sequence: one request on its way, with named lengths.

Mutable; owned by the engine thread. It is what the prefix cache calls a
`Holder`. Lengths, in tokens, one vocabulary everywhere:

    prompt_len      tokens of the prompt
    computed_len    tokens whose keys and values exist
    planned_len     computed_len after the step now running
    len(tokens)     prompt and answer so far

Invariants: computed_len <= planned_len <= len(tokens); a lease is held exactly
while RUNNING; when computed_len reaches len(tokens), the step's logits choose the
next token. A token is thus in `tokens` one step before its keys exist.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from strata.engine.sampler import Chooser
from strata.engine.steer import Steer, runaway
from strata.figures import ExpertUse, LiveRow
from strata.types import Finish, Logprob, ProgressEvent, Request, RowState, Usage

if TYPE_CHECKING:
    from strata.cache.lease import Lease
    from strata.engine.outlet import Outlet


class Status(Enum):
    """Where a sequence is. A preempted one is QUEUED again."""

    QUEUED = "queued"
    PARKED = "parked"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True)
class Timeline:
    """Moments of the engine's clock, in seconds; None while they have not come."""

    arrived: float
    admitted: float | None = None
    first: float | None = None
    last: float | None = None
    parked: float | None = None  # while it waits for a prefix
    waits: list[tuple[float, float]] = field(default_factory=list)

    def end_wait(self, now: float) -> None:
        """It waits no longer; harmless when it did not."""
        if self.parked is not None:
            self.waits.append((self.parked, now))
            self.parked = None


class Sequence:
    """See the module. `order` is the number of its arrival; `outlet` takes its events."""

    def __init__(self, request: Request, *, seed: int, arrived: float, outlet: Outlet) -> None:
        self.request = request
        self.id, self.namespace, self.priority = request.id, request.namespace, request.priority
        self.anchors, self.stable_len = request.anchors, request.stable_len
        self.prompt_len = len(request.tokens)
        self.tokens: list[int] = list(request.tokens)
        self._table = array("i")  # for an array at a step
        self.status = Status.QUEUED
        self.order = 0
        self.outlet = outlet
        self.lease: Lease | None = None
        self.computed_len = 0
        self.planned_len = 0
        self.cached_tokens: int | None = None
        self.read_tokens = 0
        self.experts: ExpertUse | None = None  # of all its rows so far, where a store has them
        self.times = Timeline(arrived)
        self.chooser = Chooser(
            request.sampling, seed, request.tokens, request.stop_token_ids, Steer.of(request)
        )
        scored = request.sampling.prompt_logprobs is not None
        self.prompt_logprobs: list[Logprob | None] | None = [None] if scored else None
        # Scoring needs the logits of every prompt position, so nothing of it may be reused.
        self.cached = request.cached and not scored

    @property
    def output_len(self) -> int:
        """Tokens of the answer so far."""
        return len(self.tokens) - len(self.request.tokens)

    @property
    def finish(self) -> Finish | None:
        """Why the answer ends with its last token; None when it goes on."""
        request, said, steer = self.request, self.output_len, self.chooser.steer
        if self.tokens[-1] in request.stop_token_ids or (steer is not None and steer.ended):
            return Finish.STOP
        if said >= request.max_tokens:
            return Finish.LENGTH
        if request.guard and said >= request.sampling.min_tokens and runaway(self.tokens, said):
            return Finish.REPETITION
        return None

    def why(self, finish: Finish) -> str:
        """The words for the end that `finish` tells of."""
        if finish is Finish.STOP:
            last = self.tokens[-1]
            ended = last in self.request.stop_token_ids
            return f"token {last} ends answers" if ended else "nothing can follow in its grammar"
        if finish is Finish.LENGTH:
            return f"{self.output_len} tokens are all it may have"
        return "it went round in a circle"

    @property
    def todo(self) -> int:
        """Tokens to compute before the next one can be chosen; 1 while decoding."""
        return len(self.tokens) - self.computed_len

    @property
    def scoring(self) -> bool:
        """Whether log-probabilities of prompt tokens are still missing."""
        scores = self.prompt_logprobs
        return scores is not None and len(scores) < len(self.request.tokens)

    @property
    def rank(self) -> tuple[int, int]:
        """Sorts by who goes first: priority, then arrival."""
        return (-self.request.priority, self.order)

    def append(self, token: int) -> None:
        """Add a token of the answer."""
        self.tokens.append(token)
        self.chooser.saw(token)

    def table(self) -> npt.NDArray[np.int32]:
        """The lease's page numbers as int32."""
        assert self.lease is not None
        self._table.extend(self.lease.pages[len(self._table) :])  # append-only: what is known stays
        return np.frombuffer(self._table[:], dtype=np.int32)

    def hold(self, lease: Lease) -> None:
        """Begin to run from where the lease resumes."""
        self.lease = lease
        self.status = Status.RUNNING
        self.computed_len = self.planned_len = lease.resume_len
        self._table = array("i")

    def let_go(self, status: Status) -> None:
        """Stop running, after the lease was given back to the cache."""
        self.lease = None
        self.status = status
        self.computed_len = self.planned_len = 0

    def served(self, use: ExpertUse) -> None:
        """Add what a row of it took of the experts."""
        self.experts = use if self.experts is None else self.experts + use

    def state(self) -> RowState:
        """What is told of it while it runs."""
        read = min(self.computed_len, self.prompt_len)
        return RowState(self.request, self.cached_tokens or 0, read, self.output_len)

    def live(self, stepping: bool) -> LiveRow:
        """What is shown of it until it ends."""
        times, status = self.times, self.status.value
        if self.status is Status.RUNNING:
            status = "reading" if times.first is None or self.todo > 1 else "decoding"
        return LiveRow(
            self.id,
            status,
            self.prompt_len,
            self.cached_tokens or 0,
            min(self.computed_len, self.prompt_len),
            self.read_tokens,
            self.output_len,
            times.arrived,
            times.admitted,
            times.first,
            times.last,
            stepping,
            self.experts,
        )

    def progress(self, now: float) -> ProgressEvent:
        """How far the prompt is read."""
        begun = now if self.times.admitted is None else self.times.admitted
        cached, seconds = self.cached_tokens or 0, now - begun
        return ProgressEvent(self.id, self.prompt_len, cached, self.computed_len, seconds)

    def usage(self, now: float) -> Usage:
        """What it cost until `now`, measured."""
        times = self.times
        begun = now if times.admitted is None else times.admitted
        read = now if times.first is None else times.first
        last = read if times.last is None else times.last
        return Usage(
            prompt_tokens=self.prompt_len,
            cached_tokens=self.cached_tokens or 0,
            completion_tokens=self.output_len,
            queue_s=begun - times.arrived,
            prefill_s=max(0.0, read - begun),
            decode_s=max(0.0, last - read),
            first_token_s=None if times.first is None else times.first - times.arrived,
            experts=self.experts,
        )
