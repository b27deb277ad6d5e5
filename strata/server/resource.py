"""One path: its methods, who may use them, and what happens at the end of a request.

The one place where errors become answers, requests are counted, and each leaves one access line
without content. Knows no route.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from starlette.types import Receive, Scope, Send

from strata.server.errors import ClientGone, Refusal, Voice
from strata.server.exchange import Exchange
from strata.server.guard import Access, admit, identify
from strata.server.metrics import Meters
from strata.types import RequestError

Action = Callable[[Exchange, str], Awaitable[None]]

access_log = logging.getLogger("strata.access")
log = logging.getLogger("strata.server")

CLIENT_LEFT = 499
PING_S = 10.0


class Resource:
    """A path's actions by their methods.

    `voice` makes what says a request's errors as the path's API does.
    """

    def __init__(
        self,
        access: Access,
        meters: Meters,
        route: str,
        actions: Mapping[str, Action],
        *,
        public: bool = False,
        voice: Callable[[], Voice] = Voice,
    ) -> None:
        self._access, self._meters, self._route, self._public = access, meters, route, public
        self._voice = voice
        self._actions = dict(actions)
        if "GET" in actions:
            self._actions["HEAD"] = actions["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        exchange = Exchange(scope, receive, send, PING_S, self._voice())
        self._meters.open += 1
        try:
            await self._serve(exchange)
        finally:
            self._meters.open -= 1
            self._close(exchange)

    async def _serve(self, exchange: Exchange) -> None:
        with suppress(ClientGone):  # the exchange knows
            try:
                await self._act(exchange)
            except RequestError as error:
                await exchange.fail(error)
            except asyncio.CancelledError:
                # The server is told to end and has waited long enough for this one.
                await exchange.fail(Refusal("the server is shutting down", status=503))
            except ClientGone:
                raise
            except Exception as error:
                # The message may quote a prompt: type and place must do.
                places = "".join(traceback.format_tb(error.__traceback__))
                log.error("%s in %s\n%s", type(error).__name__, self._route, places)
                await exchange.fail(Refusal("the server failed to answer", status=500))

    async def _act(self, exchange: Exchange) -> None:
        admit(exchange, self._access)
        action = self._actions.get(exchange.method)
        if action is None:
            allowed = ", ".join(sorted(self._actions))
            raise Refusal(
                f"{exchange.method[:20]} is not allowed here; allowed: {allowed}",
                status=405,
                headers=((b"allow", allowed.encode()),),
            )
        await action(exchange, "" if self._public else identify(exchange, self._access))

    def _close(self, exchange: Exchange) -> None:
        seconds = time.perf_counter() - exchange.started_at
        status = exchange.status or CLIENT_LEFT
        self._meters.responses[self._route, status] += 1
        self._meters.disconnects += exchange.gone
        client = (exchange.scope.get("client") or ("-",))[0]
        method = exchange.method if exchange.method.isalpha() else "?"
        told = exchange.told
        note = (
            " {id} prompt={prompt} cached={cached} output={output}".format(**told) if told else ""
        )
        access_log.info(
            "%s %s %s %d %.3fs%s%s",
            *(client, method, self._route, status, seconds),
            " client left" if exchange.gone else "",
            note,
            extra={
                "request": {
                    "client": client,
                    "method": method,
                    "route": self._route,
                    "status": status,
                    "seconds": round(seconds, 6),
                    "client_left": exchange.gone,
                    **told,
                }
            },
        )
