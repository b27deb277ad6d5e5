"""Rates: tokens per second over the last second, from the engine's views at two moments.

Tokens are told when a step ends, so a rate is measured from the end of one step to that of another:
steps longer than a second then show their true rate and not 0 by turns.
"""

from __future__ import annotations

from dataclasses import dataclass

from strata.figures import LiveRow, View

_OLD_S = 3.0  # a view from before that is nothing to compare with


@dataclass(frozen=True, slots=True)
class Speed:
    """Of all rows together; None while it cannot be known. `step_s` is a step's mean time."""

    read: float | None = None
    decode: float | None = None
    step_s: float | None = None


class Rates:
    """Compares each view with the one before. `speed`, and `decode` by request, are the newest."""

    def __init__(self) -> None:
        self.speed = Speed()
        self.decode: dict[str, float] = {}
        self._before: View | None = None
        self._seen = 0.0

    def see(self, view: View, now: float) -> None:
        """Take the next view, at the moment `now` of the engine's clock."""
        before, seen = self._before, self._seen
        if now - seen > _OLD_S:
            before, self.speed = None, Speed()
        self._before, self._seen = view, now
        self.decode = {
            row.id: rate for row in view.rows if (rate := self._row(before, row, now)) is not None
        }
        if before is not None:
            self.speed = self._all(before, view, now)

    def _all(self, before: View, view: View, now: float) -> Speed:
        steps = view.steps - before.steps
        if not steps:
            return self.speed if view.rows else Speed(0.0, 0.0, None)
        begun = before.stepped if before.rows else max(before.at, before.stepped)
        # Once everyone has ended, what was done counts against the whole second.
        seconds = max((view.stepped if view.rows else now) - begun, 1e-9)
        busy = view.prefill_s + view.decode_s - before.prefill_s - before.decode_s
        read = view.prefill_tokens - before.prefill_tokens
        decoded = view.decode_tokens - before.decode_tokens
        return Speed(read / seconds, decoded / seconds, busy / steps)

    def _row(self, before: View | None, row: LiveRow, now: float) -> float | None:
        """Tokens per second of one answer; while none comes, the most that it can still be."""
        if row.first is None or row.last is None:
            return None
        old = next((old for old in before.rows if old.id == row.id), None) if before else None
        if old is not None and old.last is not None:
            if row.output > old.output:
                return (row.output - old.output) / (row.last - old.last)
            waited = max(now - row.last, 1e-9)
            known = self.decode.get(row.id)
            return None if known is None else min(known, 1 / waited)
        return (row.output - 1) / (row.last - row.first) if row.output > 1 else None
