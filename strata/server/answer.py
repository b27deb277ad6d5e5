"""Answering a Job: streamed as server-sent events, or whole. The same for every route.

The head of a stream goes out with the first token, so whatever fails before that has
its proper status; a silent stream is begun by the exchange's comment. No `choices`
chunk precedes the first token. A client that leaves closes every run.

A chunk's bytes are put together from pieces encoded once a stream; only the text is
encoded for each token.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import orjson

from strata.server import experts
from strata.server.exchange import Exchange
from strata.server.generate import Part, Tally, parts
from strata.server.job import Job, Run
from strata.server.logprobs import TokenNames
from strata.server.metrics import Meters
from strata.server.service import Service

DONE = b"data: [DONE]\n\n"
_PLAIN_END = b',"logprobs":null,"finish_reason":null}]}\n\n'


class Form(ABC):
    """How one route writes a job. `kinds` are the names of a chunk and of a whole answer.

    `first` says that nothing of a run has been told before.
    """

    kinds: tuple[str, str]

    def __init__(self, job: Job, names: TokenNames, logprobs: bool) -> None:
        self.job, self.names, self.logprobs = job, names, logprobs
        self._plain = not (logprobs or job.token_ids)
        self._begun = [False] * len(job.runs)
        self._head = b'data: {"id":%s,"object":%s,"created":%d,"model":%s' % (
            orjson.dumps(job.id),
            orjson.dumps(self.kinds[0]),
            job.created,
            orjson.dumps(job.model),
        )
        self._starts = [b'%s,"choices":[{"index":%d,' % (self._head, r.index) for r in job.runs]

    def text(self, run: Run, part: Part, first: bool) -> str:
        """The text to tell of a part."""
        return part.text

    @abstractmethod
    def delta(self, text: str, first: bool) -> bytes:
        """A chunk's text, as the JSON of a member."""

    @abstractmethod
    def content(self, text: str) -> dict[str, Any]:
        """A whole answer's text."""

    @abstractmethod
    def told(self, run: Run, part: Part, tally: Tally, first: bool) -> dict[str, Any] | None:
        """A part's log probabilities."""

    def chunk(self, run: Run, part: Part, tally: Tally, usage: bytes) -> bytes:
        """The events of one part: its text, then its finish reason in a chunk of its own.

        `usage` is JSON to include in each, or empty.
        """
        first = not self._begun[run.index]
        self._begun[run.index] = True
        start, text = self._starts[run.index], self.text(run, part, first)
        if self._plain and part.finish is None and not usage:
            return start + self.delta(text, first) + _PLAIN_END
        logprobs, tokens = self.told(run, part, tally, first), part.tokens
        events = b""
        if text:
            events = start + self.delta(text, first) + self._tail(logprobs, tokens, None, usage)
            logprobs, tokens, first = None, [], False
        if part.finish is not None:
            events += start + self.delta("", first)
            events += self._tail(logprobs, tokens, part.finish, usage)
        return events

    def _tail(
        self, logprobs: dict[str, Any] | None, tokens: list[int], finish: str | None, usage: bytes
    ) -> bytes:
        tail = b',"logprobs":%s,"finish_reason":%s' % (orjson.dumps(logprobs), orjson.dumps(finish))
        if self.job.token_ids:
            tail += b',"token_ids":' + orjson.dumps(tokens)
        return tail + (b'}],"usage":%s}\n\n' % usage if usage else b"}]}\n\n")

    def usage_chunk(self, usage: bytes) -> bytes:
        """The event that carries the usage alone: no choices."""
        return b'%s,"choices":[],"usage":%s}\n\n' % (self._head, usage)

    def choice(self, run: Run, part: Part, tally: Tally) -> dict[str, Any]:
        """One choice of an answer that is not streamed."""
        choice = {
            "index": run.index,
            **self.content(self.text(run, part, True)),
            "logprobs": self.told(run, part, tally, True),
            "finish_reason": part.finish,
        }
        return choice | ({"token_ids": part.tokens} if self.job.token_ids else {})

    def whole(self, wholes: Sequence[Part], tallies: Sequence[Tally], usage: bytes) -> bytes:
        """The body of an answer that is not streamed."""
        outcomes = zip(self.job.runs, wholes, tallies, strict=True)
        body = {
            "id": self.job.id,
            "object": self.kinds[1],
            "created": self.job.created,
            "model": self.job.model,
            "choices": [self.choice(*outcome) for outcome in outcomes],
            "usage": orjson.Fragment(usage),
        }
        return orjson.dumps(body)


