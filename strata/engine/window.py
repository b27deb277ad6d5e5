"""Window: what other threads see of the sequences that live.

The engine thread lays out a frozen View between two steps; whoever looks takes the newest and locks
nothing. It is laid out anew when rows have come, gone or changed places, before each step that
reads a prompt (such a step may be long), and otherwise ten times a second. So it is at most a step
or a tenth of a second old, and most decoding steps pay a comparison for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from strata.engine.scheduler import Grant, Scheduler
from strata.engine.stats import Counters, Journal
from strata.figures import View

_EVERY_S = 0.1


class Window:
    """`view` is the newest. Written by the engine thread alone."""

    def __init__(self, wall: Callable[[], float]) -> None:
        """`wall` tells the time of day, in seconds since 1970."""
        self.view = View()
        self._wall = wall
        self._due = 0.0
        self._places = (0, 0, 0, 0, 0)

    def show(
        self,
        now: float,
        scheduler: Scheduler,
        counters: Counters,
        journal: Journal,
        grants: Iterable[Grant] = (),
    ) -> None:
        """Lay out a new view, if one is due: `grants` are the step that is about to run."""
        running, queue, parked = scheduler.running, scheduler.queue, scheduler.parked
        moved = journal.ended, scheduler.preemptions
        places = (len(running), len(queue), len(parked), *moved)
        reading = any(grant.sequence.todo > 1 for grant in grants)
        if now < self._due and places == self._places and not reading:
            return
        self._due, self._places = now + _EVERY_S, places
        stepping = {grant.sequence.id for grant in grants}
        everyone = (*running, *parked.values(), *queue)
        self.view = View(
            at=now,
            wall=self._wall(),
            rows=tuple(sequence.live(sequence.id in stepping) for sequence in everyone),
            ended=journal.ended,
            stepped=counters.stepped,
            steps=counters.steps,
            prefill_tokens=counters.prefill_tokens,
            decode_tokens=counters.decode_tokens,
            prefill_s=counters.prefill_s,
            decode_s=counters.decode_s,
        )
