"""What the engine counts. Plain numbers, written by the engine thread alone.

Another thread may read all of it at any time: records are frozen, at most a step old.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from strata.engine.sequence import Sequence
from strata.figures import SPREADS, Record
from strata.types import Finish, Usage

_KEPT_RECORDS = 500
_SMOOTHING = 0.1  # Weight of the newest request in the running mean of how long one runs.


@dataclass(slots=True)
class Counters:
    """Totals since start; counts in tokens, times in seconds.

    stepped         when the last step ended, on the engine's clock
    prompt_tokens   prompts of the requests that began to run
    cached_tokens   what of them the cache held
    prefill_tokens  tokens computed before the first token of an answer, or again after preemption
    decode_tokens   tokens of answers
    prefill_s       time spent in steps on reading, decode_s on decoding; a mixed step is
                    split: its rows' solo time is decoding
    """

    steps: int = 0
    stepped: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    requests: dict[str, int] = field(default_factory=lambda: {f.value: 0 for f in Finish})


class Journal:
    """The last 500 finished requests, and how long a request runs on average.

    `wall` tells the time of day, in seconds since 1970.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self.records: tuple[Record, ...] = ()
        self.spreads = dict(SPREADS)
        self.ended = 0
        self.mean_s: float | None = None
        self._wall = wall

    def note(self, sequence: Sequence, status: str, reason: str, usage: Usage, now: float) -> None:
        """Write a record of a sequence that ended at `now` on the engine's clock."""
        times = sequence.times
        self.ended += 1
        record = Record(
            id=sequence.id,
            time=self._wall() - (now - times.arrived),
            status=status,
            prompt=usage.prompt_tokens,
            reused=usage.cached_tokens,
            output=usage.completion_tokens,
            prefill_rate=_rate(sequence.read_tokens, usage.prefill_s)
            if times.first is not None
            else None,
            decode_rate=_rate(usage.completion_tokens - 1, usage.decode_s),
            first_token_s=usage.first_token_s,
            queue_s=usage.queue_s,
            duration_s=now - times.arrived,
            experts=usage.experts,
            reason=reason,
            number=self.ended,
            prefill_s=usage.prefill_s,
            decode_s=usage.decode_s,
            waits=tuple((begin - times.arrived, end - times.arrived) for begin, end in times.waits),
            trace=sequence.request.trace,
        )
        self.records = (record, *self.records[: _KEPT_RECORDS - 1])
        for name, spread in self.spreads.items():
            told = record if hasattr(record, name) else usage
            self.spreads[name] = spread.add(getattr(told, name))
        if times.admitted is not None:
            ran = now - times.admitted
            known = ran if self.mean_s is None else self.mean_s
            self.mean_s = known + _SMOOTHING * (ran - known)


def _rate(tokens: int, seconds: float) -> float | None:
    """Tokens per second, where both are known."""
    return tokens / seconds if tokens > 0 and seconds > 0 else None
