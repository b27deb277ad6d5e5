"""One HTTP request and its answer, straight on ASGI messages.

Knows headers, bodies, server-sent events and whether the client is still there. Knows
no JSON fields and no routes. An exchange is answered once: by `reply`, or by
`event`… and `end`. After the client has gone, writing is a no-op.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Message, Receive, Scope, Send

from strata.server.errors import ClientGone, Refusal, Voice
from strata.types import RequestError

Headers = Iterable[tuple[bytes, bytes]]

JSON = b"application/json"
EVENT_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
STALLED_S = 60.0  # between two pieces of a body


class Exchange:
    """`status` is 0 until an answer has begun; `gone` is set when the client left.

    `voice` says errors and pings as the route's API does; an answer's Form takes its place.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        ping_s: float = 10.0,
        voice: Voice | None = None,
    ) -> None:
        self.scope = scope
        self.voice = voice or Voice()
        self.method = str(scope["method"])
        self.started_at = time.perf_counter()
        self.status = 0
        self.gone = False
        self.told: dict[str, Any] = {}  # what the access line says of it; never content
        self._receive = receive
        self._send = send
        self._ping_s = ping_s
        self._wrote = False
        self._streams = False

    def headers(self, name: bytes) -> list[str]:
        """Every value of a header; `name` in lower case."""
        return [v.decode("latin-1") for k, v in self.scope["headers"] if k == name]

    def query(self) -> dict[str, str]:
        """The values in the URL, the last of each name."""
        pairs = parse_qs(self.scope["query_string"].decode("latin-1"))
        return {name: values[-1] for name, values in pairs.items()}

    async def body(self, limit: int) -> bytes:
        """The whole body. Raises 413 past `limit` bytes, 415 if compressed, 408 if it stalls."""
        codings = {value.strip().lower() for value in self.headers(b"content-encoding")}
        if codings - {"", "identity"}:
            raise Refusal("compressed bodies are not accepted; send plain JSON", status=415)
        for value in self.headers(b"content-length"):
            if value.isdecimal() and int(value) > limit:
                raise _too_large(limit)
        pieces: list[bytes] = []
        size = 0
        while True:
            try:
                message = await asyncio.wait_for(self._receive(), STALLED_S)
            except TimeoutError:
                raise Refusal("the request body did not arrive", status=408) from None
            if message["type"] == "http.disconnect":
                self.gone = True
                raise ClientGone
            piece = message.get("body", b"")
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)

    async def reply(
        self, status: int, payload: bytes, kind: bytes = JSON, headers: Headers = ()
    ) -> None:
        """Answer with one whole body. HEAD gets the headers only."""
        fields = [(b"content-type", kind), (b"content-length", b"%d" % len(payload)), *headers]
        await self._begin(status, fields)
        await self._write(b"" if self.method == "HEAD" else payload, more=False)

    async def unchanged(self, headers: Headers) -> None:
        """Answer that what the client has still holds: 304, which has no body and no length."""
        await self._begin(304, list(headers))
        await self._write(b"", more=False)

    async def fail(self, error: RequestError) -> None:
        """Answer with an error; within a stream as its last event, without [DONE]."""
        if self.status == 0:
            headers = list(error.headers) if isinstance(error, Refusal) else []
            if error.retry_after is not None:
                headers.append((b"retry-after", b"%d" % error.retry_after))
            await self.reply(error.status, self.voice.error(error), JSON, headers)
        else:
            await self.event(self.voice.error_event(error))
            await self.end()

    async def event(self, data: bytes) -> None:
        """Send bytes of the event stream at once; the first begin it."""
        if self.status == 0:
            await self._begin(200, list(EVENT_STREAM))
        self._wrote = True
        await self._write(data, more=True)

    async def end(self) -> None:
        """End the event stream."""
        await self._write(b"", more=False)

    async def attend(self, work: Coroutine[Any, Any, None], *, streams: bool) -> None:
        """Run `work` while watching the client; cancel it and raise ClientGone if it leaves.

        A stream that has been silent for `ping_s` seconds gets a ping, so that
        proxies and clients do not give up while a long prompt is read.
        """
        self._streams = streams
        task = asyncio.ensure_future(work)
        watcher = asyncio.ensure_future(self._watch())
        try:
            await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watcher.cancel()
            task.cancel()
            await asyncio.gather(task, watcher, return_exceptions=True)
        if task.cancelled():
            watcher.result()
            raise ClientGone
        task.result()

    async def _watch(self) -> None:
        """Return when the client is gone; send pings into a silent stream."""
        incoming: asyncio.Future[Message] = asyncio.ensure_future(self._receive())
        try:
            while True:
                await asyncio.wait({incoming}, timeout=self._ping_s if self._streams else None)
                if incoming.done():
                    if incoming.result()["type"] == "http.disconnect":
                        self.gone = True
                        return
                    incoming = asyncio.ensure_future(self._receive())
                elif not self._wrote:
                    await self.event(self.voice.ping())
                self._wrote = False
        finally:
            incoming.cancel()

    async def _begin(self, status: int, fields: list[tuple[bytes, bytes]]) -> None:
        assert self.status == 0, "a request is answered once"
        self.status = status
        fields += self.voice.headers
        for value in self.headers(b"x-request-id")[:1]:
            if len(value) <= 128 and value.isascii() and value.isprintable():
                fields.append((b"x-request-id", value.encode("ascii")))
        await self._put({"type": "http.response.start", "status": status, "headers": fields})

    async def _write(self, data: bytes, *, more: bool) -> None:
        await self._put({"type": "http.response.body", "body": data, "more_body": more})

    async def _put(self, message: Message) -> None:
        try:
            await self._send(message)
        except OSError:
            # ASGI 2.4: sending to a client that left may raise.
            self.gone = True
            raise ClientGone from None


def _too_large(limit: int) -> Refusal:
    return Refusal(f"the request body is larger than the {limit} bytes allowed", status=413)
