"""EngineClient: what a server sees of the engine, inside one event loop.

Imports neither torch nor the engine itself: requests go in, events come out, and
everything that crosses is frozen.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from strata.engine.outlet import Channel, into_loop
from strata.figures import Freed, Prefix, Record, Snapshot, Survey, View
from strata.types import DoneEvent, Event, FailedEvent, Finish, Request, RowState

if TYPE_CHECKING:
    from strata.engine.loop import Engine


class Mailbox:
    """Events of one request, waiting to be read. Used on the event loop's thread only."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self.put, self.get = self._events.put_nowait, self._events.get


class EventStream:
    """The events of one request, as an async iterator.

    Ends after the Done or the Failed event. Closing it, or dropping it, cancels.
    """

    def __init__(self, engine: Engine, request_id: str, mailbox: Mailbox) -> None:
        self._engine = engine
        self._request_id = request_id
        self._mailbox = mailbox
        self._over = False

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        if self._over:
            raise StopAsyncIteration
        event = await self._mailbox.get()
        if isinstance(event, DoneEvent | FailedEvent):
            self._over = True
        return event

    def close(self, finish: Finish = Finish.CANCELLED) -> None:
        """End the request unless it has ended; `finish` STOP: its text is complete."""
        if not self._over:
            self._over = True
            self._engine.cancel(self._request_id, finish)

    async def aclose(self) -> None:
        """Like `close`, for `contextlib.aclosing`."""
        self.close()

    def __del__(self) -> None:
        self.close()


class EngineClient:
    """The asynchronous face of one engine. Use it from one event loop at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._channel: tuple[asyncio.AbstractEventLoop, Channel] | None = None

    def submit(self, request: Request) -> EventStream:
        """Have a request answered. Raises RequestError at once: 400, 429 or 503."""
        loop = asyncio.get_running_loop()
        if self._channel is None or self._channel[0] is not loop:
            self._channel = (loop, into_loop(loop))
        mailbox = Mailbox(self._channel[1])
        self._engine.submit(request, mailbox)
        return EventStream(self._engine, request.id, mailbox)

    async def clear_cache(self) -> Freed:
        """Drop every cached prefix that no running row uses, between two steps."""
        return await asyncio.wrap_future(self._engine.clear_cache())

    async def survey(self, depth: int, limit: int) -> Survey:
        """What is cached: at most `limit` stretches, the last used first, `depth` deep."""
        return await asyncio.wrap_future(self._engine.survey(depth, limit))

    async def prefix(self, number: int, namespace: str) -> Prefix | None:
        """The tokens of a stretch; None when it is gone or another namespace's."""
        return await asyncio.wrap_future(self._engine.prefix(number, namespace))

    def snapshot(self) -> Snapshot:
        """Counters of this moment."""
        return self._engine.snapshot()

    def rows(self) -> tuple[RowState, ...]:
        """The requests that run now."""
        return self._engine.rows()

    def view(self) -> View:
        """Who runs and who waits, at most a step or a tenth of a second old."""
        return self._engine.view

    def records(self) -> tuple[Record, ...]:
        """The last 500 finished requests, the newest first."""
        return self._engine.records

    @property
    def ready(self) -> bool:
        """Whether requests are being answered."""
        return self._engine.ready

    @property
    def error(self) -> str | None:
        """Why the engine stopped for good; None while all is well."""
        return self._engine.error
