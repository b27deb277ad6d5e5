"""One run: from the engine's events to parts of text, each as soon as it exists.

Owns a run's TextStream, its Segmenter and its Tally. Tokens without text of their own (a
piece of a character, what may become a stop string, an end token) travel with the next
part that has something to tell, or with the last. Knows no JSON.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from strata.server.errors import Refusal
from strata.server.job import Run
from strata.server.metrics import Meters
from strata.server.service import Service
from strata.text.delta import Delta, Kind
from strata.text.stream import Piece, TextStream
from strata.types import DoneEvent, FailedEvent, Finish, Logprob, ProgressEvent, TokenEvent, Usage

TOOL_CALLS = "tool_calls"


@dataclass(slots=True)
class Part:
    """Text that is ready, the tokens that made it, and what it is, where the run splits it.

    `finish` is set on the last part: stop, length, tool_calls, or whatever else the engine says;
    so is `stop`, the stop string that ended the text. `pieces` are what a whole answer was put
    together from.
    """

    text: str
    tokens: list[int]
    logprobs: list[Logprob]
    finish: str | None = None
    deltas: list[Delta] = field(default_factory=list)
    stop: str | None = None
    pieces: list[Part] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """What a run has cost so far, in tokens. Written by `parts`, read by whoever tells it.

    `seen` is when the request arrived, then when its last token came (time.perf_counter).
    """

    prompt: int
    seen: float
    cached: int = 0
    completion: int = 0
    reasoning: int = 0  # of the completion: tokens of parts that begin with reasoning
    prompt_logprobs: tuple[Logprob | None, ...] = ()
    usage: Usage | None = None  # the engine's own account: of a timed run, or one that ended
    finish: str | None = None

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
        self.usage = event.usage

    def take(self, part: Part) -> Part:
        """A part that is about to be told."""
        if part.deltas and part.deltas[0].kind is Kind.REASONING:
            self.reasoning += len(part.tokens)
        self.finish = part.finish
        return part


class _Splitting:
    """One run's text as deltas, and what became of its calls. Without a segmenter: none."""

    def __init__(self, run: Run) -> None:
        self._segmenter = run.output.segmenter() if run.output.segmenter else None
        self._one_call = run.output.one_call
        self._open: set[int | None] = set()
        self._ended = False

    def feed(self, piece: Piece, last: bool = False) -> list[Delta]:
        """The next text's deltas; `last`: and those held back."""
        if self._segmenter is None:
            return []
        deltas = self._segmenter.feed(piece.text, piece.marks) if piece.text else []
        if last:
            deltas += self._segmenter.finish()
        for i, delta in enumerate(deltas, 1):
            if delta.kind is Kind.CALL:
                self._open.add(delta.call)
            elif delta.kind is Kind.END:
                self._open.discard(delta.call)
                self._ended = True
                if self._one_call:
                    return deltas[:i]
        return deltas

    def ready(self, part: Part) -> bool:
        """Whether there is something to tell."""
        return bool(part.text if self._segmenter is None else part.deltas)

    @property
    def complete(self) -> bool:
        """Whether the one call that is wanted has ended."""
        return self._one_call and self._ended

    def finish(self, reason: str) -> str:
        """Why the answer ended, given why the sequence did."""
        whole = self._ended and not self._open
        return TOOL_CALLS if reason == Finish.STOP and whole else reason


async def parts(
    service: Service, run: Run, tally: Tally, meters: Meters
) -> AsyncGenerator[Part | ProgressEvent]:
    """Parts of the answer: a first without tokens when the engine has taken the request, the last
    with `finish`. Closing it cancels the run.

    Before the first one there is the prompt's progress, where the request wants it.

    Raises RequestError when the engine refuses or fails the run.
    """
    request = run.request
    least, markers = request.sampling.min_tokens, run.output.markers
    text = TextStream(service.tokenizer, run.stop, least, markers)
    split = _Splitting(run)
    part = Part("", [], [])
    finish = ""
    async with aclosing(service.engine.submit(request)) as events:
        yield Part("", [], [])  # the engine has taken the request
        async for event in events:
            if isinstance(event, ProgressEvent):
                yield event
                continue
            if not isinstance(event, TokenEvent):
                finish = _ended(event, tally)
                break
            tally.count(event, meters)
            part.tokens.append(event.token)
            if event.logprob is not None:
                part.logprobs.append(event.logprob)
            if event.token in request.stop_token_ids:
                continue
            piece = text.feed(event.token)
            part.text += piece.text
            part.deltas = split.feed(piece, last=piece.stopped)
            if piece.stopped or split.complete:
                # What the engine computes beyond is not wanted.
                events.close(Finish.STOP)
                part.finish, part.stop = split.finish(Finish.STOP.value), piece.stop
                yield tally.take(part)
                return
            if split.ready(part):
                yield tally.take(part)
                part = Part("", [], [])
    if not finish:
        raise Refusal("the engine ended the answer without a reason", status=500)
    rest = text.finish()
    part.text += rest.text
    part.deltas = split.feed(rest, last=True)
    part.finish = split.finish(finish)
    yield tally.take(part)


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


def counts(runs: Sequence[Run], tallies: Sequence[Tally]) -> tuple[int, int, int]:
    """Tokens of the prompts, of them cached, and of the answers.

    A prompt of several choices counts once, with its least reuse: of n choices one reads the
    prompt and the others reuse that, so the least is what came from earlier requests.
    """
    prompts: dict[int, Tally] = {}
    for run, tally in zip(runs, tallies, strict=True):
        first = prompts.setdefault(run.prompt, tally)
        if tally.cached < first.cached:
            prompts[run.prompt] = tally
    read = prompts.values()
    prompt, cached = sum(t.prompt for t in read), sum(t.cached for t in read)
    return prompt, cached, sum(t.completion for t in tallies)
