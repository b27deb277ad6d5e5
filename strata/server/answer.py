"""Answering a Job: streamed as server-sent events, or whole. The same for every route.

The head of a stream goes out with the first token, so whatever fails before that has
its proper status; a silent stream is begun by the exchange's comment. No `choices`
chunk precedes the first token. A client that leaves closes every run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from strata.server.exchange import Exchange
from strata.server.generate import Part, Tally, parts
from strata.server.job import Job, Run
from strata.server.metrics import Meters
from strata.server.service import Service

DONE = b"data: [DONE]\n\n"


class Form(Protocol):
    """How one route writes a job's answer."""

    def chunk(self, run: Run, part: Part, tally: Tally, usage: bytes) -> bytes:
        """The events of one part; `usage` is JSON to include in each, or empty."""
        ...

    def usage_chunk(self, usage: bytes) -> bytes:
        """The event that carries the usage alone."""
        ...

    def whole(self, outcomes: Sequence[tuple[Run, Part, Tally]], usage: bytes) -> bytes:
        """The body of an answer that is not streamed."""
        ...


@dataclass(frozen=True, slots=True)
class Desk:
    """What answering needs beside the job."""

    service: Service
    meters: Meters
    exchange: Exchange

    async def answer(self, job: Job, form: Form) -> None:
        """Run the job and write its answer. Raises RequestError, ClientGone."""
        arrived = self.exchange.started_at
        tallies = [Tally(len(run.request.tokens), arrived) for run in job.runs]
        work = self._stream if job.stream else self._whole
        try:
            await self.exchange.attend(work(job, form, tallies), streams=job.stream)
        finally:
            self.exchange.note = _note(job, tallies)

    async def _stream(self, job: Job, form: Form, tallies: list[Tally]) -> None:
        exchange = self.exchange

        async def tell(run: Run) -> None:
            tally = tallies[run.index]
            counts = b""
            async with aclosing(self._parts(run, tally)) as pieces:
                async for part in pieces:
                    if job.continuous_usage:
                        counts = orjson.dumps(usage([run], [tally]))
                    await exchange.event(form.chunk(run, part, tally, counts))
                    if part.finish:
                        self.meters.finishes[part.finish] += 1

        await _together([tell(run) for run in job.runs], self.service.limits.at_once)
        last = DONE
        if job.include_usage:
            last = form.usage_chunk(orjson.dumps(usage(job.runs, tallies))) + DONE
        await exchange.event(last)
        await exchange.end()

    async def _whole(self, job: Job, form: Form, tallies: list[Tally]) -> None:
        wholes = [Part("", [], []) for _ in job.runs]

        async def collect(run: Run) -> None:
            texts: list[str] = []
            whole = wholes[run.index]
            async with aclosing(self._parts(run, tallies[run.index])) as pieces:
                async for part in pieces:
                    texts.append(part.text)
                    whole.tokens += part.tokens
                    whole.logprobs += part.logprobs
                    whole.finish = part.finish
            whole.text = "".join(texts)
            self.meters.finishes[whole.finish or ""] += 1

        await _together([collect(run) for run in job.runs], self.service.limits.at_once)
        outcomes = list(zip(job.runs, wholes, tallies, strict=True))
        counts = orjson.dumps(usage(job.runs, tallies))
        await self.exchange.reply(200, form.whole(outcomes, counts))

    def _parts(self, run: Run, tally: Tally) -> AsyncGenerator[Part]:
        return parts(self.service, run, tally, self.meters)


async def _together(works: list[Coroutine[Any, Any, None]], at_once: int) -> None:
    """Run all, `at_once` at a time and in order; the first failure ends the others."""
    if len(works) == 1:
        await works[0]
        return
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
    cached = sum(tally.cached for tally in prompts.values())
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _note(job: Job, tallies: Sequence[Tally]) -> str:
    """For the access line."""
    counts = usage(job.runs, tallies)
    cached = counts["prompt_tokens_details"]["cached_tokens"]
    return (
        f"{job.id} prompt={counts['prompt_tokens']} cached={cached} "
        f"output={counts['completion_tokens']}"
    )
