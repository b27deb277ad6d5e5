"""One run: from the engine's events to parts of text, each as soon as it exists.

Owns a run's TextStream and its Tally. Tokens without text of their own (a piece of a
character, what may become a stop string, an end token) travel with the next part that
has text, or with the last. Knows no JSON.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from strata.server.errors import Refusal
from strata.server.job import Run
from strata.server.metrics import Meters
from strata.server.service import Service
from strata.text.stream import TextStream
from strata.types import DoneEvent, FailedEvent, Finish, Logprob, TokenEvent, Usage


@dataclass(slots=True)
class Part:
    """Text that is ready, and the tokens that made it. `finish` is set on the last part."""

    text: str
    tokens: list[int]
    logprobs: list[Logprob]
    finish: str | None = None


@dataclass(slots=True)
class Tally:
    """What a run has cost so far, in tokens. Written by `parts`, read by whoever tells it.

    `seen` is when the request arrived, then when its last token came (time.perf_counter).
    """

    prompt: int
    seen: float
    cached: int = 0
    completion: int = 0
    prompt_logprobs: tuple[Logprob | None, ...] = ()
    usage: Usage | None = None  # the engine's own account, once the run has ended

    def count(self, event: TokenEvent, meters: Meters) -> None:
        """One more token, now."""
        now = time.perf_counter()
        if self.completion == 0:
            self.cached = event.cached_tokens
            self.prompt_logprobs = event.prompt_logprobs or ()
            meters.first_token.observe(now - self.seen)
        else:
            meters.inter_token.observe(now - self.seen)
        self.seen = now
        self.completion += 1


async def parts(service: Service, run: Run, tally: Tally, meters: Meters) -> AsyncGenerator[Part]:
    """Parts of the answer, the last with `finish`. Closing it cancels the run.

    Raises RequestError when the engine refuses or fails the run.
    """
    request = run.request
    text = TextStream(service.tokenizer, run.stop, request.sampling.min_tokens)
    tokens: list[int] = []
    logprobs: list[Logprob] = []
    finish = ""
    async with aclosing(service.engine.submit(request)) as events:
        async for event in events:
            if not isinstance(event, TokenEvent):
                finish = _ended(event, tally)
                break
            tally.count(event, meters)
            tokens.append(event.token)
            if event.logprob is not None:
                logprobs.append(event.logprob)
            if event.token in request.stop_token_ids:
                continue
            piece = text.feed(event.token)
            if piece.stopped:
                # What the engine computes beyond the stop string is not wanted.
                if run.stats and isinstance(last := await events.stop(), DoneEvent):
                    tally.usage = last.usage
                events.close(Finish.STOP)
                yield Part(piece.text, tokens, logprobs, Finish.STOP.value)
                return
            if piece.text:
                yield Part(piece.text, tokens, logprobs)
                tokens, logprobs = [], []
    if not finish:
        raise Refusal("the engine ended the answer without a reason", status=500)
    yield Part(text.finish().text, tokens, logprobs, finish)


def _ended(event: DoneEvent | FailedEvent, tally: Tally) -> str:
    """The finish reason, or the failure as an error."""
    if isinstance(event, FailedEvent):
        raise Refusal(event.message, status=event.status)
    if event.finish is Finish.FAILED:
        raise Refusal("the request failed inside the engine", status=500)
    if event.finish is Finish.CANCELLED:
        raise Refusal("the server cancelled the request", status=503, retry_after=5)
    tally.usage = event.usage
    if tally.completion == 0:
        tally.cached = event.usage.cached_tokens
        tally.prompt_logprobs = event.prompt_logprobs or ()
    return event.finish.value
