"""What the routes need to answer: engine, text, facts of the model, defaults and limits.

Owns nothing. `Service` exists once a model is loaded; until then `Lobby` says why not,
so that a server can listen, and say how far it is, while it loads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from strata.server.errors import Refusal
from strata.text.template import ChatTemplate
from strata.text.tokenizer import Tokenizer
from strata.types import Event, Finish, Record, Request, Sampling, Snapshot


class Events(Protocol):
    """The events of one request, up to its Done or Failed one."""

    def __aiter__(self) -> AsyncIterator[Event]:
        """They come as the engine makes them."""

    def close(self, finish: Finish = Finish.CANCELLED) -> None:
        """End the request, unless it has ended; the finish is what its record says."""

    async def aclose(self) -> None:
        """Cancel the request, unless it has ended."""


class Engine(Protocol):
    """What the server sees of the engine: `strata.engine.client.EngineClient` is one."""

    @property
    def ready(self) -> bool:
        """Whether requests are being answered."""

    @property
    def error(self) -> str | None:
        """Why it stopped for good."""

    def submit(self, request: Request) -> Events:
        """Have a request answered. Raises RequestError: the queue is full, it cannot run, …"""

    def snapshot(self) -> Snapshot:
        """Counters of this moment."""

    def records(self) -> tuple[Record, ...]:
        """The last finished requests, newest first."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """How the model is presented. `created` in seconds since 1970, `context` in tokens."""

    id: str
    root: str
    context: int
    created: int
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one request: choices in all, how many run at once, seconds (None: no end)."""

    runs: int = 512
    at_once: int = 8
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """Everything behind the routes. `defaults` holds for what a request leaves open."""

    engine: Engine
    tokenizer: Tokenizer
    template: ChatTemplate | None
    model: ModelFacts
    defaults: Sampling = field(default_factory=Sampling)
    limits: Limits = Limits()


class Lobby:
    """Where requests wait outside until the service is there: they are told why.

    Written by whoever loads the model, from any thread; read by the routes.
    """

    def __init__(self, service: Service | None = None) -> None:
        self._service = service
        self._reason = "the model is being loaded"

    def open(self, service: Service) -> None:
        """From now on requests are served."""
        self._service = service

    def say(self, reason: str) -> None:
        """Why nothing is served yet, for GET /health and for 503 answers."""
        self._reason = reason

    @property
    def reason(self) -> str | None:
        """Why requests are refused, or None when they are served."""
        service = self._service
        if service is None:
            return self._reason
        if service.engine.error is not None:
            return f"the engine has stopped: {service.engine.error}"
        return None if service.engine.ready else "the engine is starting"

    @property
    def present(self) -> Service | None:
        """The service if it is loaded, whether or not its engine is well."""
        return self._service

    def service(self) -> Service:
        """The service, or a 503 that says why there is none."""
        reason = self.reason
        service = self._service
        if reason is not None or service is None:
            raise Refusal(reason or self._reason, status=503, retry_after=5)
        return service