@dataclass(frozen=True, slots=True)
class Answer:
    """What answering takes."""

    service: Service
    meters: Meters
    exchange: Exchange
    job: Job
    form: Form

    async def write(self) -> None:
        """Run the job and write its answer. Raises RequestError, ClientGone."""
        job, exchange = self.job, self.exchange
        tallies = [Tally(len(run.request.tokens), exchange.started_at) for run in job.runs]
        work = self._stream if job.stream else self._whole
        try:
            await exchange.attend(work(tallies), streams=job.stream)
        finally:
            counts = usage(job.runs, tallies)
            exchange.note = (
                f"{job.id} prompt={counts['prompt_tokens']} "
                f"cached={counts['prompt_tokens_details']['cached_tokens']} "
                f"output={counts['completion_tokens']}"
            )

    async def _stream(self, tallies: list[Tally]) -> None:
        job, exchange, form = self.job, self.exchange, self.form

        async def tell(run: Run) -> None:
            tally = tallies[run.index]
            counts = b""
            async with aclosing(parts(self.service, run, tally, self.meters)) as pieces:
                async for part in pieces:
                    if job.options.continuous_usage_stats:
                        counts = orjson.dumps(usage([run], [tally]))
                    await exchange.event(form.chunk(run, part, tally, counts))
                    if part.finish:
                        self.meters.finishes[part.finish] += 1

        await _together([tell(run) for run in job.runs], self.service.limits.at_once)
        last = DONE
        if job.options.include_usage or any(run.stats for run in job.runs):
            last = form.usage_chunk(orjson.dumps(usage(job.runs, tallies))) + DONE
        await exchange.event(last)
        await exchange.end()

    async def _whole(self, tallies: list[Tally]) -> None:
        runs = self.job.runs
        wholes = [Part("", [], []) for _ in runs]

        async def collect(run: Run) -> None:
            whole, tally = wholes[run.index], tallies[run.index]
            texts: list[str] = []
            async with aclosing(parts(self.service, run, tally, self.meters)) as pieces:
                async for part in pieces:
                    texts.append(part.text)
                    whole.tokens += part.tokens
                    whole.logprobs += part.logprobs
                    whole.finish = part.finish
            whole.text = "".join(texts)
            self.meters.finishes[whole.finish or ""] += 1

        await _together([collect(run) for run in runs], self.service.limits.at_once)
        counts = orjson.dumps(usage(runs, tallies))
        await self.exchange.reply(200, self.form.whole(wholes, tallies, counts))


async def _together(works: list[Coroutine[Any, Any, None]], at_once: int) -> None:
    """Run all, `at_once` at a time and in order; the first failure ends the others."""
    if len(works) == 1:
        return await works[0]
    places = asyncio.Semaphore(at_once)

    async def take_place(work: Coroutine[Any, Any, None]) -> None:
        async with places:
            await work

    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(take_place(work))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        for work in works:
            work.close()  # a no-op but for works that never got a place


def usage(runs: Sequence[Run], tallies: Sequence[Tally]) -> dict[str, Any]:
    """The usage object. A prompt of several choices counts once, with its least reuse.

    Of n choices one reads the prompt and the others reuse that: the least is what came
    from earlier requests.
    """
    prompts: dict[int, Tally] = {}
    for run, tally in zip(runs, tallies, strict=True):
        first = prompts.setdefault(run.prompt, tally)
        if tally.cached < first.cached:
            prompts[run.prompt] = tally
    prompt = sum(tally.prompt for tally in prompts.values())
    completion = sum(tally.completion for tally in tallies)
    accounts = [t.usage for r, t in zip(runs, tallies, strict=True) if r.stats and t.usage]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(t.cached for t in prompts.values())},
        **({"strata": experts.stats(accounts)} if len(accounts) == len(runs) else {}),
    }
