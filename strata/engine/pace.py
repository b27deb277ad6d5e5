"""How a step's time and tokens are shared: pure arithmetic, no sequences.

`docs/scheduling.md` states the policy and its bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

# An oldest prompt that is much longer than another gets one part in this many of the budget.
_OLDEST_PART = 4
# Prompts with at most this many times as much left to read as the shortest are read together.
_ALIKE = 2
_SMOOTHING = 0.25  # Weight of the newest measurement in the running mean of a step's duration.


def share_out(budget: int, todos: Sequence[int]) -> list[int]:
    """Tokens for each prompt, given what each has still to read, the oldest first.

    The shortest and those alike share in proportion to what they have left, and so end in one
    step: rows that begin to decode together leave full steps to the reading until then. What
    they leave goes to the next shortest and its like. An oldest prompt that is not among the
    first is sure of a quarter.
    """
    grants = [0] * len(todos)
    left = budget
    if todos and todos[0] > _ALIKE * min(todos):
        grants[0] = min(todos[0], -(-budget // _OLDEST_PART))
        left -= grants[0]
    while left:
        rest = [todo - grant for todo, grant in zip(todos, grants, strict=True)]
        least = min((more for more in rest if more), default=0)
        alike = [i for i, more in enumerate(rest) if 0 < more <= _ALIKE * least]
        if not alike:
            break
        part = min(1.0, left / sum(rest[i] for i in alike))
        # Whoever has the most left comes first and is rounded up: so nobody falls behind.
        for i in sorted(alike, key=lambda i: -rest[i]):
            more = min(left, ceil(part * rest[i]))
            grants[i] += more
            left -= more
    return grants


class Pace:
    """Decides which steps may read prompts, so that decoding rows keep their share.

    Every step in which rows decode earns what the same rows' step would have
    taken alone, and costs `share` of what it took. A step may read a prompt when
    nothing is owed. So over any stretch of time, up to one mixed step, decoding
    rows advance at `share` of their solo rate or more; and as a step without
    prompt tokens earns more than it costs, a prompt is never put off for good.

    Owned by the scheduler. Times in seconds.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._balance = 0.0
        self._solo: dict[int, float] = {}

    def may_read(self, decoding: int) -> bool:
        """Whether a step with `decoding` rows may also read prompt tokens."""
        if decoding == 0 or self._share == 0.0:
            return True
        return self._balance >= 0.0 and bool(self._solo)  # unmeasured rows run alone once

    def solo(self, decoding: int) -> float:
        """What a step of `decoding` rows takes alone; a guess from the nearest count known."""
        if decoding == 0 or not self._solo:
            return 0.0
        if decoding in self._solo:
            return self._solo[decoding]
        return self._solo[min(self._solo, key=lambda rows: (abs(rows - decoding), rows))]

    def note(self, decoding: int, reading: int, seconds: float) -> None:
        """Tell how long a step of `decoding` rows and `reading` prompt tokens took."""
        if decoding == 0:
            self._balance = 0.0
            return
        if reading == 0:
            known = self._solo.get(decoding, seconds)
            self._solo[decoding] = known + _SMOOTHING * (seconds - known)
        # No credit is saved up: it would allow a burst of mixed steps later.
        self._balance = min(0.0, self._balance + self.solo(decoding) - self._share * seconds)
