"""The ASGI application: which path and method does what.

Every path exists with and without /v1, since clients use both; only one form is
documented.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import orjson
from pydantic import BaseModel
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from strata.server import facts, metrics
from strata.server.answer import Answer, Form
from strata.server.chat import ChatForm, chat_job
from strata.server.completions import CompletionForm, completion_job
from strata.server.errors import Refusal
from strata.server.exchange import Exchange
from strata.server.guard import Access
from strata.server.job import Job
from strata.server.logprobs import TokenNames
from strata.server.openapi import openapi_document
from strata.server.resource import Action, Resource
from strata.server.schema import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody, parse
from strata.server.service import Lobby, Service
from strata.types import Snapshot

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

# A body of this many bytes or more is parsed, rendered and tokenised in a thread:
# below it costs less than the event loop would notice.
THREAD_BYTES = 8 * 1024
# Documented without /v1; everything else with it.
PLAIN_PATHS = frozenset({"/", "/health", "/metrics", "/openapi.json", "/tokenize", "/detokenize"})


def page(read: Callable[[], bytes]) -> Action:
    """Answers with what `read` returns."""

    async def action(exchange: Exchange, caller: str) -> None:
        await exchange.reply(200, read())

    return action


class Actions:
    """What the routes do, once a request has been let in."""

    def __init__(self, lobby: Lobby, access: Access, meters: metrics.Meters) -> None:
        self._lobby, self._access, self._meters = lobby, access, meters
        self._names: tuple[Service, TokenNames] | None = None

    async def health(self, exchange: Exchange, caller: str) -> None:
        """GET /health: 200, or 503 with the reason."""
        if (reason := self._lobby.reason) is None:
            await exchange.reply(200, orjson.dumps({"status": "ok"}))
        else:
            told = {"status": "unavailable", "reason": reason}
            await exchange.reply(503, orjson.dumps(told))

    async def metrics(self, exchange: Exchange, caller: str) -> None:
        """GET /metrics: while nothing is loaded, the engine's counters are 0."""
        service = self._lobby.present
        snapshot = service.engine.snapshot() if service else Snapshot()
        await exchange.reply(200, metrics.render(self._meters, snapshot), metrics.KIND)

    async def model(self, exchange: Exchange, caller: str) -> None:
        """GET /v1/models/{id}."""
        name = exchange.scope["path_params"]["name"]
        await exchange.reply(200, facts.model(self._lobby.service(), name))

    async def tokenize(self, exchange: Exchange, caller: str) -> None:
        """POST /tokenize."""
        service, names = self._served()
        use = partial(facts.tokenize, service, names)
        await exchange.reply(200, await self._read(exchange, TokenizeBody, use))

    async def detokenize(self, exchange: Exchange, caller: str) -> None:
        """POST /detokenize."""
        use = partial(facts.detokenize, self._lobby.service())
        await exchange.reply(200, await self._read(exchange, DetokenizeBody, use))

    async def chat(self, exchange: Exchange, caller: str) -> None:
        """POST /v1/chat/completions."""
        service, names = self._served()

        def prepare(body: ChatBody) -> tuple[Job, Form]:
            job = chat_job(service, body, caller)
            return job, ChatForm(job, names, bool(body.logprobs))

        await self._answer(exchange, service, *await self._read(exchange, ChatBody, prepare))

    async def completions(self, exchange: Exchange, caller: str) -> None:
        """POST /v1/completions."""
        service, names = self._served()

        def prepare(body: CompletionBody) -> tuple[Job, Form]:
            job = completion_job(service, body, caller)
            return job, CompletionForm(job, service, names, body)

        await self._answer(exchange, service, *await self._read(exchange, CompletionBody, prepare))

    async def missing(self, exchange: Exchange, caller: str) -> None:
        """Any other path."""
        raise Refusal("there is nothing at this path; see GET /openapi.json", status=404)

    async def _answer(self, exchange: Exchange, service: Service, job: Job, form: Form) -> None:
        try:
            await Answer(service, self._meters, exchange, job, form).write()
        finally:
            self._meters.duration.observe(time.perf_counter() - exchange.started_at)

    async def _read(self, exchange: Exchange, kind: type[M], use: Callable[[M], T]) -> T:
        """`use` of the body as a `kind`, in a thread when the body is long."""
        body = await exchange.body(self._access.body_limit)
        if len(body) < THREAD_BYTES:
            return use(parse(kind, body))
        return await asyncio.to_thread(lambda: use(parse(kind, body)))

    def _served(self) -> tuple[Service, TokenNames]:
        service = self._lobby.service()
        if self._names is None or self._names[0] is not service:
            self._names = (service, TokenNames(service.tokenizer))
        return self._names


def create_app(lobby: Lobby, access: Access = Access()) -> ASGIApp:  # noqa: B008 - frozen
    """The server's ASGI application. Requests are answered once `lobby` is open."""
    meters = metrics.Meters()
    actions = Actions(lobby, access, meters)
    openapi = openapi_document()
    table: list[tuple[str, str, Action, bool]] = [
        ("/v1/chat/completions", "POST", actions.chat, False),
        ("/v1/completions", "POST", actions.completions, False),
        ("/v1/models", "GET", page(lambda: facts.model_list(lobby.service())), False),
        ("/v1/models/{name:path}", "GET", actions.model, False),
        ("/v1/requests", "GET", page(lambda: facts.request_list(lobby.service())), False),
        ("/v1/tokenize", "POST", actions.tokenize, False),
        ("/v1/detokenize", "POST", actions.detokenize, False),
        ("/v1/metrics", "GET", actions.metrics, False),
        ("/v1/health", "GET", actions.health, True),
        ("/v1/openapi.json", "GET", page(lambda: openapi), True),
        ("/v1", "GET", page(lambda: facts.about(lobby)), True),
    ]
    routes: list[Route] = []
    for path, method, action, public in table:
        bare = path.removeprefix("/v1") or "/"
        label = bare if bare in PLAIN_PATHS else path.replace("{name:path}", "{id}")
        resource = Resource(access, meters, label, {method: action}, public=public)
        routes += [Route(path, resource), Route(bare, resource)]
    methods = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
    every = dict.fromkeys(methods, actions.missing)
    missing = Resource(access, meters, "other", every, public=True)
    app: ASGIApp = Router(routes, redirect_slashes=False, default=missing)
    if access.origins:
        origins = sorted(access.origins)
        app = CORSMiddleware(app, origins, allow_methods=["GET", "POST"], allow_headers=["*"])
    return app
