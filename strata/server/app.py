"""The ASGI application: which path and method does what.

Every path exists with and without /v1, since clients use both; only one form is
documented.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from strata.server import facts, metrics
from strata.server.answer import Desk, Form
from strata.server.chat import ChatForm, chat_job
from strata.server.completions import CompletionForm, completion_job
from strata.server.document import read_document
from strata.server.errors import Refusal
from strata.server.exchange import Exchange
from strata.server.guard import Access
from strata.server.job import Job
from strata.server.logprobs import TokenNames
from strata.server.openapi import openapi_document
from strata.server.resource import Action, Resource, Site
from strata.server.schema import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    TokenizeBody,
    parse,
)
from strata.server.service import Lobby, Service
from strata.server.tokens import detokenize, tokenize
from strata.types import Snapshot

T = TypeVar("T")

# A body of this many bytes or more is parsed, rendered and tokenised in a thread:
# below it costs less than the event loop would notice.
THREAD_BYTES = 8 * 1024
# Documented without /v1; everything else with it.
PLAIN_PATHS = frozenset({"/", "/health", "/metrics", "/openapi.json", "/tokenize", "/detokenize"})


class Actions:
    """What the routes do, once a request has been let in."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._names: tuple[Service, TokenNames] | None = None
        self._openapi = openapi_document()

    async def about(self, exchange: Exchange, caller: str) -> None:
        """GET /."""
        await exchange.reply(200, facts.about(self._site.lobby))

    async def openapi(self, exchange: Exchange, caller: str) -> None:
        """GET /openapi.json."""
        await exchange.reply(200, self._openapi)

    async def health(self, exchange: Exchange, caller: str) -> None:
        """GET /health."""
        status, payload = facts.health(self._site.lobby)
        await exchange.reply(status, payload)

    async def metrics(self, exchange: Exchange, caller: str) -> None:
        """GET /metrics: while nothing is loaded, the engine's counters are 0."""
        service = self._site.lobby.present
        snapshot = service.engine.snapshot() if service else Snapshot()
        await exchange.reply(200, metrics.render(self._site.meters, snapshot), metrics.KIND)

    async def models(self, exchange: Exchange, caller: str) -> None:
        """GET /v1/models."""
        await exchange.reply(200, facts.model_list(self._site.lobby.service()))

    async def model(self, exchange: Exchange, caller: str) -> None:
        """GET /v1/models/{id}."""
        name = exchange.scope["path_params"]["name"]
        await exchange.reply(200, facts.model(self._site.lobby.service(), name))

    async def requests(self, exchange: Exchange, caller: str) -> None:
        """GET /v1/requests."""
        await exchange.reply(200, facts.request_list(self._site.lobby.service()))

    async def tokenize(self, exchange: Exchange, caller: str) -> None:
        """POST /tokenize."""
        service = self._site.lobby.service()
        names = self._token_names(service)
        payload = await self._read(
            exchange, lambda body: tokenize(service, names, parse(TokenizeBody, body))
        )
        await exchange.reply(200, payload)

    async def detokenize(self, exchange: Exchange, caller: str) -> None:
        """POST /detokenize."""
        service = self._site.lobby.service()
        payload = await self._read(
            exchange, lambda body: detokenize(service, parse(DetokenizeBody, body))
        )
        await exchange.reply(200, payload)

    async def chat(self, exchange: Exchange, caller: str) -> None:
        """POST /v1/chat/completions."""
        service = self._site.lobby.service()
        names = self._token_names(service)

        def prepare(document: dict[str, object]) -> tuple[Job, Form]:
            body = parse(ChatBody, document)
            job = chat_job(service, body, caller)
            return job, ChatForm(job, names, bool(body.logprobs))

        await self._answer(exchange, service, prepare)

    async def completions(self, exchange: Exchange, caller: str) -> None:
        """POST /v1/completions."""
        service = self._site.lobby.service()
        names = self._token_names(service)

        def prepare(document: dict[str, object]) -> tuple[Job, Form]:
            body = parse(CompletionBody, document)
            job = completion_job(service, body, caller)
            return job, CompletionForm(job, service, names, body)

        await self._answer(exchange, service, prepare)

    async def missing(self, exchange: Exchange, caller: str) -> None:
        """Any other path."""
        raise Refusal("there is nothing at this path; see GET /openapi.json", status=404)

    async def _answer(
        self,
        exchange: Exchange,
        service: Service,
        prepare: Callable[[dict[str, object]], tuple[Job, Form]],
    ) -> None:
        job, form = await self._read(exchange, prepare)
        meters = self._site.meters
        try:
            await Desk(service, meters, exchange).answer(job, form)
        finally:
            meters.duration.observe(time.perf_counter() - exchange.started_at)

    async def _read(self, exchange: Exchange, use: Callable[[dict[str, object]], T]) -> T:
        """`use` of the body's object, in a thread when the body is long."""
        body = await exchange.body(self._site.access.body_limit)

        def work() -> T:
            return use(read_document(body))

        return work() if len(body) < THREAD_BYTES else await asyncio.to_thread(work)

    def _token_names(self, service: Service) -> TokenNames:
        if self._names is None or self._names[0] is not service:
            self._names = (service, TokenNames(service.tokenizer))
        return self._names[1]


def create_app(lobby: Lobby, access: Access = Access()) -> ASGIApp:  # noqa: B008 - frozen
    """The server's ASGI application. Requests are answered once `lobby` is open."""
    site = Site(lobby, access, metrics.Meters())
    actions = Actions(site)
    table: list[tuple[str, str, Action, bool]] = [
        ("/v1/chat/completions", "POST", actions.chat, False),
        ("/v1/completions", "POST", actions.completions, False),
        ("/v1/models", "GET", actions.models, False),
        ("/v1/models/{name:path}", "GET", actions.model, False),
        ("/v1/requests", "GET", actions.requests, False),
        ("/v1/tokenize", "POST", actions.tokenize, False),
        ("/v1/detokenize", "POST", actions.detokenize, False),
        ("/v1/metrics", "GET", actions.metrics, False),
        ("/v1/health", "GET", actions.health, True),
        ("/v1/openapi.json", "GET", actions.openapi, True),
        ("/v1", "GET", actions.about, True),
    ]
    routes: list[Route] = []
    for path, method, action, public in table:
        bare = path.removeprefix("/v1") or "/"
        label = bare if bare in PLAIN_PATHS else path.replace("{name:path}", "{id}")
        resource = Resource(site, label, {method: action}, public=public)
        routes += [Route(path, resource), Route(bare, resource)]
    methods = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
    missing = Resource(site, "other", dict.fromkeys(methods, actions.missing), public=True)
    app: ASGIApp = Router(routes, redirect_slashes=False, default=missing)
    if access.origins:
        app = CORSMiddleware(
            app,
            allow_origins=sorted(access.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
        )
    return app
