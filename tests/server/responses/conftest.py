"""Answers with reasoning and calls, without a model's dialect, and ways to ask for responses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import openai
import pytest

from strata.server.responses import routes
from strata.text.delta import Delta, Kind

MARK = re.compile(r"<(/?)(think|call)(?: (\w+))?>")


class Marks:
    """`<think>…</think>` is reasoning, `<call NAME>…</call>` a call, all else content.

    Characters of a mark are held back, the rest is told one character a delta.
    """

    def __init__(self) -> None:
        self._held, self._kind, self._call = "", Kind.CONTENT, -1

    def feed(self, text: str, marks: object = ()) -> list[Delta]:
        out = []
        for char in text:
            if not self._held and char != "<":
                number = self._call if self._kind is Kind.ARGUMENTS else None
                out.append(Delta(self._kind, char, number))
                continue
            self._held += char
            if char == ">":
                out += self._mark(MARK.fullmatch(self._held))
        return out

    def _mark(self, mark: Any) -> list[Delta]:
        self._held, self._kind = "", Kind.CONTENT
        closes, what, name = mark.groups()
        if what == "think":
            self._kind = Kind.CONTENT if closes else Kind.REASONING
            return []
        if closes:
            return [Delta(Kind.END, "", self._call)]
        self._kind, self._call = Kind.ARGUMENTS, self._call + 1
        return [Delta(Kind.CALL, name, self._call)]

    def finish(self) -> list[Delta]:
        return []


@pytest.fixture(autouse=True)
def marks(monkeypatch):
    """Answers are split at marks."""
    plain = routes.chat_job

    def job(*args, **named):
        made = plain(*args, **named)
        split = replace(made.runs[0].output, segmenter=Marks)
        return replace(made, runs=(replace(made.runs[0], output=split),))

    monkeypatch.setattr(routes, "chat_job", job)


@pytest.fixture
def client(live):
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="EMPTY", max_retries=0) as made:
        yield made


@pytest.fixture
def respond(call) -> Callable[..., Any]:
    """POST /v1/responses."""

    def ask(**fields: Any) -> Any:
        fields.setdefault("input", "hi")
        return call("POST", "/v1/responses", fields)

    return ask


@pytest.fixture
def events() -> Callable[[Any], list[dict[str, Any]]]:
    """A stream's events; checks that each is `event:` with its type, then `data:`, no more."""

    def read(answer: Any) -> list[dict[str, Any]]:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.body.endswith(b"\n\n")
        told = []
        for lines in answer.body[:-2].split(b"\n\n"):
            event, data = lines.split(b"\n")
            told.append(json.loads(data.removeprefix(b"data: ")))
            assert event == b"event: " + told[-1]["type"].encode()
        assert [each["sequence_number"] for each in told] == list(range(len(told)))
        return told

    return read
