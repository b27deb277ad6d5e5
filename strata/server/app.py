"""The ASGI application: which path and method does what.

Every path exists with and without /v1, since clients use both; only one form is
documented. How a request ends, whatever it was, is resource.py's.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import TypeVar

import orjson
from pydantic import BaseModel
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from strata.figures import Snapshot
from strata.server import anthropic, experts, facts, llama, metrics, web
from strata.server.answer import Answer
from strata.server.body import parse
from strata.server.chat import ChatForm, chat_request
from strata.server.completions import CompletionForm, completion_job
from strata.server.errors import Refusal, Voice
from strata.server.exchange import Exchange
from strata.server.form import Form
from strata.server.guard import Access
from strata.server.job import Job
from strata.server.monitor import CacheTree, Pulse, about
from strata.server.openapi import openapi_document
from strata.server.resource import Action, Resource
from strata.server.responses.routes import Responses
from strata.server.responses.schema import ResponsesBody
from strata.server.schema import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from strata.server.service import Lobby, Service
from strata.server.talk import chat_job

TRACEPARENT = 55  # characters of W3C's header
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

# A body of this many bytes or more is parsed, rendered and tokenised in a thread, and so is
# one that may have a grammar to compile: others cost less than the event loop would notice.
THREAD_BYTES = 8 * 1024
MAY_COMPILE = re.compile(rb"schema|json_object|regex|grammar|tool_choice")
# Documented without /v1; everything else with it.
PLAIN_PATHS = frozenset(
    ["/", "/health", "/metrics", "/openapi.json", "/tokenize", "/detokenize", "/props", "/slots"]
)


def page(read: Callable[[Exchange], bytes]) -> Action:
    """Answers with what `read` returns."""

    async def action(exchange: Exchange, caller: str) -> None:
        await exchange.reply(200, read(exchange))

    return action


def _missing(exchange: Exchange) -> bytes:
    raise Refusal("there is nothing at this path; see GET /openapi.json", status=404)


class Actions:
    """What the routes do, once a request has been let in."""

    def __init__(
        self, lobby: Lobby, access: Access, meters: metrics.Meters, remembered: Responses
    ) -> None:
        self._lobby, self._access, self._meters = lobby, access, meters
        self._remembered = remembered

    def models(self, exchange: Exchange) -> bytes:
        """GET /v1/models and /v1/models/{id}, as the API tells them whose client asks."""
        told: ModuleType = facts
        if exchange.headers(b"anthropic-version"):
            told, exchange.voice = anthropic, anthropic.AnthropicVoice()
        name, service = exchange.scope["path_params"].get("name"), self._lobby.service()
        page: bytes = told.model_list(service) if name is None else told.model(service, name)
        return page

    async def root(self, exchange: Exchange, caller: str) -> None:
        """GET /: the page to browsers, and what this is to others."""
        if exchange.scope["path"] == "/" and web.wanted(exchange):
            return await web.send(exchange, web.START, web.VARY)
        await exchange.reply(200, facts.about(self._lobby), headers=web.VARY)

    def counted(self, tell: Callable[[Snapshot], bytes]) -> Action:
        """Answers with what `tell` makes of the engine's counters."""
        return page(lambda _: tell(self._lobby.service().engine.snapshot()))

    async def metrics(self, exchange: Exchange, caller: str) -> None:
        """GET /metrics: while nothing is loaded, the engine's counters are 0."""
        service = self._lobby.present
        snapshot = service.engine.snapshot() if service else Snapshot()
        model = service.model.id if service else ""
        await exchange.reply(200, metrics.render(self._meters, snapshot, model), metrics.KIND)

    async def health(self, exchange: Exchange, caller: str) -> None:
        """GET /health: 200, or 503 with the reason."""
        if (reason := self._lobby.reason) is None:
            return await exchange.reply(200, b'{"status":"ok"}')
        await exchange.reply(503, orjson.dumps({"status": "unavailable", "reason": reason}))

    async def clear(self, exchange: Exchange, caller: str) -> None:
        """DELETE /v1/cache."""
        await exchange.reply(200, await facts.clear(self._lobby.service()))

    async def tokenize(self, exchange: Exchange, caller: str) -> None:
        """POST /tokenize."""
        use = partial(facts.tokenize, self._lobby.service())
        await exchange.reply(200, await self._read(exchange, TokenizeBody, use))

    async def detokenize(self, exchange: Exchange, caller: str) -> None:
        """POST /detokenize."""
        use = partial(facts.detokenize, self._lobby.service())
        await exchange.reply(200, await self._read(exchange, DetokenizeBody, use))

    async def chat(self, exchange: Exchange, caller: str) -> None:
        """POST /v1/chat/completions."""
        service = self._lobby.service()

        def prepare(body: ChatBody) -> tuple[Job, Form]:
            job = chat_job(service, chat_request(body), caller)
            return job, ChatForm(job, service.names, bool(body.logprobs))

        await self._answer(exchange, service, *await self._read(exchange, ChatBody, prepare))

    async def completions(self, exchange: Exchange, caller: str) -> None:
        """POST /v1/completions."""
        service = self._lobby.service()

        def prepare(body: CompletionBody) -> tuple[Job, Form]:
            job = completion_job(service, body, caller)
            return job, CompletionForm(job, service, body)

        await self._answer(exchange, service, *await self._read(exchange, CompletionBody, prepare))

    async def messages(self, exchange: Exchange, caller: str) -> None:
        """POST /v1/messages."""
        service = self._lobby.service()

        def prepare(body: anthropic.MessagesBody) -> tuple[Job, Form]:
            job = chat_job(service, anthropic.chat_request(service, body), caller, "msg_")
            return job, anthropic.MessageForm(job, service.model.context)

        await self._answer(
            exchange, service, *await self._read(exchange, anthropic.MessagesBody, prepare)
        )

    async def count_tokens(self, exchange: Exchange, caller: str) -> None:
        """POST /v1/messages/count_tokens."""
        use = partial(anthropic.count_tokens, self._lobby.service())
        await exchange.reply(200, await self._read(exchange, anthropic.CountBody, use))

    async def responses(self, exchange: Exchange, caller: str) -> None:
        """POST /v1/responses."""
        service = self._lobby.service()
        prepare = partial(self._remembered.prepare, service, caller)
        await self._answer(exchange, service, *await self._read(exchange, ResponsesBody, prepare))

    async def _answer(self, exchange: Exchange, service: Service, job: Job, form: Form) -> None:
        parents = exchange.headers(b"traceparent")
        if parents and len(parents[0]) == TRACEPARENT:
            job = job.traced(parents[0])
        try:
            await Answer(service, self._meters, exchange, job, form).write()
        finally:
            self._meters.duration.observe(time.perf_counter() - exchange.started_at)

    async def _read(self, exchange: Exchange, kind: type[M], use: Callable[[M], T]) -> T:
        """`use` of the body as a `kind`, in a thread when that may take long."""
        body = await exchange.body(self._access.body_limit)
        if len(body) < THREAD_BYTES and not MAY_COMPILE.search(body):
            return use(parse(kind, body))
        return await asyncio.to_thread(lambda: use(parse(kind, body)))


