"""Answers of a model that thinks and calls, and events on the wire."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

# What of a template's source tells that its model thinks, and calls as Hermes models do.
HERMES = 'shows <tool_call>\n{"name": ..., "arguments": ...}</tool_call> and <think></think>'


@pytest.fixture(autouse=True)
def _hermes(template: Any) -> None:
    template.source = HERMES


def events_of(body: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Name and data of each event; checks that the bytes are two lines and a blank one, no more."""
    assert body.endswith(b"\n\n")
    out = []
    for block in body[:-2].split(b"\n\n"):
        first, second = block.split(b"\n")
        assert first.startswith(b"event: ") and second.startswith(b"data: ")
        out.append((first[7:].decode(), json.loads(second[6:])))
    return out


@pytest.fixture(scope="session")
def events() -> Callable[[bytes], list[tuple[str, dict[str, Any]]]]:
    return events_of


@pytest.fixture
def send(call: Any) -> Callable[..., Any]:
    """POST /v1/messages with a body that needs no more."""

    def post(path: str = "/v1/messages", headers: dict[str, str] | None = None, **body: Any) -> Any:
        body.setdefault("messages", [{"role": "user", "content": "hi"}])
        body.setdefault("max_tokens", 100)
        return call("POST", path, body, headers=headers)

    return post
