"""What the routes need to answer: engine, text, facts of the model, defaults and limits.

Owns nothing. `Service` exists once a model is loaded; until then `Lobby` says why not,
so that a server can listen, and say how far it is, while it loads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from strata.server.errors import Refusal
from strata.server.logprobs import TokenNames
from strata.text import dialects
from strata.text.dialects import Dialect
from strata.text.grammar import Grammars
from strata.text.template import ChatTemplate
from strata.text.tokenizer import Tokenizer
from strata.types import Sampling

if TYPE_CHECKING:
    from strata.engine.client import EngineClient


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """How the model is presented. `created` in seconds since 1970, `context` in tokens."""

    id: str
    root: str
    context: int
    created: int
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Build:
    """What was loaded and how, in words: `memory_plan` as printed at the start, line by line."""

    file: str
    architecture: str
    quantisation: str
    kernels: str
    memory_plan: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one request: choices in all, how many run at once, seconds (None: no end)."""

    runs: int = 512
    at_once: int = 8
    timeout_s: float | None = None


@dataclass(frozen=True)
class Service:
    """Everything behind the routes. `defaults` holds for what a request leaves open."""

    engine: EngineClient
    tokenizer: Tokenizer
    template: ChatTemplate | None
    model: ModelFacts
    defaults: Sampling = field(default_factory=Sampling)
    limits: Limits = Limits()
    build: Build | None = None

    @cached_property
    def names(self) -> TokenNames:
        """What its tokens are called."""
        return TokenNames(self.tokenizer)

    @cached_property
    def dialect(self) -> Dialect:
        """How the model writes reasoning and calls, as its template shows it."""
        template = self.template
        source = template.source + (template.tool_source or "") if template else ""
        return dialects.of(source, self.tokenizer.added_tokens)

    @cached_property
    def grammars(self) -> Grammars:
        """What makes constraints for its tokens."""
        return Grammars(self.tokenizer)

    def named(self, name: str | None) -> str:
        """The name to answer under: the one that was asked for. Raises a 404 for another's."""
        known = (self.model.id, *self.model.aliases)
        if name is None or name in known:
            return name or self.model.id
        raise Refusal(
            f"the model {name[:100]!r} is not served here; available: {', '.join(known)}",
            status=404,
            field="model",
            code="model_not_found",
        )


class Lobby:
    """Where requests wait outside until the service is there: they are told why.

    Written by whoever loads the model, from any thread; read by the routes.
    """

    def __init__(self, service: Service | None = None) -> None:
        self.present = service  # if it is loaded, whether or not its engine is well
        self.ends: list[Callable[[], None]] = []  # of streams that would else go on for ever
        self._reason = "the model is being loaded"

    def open(self, service: Service) -> None:
        """From now on requests are served."""
        self.present = service

    def say(self, reason: str) -> None:
        """Why nothing is served yet, for GET /health and for 503 answers."""
        self._reason = reason

    def close(self) -> None:
        """The server is about to end. On the event loop's thread."""
        for end in self.ends:
            end()

    @property
    def reason(self) -> str | None:
        """Why requests are refused, or None when they are served."""
        service = self.present
        if service is None:
            return self._reason
        if service.engine.error is not None:
            return f"the engine has stopped: {service.engine.error}"
        return None if service.engine.ready else "the engine is starting"

    def service(self) -> Service:
        """The service, or a 503 that says why there is none."""
        reason, service = self.reason, self.present
        if reason is not None or service is None:
            raise Refusal(reason or self._reason, status=503, retry_after=5)
        return service
