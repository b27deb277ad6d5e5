"""Measures a running engine: contexts read and answered, then the same ones with more appended.

The figures are those that benchmark clients print, but taken inside: no HTTP, no text. Prompts are
random tokens, so nothing is shared but what a client's second request repeats of its first. Times
are the engine's own, which it measures for each request.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty
from statistics import mean

from strata.engine.loop import Engine
from strata.engine.outlet import QueueOutlet
from strata.types import DoneEvent, FailedEvent, Request, Sampling, StrataError, Usage

Watch = Callable[[str, int, int], None]
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Load:
    """Tokens of a client's context, of what it appends, and of each answer."""

    depth: int
    pp: int
    tg: int


@dataclass(frozen=True, slots=True)
class Phase:
    """One wave of requests, all submitted at once. Rates in tokens/s, times in seconds.

    `new` tokens of each prompt are the phase's own; only they count as read. A total rate is
    over the wall time of the whole wave, a request's over its own.
    """

    concurrency: int
    context: bool  # the first phase; the second one appends
    prompt: int
    new: int
    tg: int
    usages: tuple[Usage, ...]

    @property
    def reused(self) -> tuple[int, ...]:
        """Tokens of each prompt that came from the cache."""
        return tuple(usage.cached_tokens for usage in self.usages)

    @property
    def first_tokens(self) -> tuple[float, ...]:
        """From submission to each request's first token, waiting included."""
        return tuple(usage.first_token_s or 0.0 for usage in self.usages)

    @property
    def read_total(self) -> float:
        """All new tokens, until the last request has its first token."""
        return _rate(self.new * len(self.usages), max(self.first_tokens))

    @property
    def read_each(self) -> float:
        """The mean over the requests."""
        return mean(_rate(self.new, first) for first in self.first_tokens)

    @property
    def decode_total(self) -> float:
        """All answers' tokens but the first ones, from the first one of all to the last."""
        ends = [u.decode_s + first for u, first in zip(self.usages, self.first_tokens, strict=True)]
        return _rate((self.tg - 1) * len(self.usages), max(ends) - min(self.first_tokens))

    @property
    def decode_each(self) -> float:
        """The mean over the requests."""
        return mean(_rate(self.tg - 1, usage.decode_s) for usage in self.usages)


def measure(engine: Engine, load: Load, concurrency: int, seed: int, watch: Watch) -> list[Phase]:
    """Both phases of `concurrency` clients on a started engine.

    `watch` is told (what, tokens done, tokens in all). StrataError when a request fails.
    """
    draw = random.Random(f"{seed} {concurrency}")
    vocab = engine.limits.vocab
    contexts = [tuple(draw.choices(range(vocab), k=load.depth)) for _ in range(concurrency)]
    longer = [(*context, *draw.choices(range(vocab), k=load.pp)) for context in contexts]
    phases = []
    for first, prompts in ((True, contexts), (False, longer)):
        if not prompts[0]:
            continue  # no context: there is only what is appended to nothing
        name = f"{concurrency} at once, {'contexts' if first else 'more appended'}"
        usages = _wave(engine, prompts, load.tg, lambda *done, what=name: watch(what, *done))
        new = load.depth if first else load.pp
        phases.append(Phase(concurrency, first, len(prompts[0]), new, load.tg, tuple(usages)))
    return phases


def warm_up(engine: Engine) -> None:
    """A short request, so that what is done once is not measured."""
    _wave(engine, [(0,) * min(32, engine.limits.context - 1)], 4, lambda done, total: None)


_number = itertools.count()


def _wave(
    engine: Engine, prompts: Sequence[tuple[int, ...]], tg: int, watch: Callable[[int, int], None]
) -> list[Usage]:
    """Greedy answers of `tg` tokens to all prompts at once; what each cost."""
    begun, total = _done(engine), sum(len(prompt) + tg for prompt in prompts)
    outlets = []
    for prompt in prompts:
        outlet = QueueOutlet()
        name = f"bench-{next(_number)}"
        greedy, length = Sampling(temperature=0.0), len(prompt)
        request = Request(name, prompt, tg, greedy, stable_len=length, guard=False)
        engine.submit(request, outlet)
        outlets.append(outlet)
    usages = []
    for outlet in outlets:
        while not isinstance(event := _next(outlet), DoneEvent):
            if isinstance(event, FailedEvent):
                raise StrataError(f"a request of the benchmark failed: {event.message}")
            watch(min(_done(engine) - begun, total - 1), total)
        usages.append(event.usage)
    watch(total, total)
    return usages


def _next(outlet: QueueOutlet) -> object:
    """The next event, or None when there is none for a moment."""
    try:
        return outlet.events.get(timeout=_POLL_S)
    except Empty:
        return None


def _done(engine: Engine) -> int:
    """Tokens that the engine has been through: computed, or found in the cache."""
    now = engine.snapshot()
    return now.prefill_tokens + now.cached_tokens + now.decode_tokens


def _rate(tokens: int, seconds: float) -> float:
    """Tokens per second; 0 where no time passed, as with answers of one token."""
    return tokens / seconds if seconds > 0 else 0.0
