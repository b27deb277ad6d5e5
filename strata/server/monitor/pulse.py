"""Pulse: one snapshot a second for all who watch, and none while nobody does.

A beat is built once, however many watch it. Who reads slowly gets the newest beat when it is ready
for it and never a queue of old ones; what has ended since its last one is counted for each. Used
on the event loop's thread only; the machine is asked in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from strata.figures import Record, Snapshot, View
from strata.server.errors import ClientGone, Refusal
from strata.server.exchange import Exchange
from strata.server.monitor import snapshot
from strata.server.monitor.machine import Machine
from strata.server.monitor.rates import Rates
from strata.server.service import Lobby

BEAT_S = 1.0
FIRST = 100  # finished requests in a stream's first event
_FRESH = 1.5  # beats: an older one is not shown to whoever comes


@dataclass(slots=True)
class Beat:
    """A snapshot but for what has ended; `tier` is what its experts are measured by."""

    at: float
    state: dict[str, Any]
    records: Sequence[Record]
    tier: str | None
    _whole: dict[int | None, bytes] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The number of the newest finished request."""
        return self.records[0].number if self.records else 0

    def json(self, since: int | None = None) -> bytes:
        """With the requests that ended after number `since`, or the last ones. The same bytes for
        all who know as much.
        """
        if since not in self._whole:
            new = self.records[:FIRST]
            if since is not None:
                new = [record for record in self.records if record.number > since]
            ended = [snapshot.finished(record, self.tier) for record in new]
            self._whole[since] = orjson.dumps({**self.state, "finished": ended})
        return self._whole[since]


class Pulse:
    """See the module. `beat_s` seconds lie between two beats."""

    def __init__(self, lobby: Lobby, beat_s: float = BEAT_S) -> None:
        self._lobby, self._beat_s = lobby, beat_s
        self._started = time.time()
        self._machine: Machine | None = None
        self._rates = Rates()
        self._beat: Beat | None = None
        self._task: asyncio.Task[None] | None = None  # makes the next one
        self._closed = False

    async def monitor(self, exchange: Exchange, caller: str) -> None:
        """GET /v1/monitor: a stream, or with `once` one snapshot as JSON."""
        if self._beat is not None and time.monotonic() - self._beat.at > _FRESH * self._beat_s:
            self._beat = None
        beat = await self._newer(None, 0.0)
        if beat is None:
            raise Refusal("the server is shutting down", status=503)
        if exchange.method == "HEAD" or exchange.query().get("once", "0") not in ("0", "false"):
            return await exchange.reply(200, beat.json())
        with suppress(ClientGone):
            await exchange.attend(self._follow(exchange, beat), streams=False)
        exchange.gone = False  # leaving is how such a stream ends

    async def _follow(self, exchange: Exchange, beat: Beat | None) -> None:
        since = None
        while beat is not None:
            await exchange.event(b"event: snapshot\ndata: " + beat.json(since) + b"\n\n")
            since = beat.last
            beat = await self._newer(beat, self._beat_s)
        await exchange.end()

    def close(self) -> None:
        """The server ends, and so do all streams."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()

    async def _newer(self, beat: Beat | None, wait: float) -> Beat | None:
        """The newest beat, once it is another than `beat`; None when the server ends. Whoever
        finds that the next one is not being made has it made, after `wait` seconds.
        """
        if self._beat is beat and not self._closed:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._make(wait))
            task = self._task
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()
        return None if self._closed else self._beat

    async def _make(self, wait: float) -> None:
        await asyncio.sleep(wait)
        self._beat = await self._build()

    async def _build(self) -> Beat:
        if self._machine is None:
            self._machine = await asyncio.to_thread(Machine)
        machine = await asyncio.to_thread(self._machine.sample)
        return self._state(machine)

    def _state(self, machine: dict[str, Any]) -> Beat:
        service, now = self._lobby.present, time.time()
        view, counts, batch = View(), Snapshot(), 0
        records: tuple[Record, ...] = ()
        if service is not None:
            engine, batch = service.engine, service.limits.at_once
            # The view comes first: whoever ends after it is found among the records.
            view = engine.view() if engine.error is None else View()
            records, counts = engine.records(), engine.snapshot()
        ended = {record.id for record in records if record.number > view.ended}
        view = replace(view, rows=tuple(row for row in view.rows if row.id not in ended))
        self._rates.see(view, view.at + now - view.wall)
        state = {
            "time": now,
            "server": snapshot.server(self._lobby, view, self._started, now),
            "speed": snapshot.speed(self._rates, view),
            "queue": snapshot.queue(view, batch),
            "memory": snapshot.memory(counts),
            "machine": machine,
            "totals": snapshot.totals(counts),
            "rows": snapshot.rows(view, self._rates, counts, now),
        }
        return Beat(time.monotonic(), state, records, snapshot.tier(counts))
