"""Answering a Job: streamed as server-sent events, or whole. The same for every API.

The head of a stream goes out with the first token, so whatever fails before that has
its proper status; a silent stream is begun by the exchange's ping. A client that leaves
closes every run. What is written is the Form's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from strata.server.exchange import Exchange
from strata.server.experts import stats
from strata.server.form import Form
from strata.server.generate import Part, Tally, counts, parts
from strata.server.job import Job, Run
from strata.server.metrics import Meters
from strata.server.service import Service
from strata.types import ProgressEvent


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
        exchange.voice = self.form
        tallies = [Tally(len(run.request.tokens), exchange.started_at) for run in job.runs]
        work = self._stream if job.stream else self._whole
        try:
            await exchange.attend(work(tallies), streams=job.stream)
        finally:
            exchange.told = _told(job, tallies)

    async def _stream(self, tallies: list[Tally]) -> None:
        job, exchange, form = self.job, self.exchange, self.form

        began = False

        async def tell(run: Run) -> None:
            nonlocal began
            tally = tallies[run.index]
            async with aclosing(parts(self.service, run, tally, self.meters)) as pieces:
                async for part in pieces:
                    if isinstance(part, ProgressEvent):
                        await exchange.event(form.progress(part))
                        continue
                    taken = bool(part.tokens or part.finish)
                    events = form.part(run, part, tally) if taken else form.accepted()
                    if taken and not began:
                        began, events = True, form.begin(tallies) + events
                    if events:
                        await exchange.event(events)
                    if part.finish:
                        self.meters.finishes[part.finish] += 1

        await _together([tell(run) for run in job.runs], self.service.limits.at_once)
        await exchange.event(form.end(tallies))
        await exchange.end()

    async def _whole(self, tallies: list[Tally]) -> None:
        runs = self.job.runs
        wholes = [Part("", [], []) for _ in runs]

        async def collect(run: Run) -> None:
            whole, tally = wholes[run.index], tallies[run.index]
            texts: list[str] = []
            async with aclosing(parts(self.service, run, tally, self.meters)) as pieces:
                async for part in pieces:
                    assert isinstance(part, Part)  # progress is told in streams alone
                    texts.append(part.text)
                    whole.tokens += part.tokens
                    whole.logprobs += part.logprobs
                    whole.deltas += part.deltas
                    whole.pieces.append(part)
                    whole.finish, whole.stop = part.finish, part.stop
            whole.text = "".join(texts)
            self.meters.finishes[whole.finish or ""] += 1

        await _together([collect(run) for run in runs], self.service.limits.at_once)
        await self.exchange.reply(200, self.form.whole(wholes, tallies))


def _told(job: Job, tallies: list[Tally]) -> dict[str, Any]:
    """The access line's part. Times are there where the engine has told them of every choice."""
    prompt, cached, output = counts(job.runs, tallies)
    usages = [tally.usage for tally in tallies if tally.usage is not None]
    return {
        "id": job.id,
        "prompt": prompt,
        "cached": cached,
        "output": output,
        "finish": [tally.finish for tally in tallies],
        **(stats(usages) if len(usages) == len(tallies) else {}),
    }


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
