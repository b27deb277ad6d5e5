"""GET /v1/about: what is served, of what it is made, and how clients reach it."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import orjson

import strata
from strata.server.exchange import Exchange
from strata.server.monitor.definitions import DEFINITIONS
from strata.server.service import Lobby

# Whose versions explain a difference between two machines.
_LIBRARIES = ("torch", "numpy", "tokenizers", "llguidance", "starlette", "uvicorn")


def about(lobby: Lobby, exchange: Exchange) -> bytes:
    """The page, as far as it is known while the model is being loaded."""
    service = lobby.present
    model = service.model if service else None
    build = service.build if service else None
    base = _base(exchange)
    return orjson.dumps(
        {
            "object": "about",
            "model": None
            if model is None
            else {
                "id": model.id,
                "aliases": list(model.aliases),
                "context": model.context,
                "architecture": build.architecture if build else None,
            },
            "file": build.file if build else None,
            "quantisation": build.quantisation if build else None,
            "memory_plan": list(build.memory_plan) if build else [],
            "kernels": build.kernels if build else None,
            "versions": _versions(),
            "urls": {"openai": f"{base}/v1", "anthropic": base, "metrics": f"{base}/metrics"},
            "definitions": DEFINITIONS,
        }
    )


def _base(exchange: Exchange) -> str:
    """The address under which the caller reached this server."""
    host = next(iter(exchange.headers(b"host")), "localhost")
    scheme = next(iter(exchange.headers(b"x-forwarded-proto")), "")
    return f"{'https' if scheme == 'https' else exchange.scope.get('scheme', 'http')}://{host}"


def _versions() -> dict[str, Any]:
    found = {"strata": strata.__version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # it need not be installed as a package
            continue
    return found