def create_app(lobby: Lobby, access: Access = Access()) -> ASGIApp:  # noqa: B008 - frozen
    """The server's ASGI application. Requests are answered once `lobby` is open."""
    meters = metrics.Meters()
    remembered = Responses()
    pulse, tree = Pulse(lobby), CacheTree(lobby)
    lobby.ends.append(pulse.close)
    actions = Actions(lobby, access, meters, remembered)
    openapi = openapi_document()
    table: list[tuple[str, Mapping[str, Action], bool]] = [
        ("/v1/chat/completions", {"POST": actions.chat}, False),
        ("/v1/completions", {"POST": actions.completions}, False),
        ("/v1/messages", {"POST": actions.messages}, False),
        ("/v1/messages/count_tokens", {"POST": actions.count_tokens}, False),
        ("/v1/responses", {"POST": actions.responses}, False),
        (
            "/v1/responses/{id}",
            {"GET": remembered.retrieve, "DELETE": remembered.delete},
            False,
        ),
        ("/v1/responses/{id}/input_items", {"GET": remembered.input_items}, False),
        ("/v1/models", {"GET": page(actions.models)}, False),
        ("/v1/models/{name:path}", {"GET": page(actions.models)}, False),
        ("/v1/requests", {"GET": page(lambda _: facts.request_list(lobby.service()))}, False),
        ("/v1/monitor", {"GET": pulse.monitor}, False),
        ("/v1/slots", {"GET": page(lambda _: llama.slots(lobby.service()))}, False),
        ("/v1/props", {"GET": page(lambda _: llama.props(lobby.service()))}, False),
        ("/v1/experts", {"GET": actions.counted(experts.page)}, False),
        ("/v1/about", {"GET": page(partial(about, lobby))}, False),
        ("/v1/cache/tree", {"GET": tree.tree}, False),
        ("/v1/cache/text", {"GET": tree.text}, False),
        (
            "/v1/cache",
            {"GET": actions.counted(facts.cache), "DELETE": actions.clear},
            False,
        ),
        ("/v1/tokenize", {"POST": actions.tokenize}, False),
        ("/v1/detokenize", {"POST": actions.detokenize}, False),
        ("/v1/metrics", {"GET": actions.metrics}, False),
        ("/v1/health", {"GET": actions.health}, True),
        ("/v1/openapi.json", {"GET": page(lambda _: openapi)}, True),
        ("/v1", {"GET": actions.root}, True),
    ]
    routes: list[Route] = []
    for path, allowed, public in table:
        bare = path.removeprefix("/v1") or "/"
        label = bare if bare in PLAIN_PATHS else path.replace("{name:path}", "{id}")
        voice = anthropic.AnthropicVoice if bare.startswith("/messages") else Voice
        resource = Resource(access, meters, label, allowed, public=public, voice=voice)
        routes += [Route(path, resource), Route(bare, resource)]
    file = Resource(access, meters, "/web", {"GET": web.serve}, public=True)
    routes.append(Route("/web/{name}", file))
    methods = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
    every = dict.fromkeys(methods, page(_missing))
    missing = Resource(access, meters, "other", every, public=True)
    app: ASGIApp = Router(routes, redirect_slashes=False, default=missing)
    if access.origins:
        origins = sorted(access.origins)
        verbs = ["GET", "POST", "DELETE"]
        app = CORSMiddleware(app, origins, allow_methods=verbs, allow_headers=["*"])
    return app
