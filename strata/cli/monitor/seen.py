"""What has been seen of a server: its newest snapshot, its requests, its speeds of late.

Knows no screen. A server that was started anew begins with nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from strata.cli.monitor.told import Entry, Snapshot

SPAN_S = 180  # how far back speeds are kept
_KEPT = 500  # finished requests, as many as a server keeps


@dataclass(frozen=True, slots=True)
class Sample:
    """Speeds at one moment: tokens per second, milliseconds a step, requests there."""

    time: float
    read: float | None
    decode: float | None
    step_ms: float | None
    requests: float


class Seen:
    """`now` is the newest snapshot, `samples` are the oldest first."""

    def __init__(self) -> None:
        self.now: Snapshot | None = None
        self.samples: deque[Sample] = deque()
        self._finished: dict[int, Entry] = {}

    def take(self, now: Snapshot) -> None:
        """Take note of the next snapshot."""
        if self.now is not None and self.now.server.started != now.server.started:
            self._finished.clear()
            self.samples.clear()
        self.now = now
        self.add(now.finished)
        speed, queue = now.speed, now.queue
        there = queue.running + queue.queued + queue.waiting
        self.samples.append(Sample(now.time, speed.read, speed.decode, speed.step_ms, there))
        while self.samples[0].time <= now.time - SPAN_S:
            self.samples.popleft()

    def add(self, records: Iterable[Entry]) -> None:
        """Take note of finished requests, known or not."""
        for record in records:
            if record.number is not None:
                self._finished.setdefault(record.number, record)
        for number in sorted(self._finished)[:-_KEPT]:
            del self._finished[number]

    def live(self) -> list[Entry]:
        """Who runs or waits, newest first."""
        rows = self.now.rows if self.now else ()
        return sorted(rows, key=lambda row: row.time, reverse=True)

    def finished(self) -> list[Entry]:
        """Who has ended, newest first."""
        return [self._finished[number] for number in sorted(self._finished, reverse=True)]

    def tier(self) -> str | None:
        """What hit rates are of, where there are experts to find."""
        uses = (entry.experts for entry in (*self.live(), *self.finished()))
        return next((use.tier for use in uses if use and use.tier), None)
