"""Scripted answers whose kinds of text are marked by control characters, and events on the wire."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import strata.server.talk as talk
from strata.text.delta import Delta, Kind

THINK, SAY, CALL, WITH, END = "\x01\x02\x03\x04\x05"


class Marked:
    """THINK and SAY begin a kind of text; CALL name WITH json END is a call."""

    def __init__(self, dialect: Any, tools: Any, *, thinking: bool, calls: bool = True) -> None:
        self.kind = Kind.REASONING if thinking else Kind.CONTENT
        self.name, self.calls = "", 0

    def feed(self, text: str) -> list[Delta]:
        out: list[Delta] = []
        for char in text:
            if char in (THINK, SAY):
                self.kind = Kind.REASONING if char == THINK else Kind.CONTENT
            elif char == CALL:
                self.kind, self.name = Kind.CALL, ""
            elif char == WITH:
                out.append(Delta(Kind.CALL, self.name, self.calls))
                self.kind = Kind.ARGUMENTS
            elif char == END:
                out.append(Delta(Kind.END, "", self.calls))
                self.kind, self.calls = Kind.CONTENT, self.calls + 1
            elif self.kind is Kind.CALL:
                self.name += char
            else:
                call = self.calls if self.kind is Kind.ARGUMENTS else None
                out.append(Delta(self.kind, char, call))
        return out

    def finish(self) -> list[Delta]:
        return []


@pytest.fixture(autouse=True)
def _marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "Segmenter", Marked)


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
