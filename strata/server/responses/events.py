"""How a job is told as a response: its object, and the events of a stream in their order.

An answer is a row of items (reasoning, message, function_call); deltas open, fill and close them.
A whole answer is the same walk without its events, so both have the same object.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from strata.server import experts
from strata.server.form import Form
from strata.server.generate import Part, Tally
from strata.server.job import Job, Run
from strata.server.logprobs import TokenNames, chat_logprobs
from strata.server.responses.convert import sealed
from strata.text.delta import Delta, Kind
from strata.types import RequestError

Dump = dict[str, Any]
# Why a response is incomplete, by the run's finish; with any other it is completed.
_INCOMPLETE = {"length": "max_output_tokens", "repetition": "repetition"}


class Shape(NamedTuple):
    """How a kind of item is told: its id's prefix, the events of its text and of its one part."""

    prefix: str
    text: str
    value: str  # what the text is called in its `done`
    part: str = ""
    at: str = ""
    part_type: str = ""


_CONTENT = "response.content_part", "content_index"
_SHAPES = {
    "message": Shape("msg", "response.output_text", "text", *_CONTENT, "output_text"),
    "reasoning": Shape("rs", "response.reasoning_text", "text", *_CONTENT, "reasoning_text"),
    "summary": Shape(
        "rs",
        "response.reasoning_summary_text",
        "text",
        "response.reasoning_summary_part",
        "summary_index",
        "summary_text",
    ),
    "function_call": Shape("fc", "response.function_call_arguments", "arguments"),
}


@dataclass(slots=True)
class Open:
    """The item that is being made."""

    kind: str
    id: str
    index: int
    call: Dump = field(default_factory=dict)  # of a function_call: its names
    texts: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)

    def part(self, text: str) -> Dump:
        """Its one part, with a text."""
        part: Dump = {"type": _SHAPES[self.kind].part_type, "text": text}
        if self.kind == "message":
            part |= {"annotations": [], "logprobs": self.logprobs}
        return part

    def item(self, status: str, seal: bool) -> Dump:
        """The item as it is now."""
        text = "".join(self.texts)
        parts = [self.part(text)] if status != "in_progress" else []
        if self.kind == "function_call":
            told: Dump = {"type": "function_call", **self.call, "arguments": text}
        elif self.kind == "message":
            told = {"type": "message", "role": "assistant", "content": parts}
        else:
            told = {"type": "reasoning", "summary": []}
            told["summary" if self.kind == "summary" else "content"] = parts
            if seal and parts:
                told["encrypted_content"] = sealed(text)
        return {"id": self.id, **told, "status": status}


class ResponsesForm(Form):
    """Writes one job as a response.

    `said` are the response's members that the request fixes. `names` gives a function's name and
    namespace by the name that the model has for it. `summary`: reasoning is told as a summary;
    `seal`: also as encrypted_content. `keep` is told the whole response before the client is.
    """

    def __init__(
        self,
        job: Job,
        tokens: TokenNames,
        said: Mapping[str, Any],
        names: Mapping[str, Dump],
        keep: Callable[[Dump], None],
        *,
        summary: bool,
        seal: bool,
    ) -> None:
        super().__init__(job)
        self._tokens, self._said, self._names, self._keep = tokens, said, names, keep
        self._reasoning, self._seal = "summary" if summary else "reasoning", seal
        self._count = 0  # of events
        self._output: list[Dump] = []
        self._open: Open | None = None
        self._finish = ""

    def accepted(self) -> bytes:
        """The response, in progress."""
        response = self._response("in_progress")
        return b"".join(
            self._event(f"response.{name}", response=response)
            for name in ("created", "in_progress")
        )

    def part(self, run: Run, part: Part, tally: Tally) -> bytes:
        """The events of a part's deltas; with a finish, the last item's end."""
        logprobs = chat_logprobs(self._tokens, part.logprobs)["content"] if part.logprobs else []
        events = []
        for delta in part.deltas:
            mine = logprobs if delta.kind is Kind.CONTENT else []
            events += self._delta(delta, mine)
            logprobs = [] if mine else logprobs
        if part.finish:
            self._finish = part.finish
            if self._open is not None and self._open.kind == "message":
                self._open.logprobs += logprobs  # of tokens that had no text
            events += self._close("incomplete" if part.finish in _INCOMPLETE else "completed")
        return b"".join(events)

    def end(self, tallies: Sequence[Tally]) -> bytes:
        """The response as it turned out."""
        response = self._done(tallies)
        return self._event(f"response.{response['status']}", response=response)

    def whole(self, wholes: Sequence[Part], tallies: Sequence[Tally]) -> bytes:
        """The response."""
        for piece in wholes[0].pieces:
            self.part(self.job.runs[0], piece, tallies[0])
        return orjson.dumps(self._done(tallies))

    def error_event(self, error: RequestError) -> bytes:
        """The response, failed."""
        failure = {"code": "server_error", "message": str(error)}
        response = self._response("failed", error=failure)
        return self._event("response.failed", response=response)

    def _done(self, tallies: Sequence[Tally]) -> Dump:
        (tally,) = tallies
        reason = _INCOMPLETE.get(self._finish)
        response = self._response(
            "incomplete" if reason else "completed",
            incomplete_details={"reason": reason} if reason else None,
            completed_at=None if reason else int(time.time()),
            usage=_usage(self.job.runs[0], tally),
        )
        self._keep(response)
        return response

    def _response(self, status: str, **more: Any) -> Dump:
        return {
            "id": self.job.id,
            "object": "response",
            "created_at": self.job.created,
            "status": status,
            "model": self.job.model,
            "output": list(self._output),
            "error": None,
            "incomplete_details": None,
            "completed_at": None,
            "usage": None,
            **self._said,
            **more,
        }

    def _event(self, kind: str, **members: Any) -> bytes:
        body = orjson.dumps({"type": kind, "sequence_number": self._count, **members})
        self._count += 1
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), body)

    def _delta(self, delta: Delta, logprobs: list[Any]) -> list[bytes]:
        if delta.kind is Kind.END:
            return self._close("completed")
        if delta.kind is Kind.CALL:
            return self._start("function_call", self._names.get(delta.text, {"name": delta.text}))
        kind = {Kind.CONTENT: "message", Kind.REASONING: self._reasoning}.get(delta.kind)
        events = []
        if kind is not None and (self._open is None or self._open.kind != kind):
            events = self._start(kind, {})
        assert self._open is not None, "arguments follow their call"
        self._open.texts.append(delta.text)
        self._open.logprobs += logprobs
        more = {"logprobs": logprobs} if kind == "message" else {}
        return [
            *events,
            self._tell(f"{_SHAPES[self._open.kind].text}.delta", delta=delta.text, **more),
        ]

    def _start(self, kind: str, call: Mapping[str, Any]) -> list[bytes]:
        """Open an item, ending the one before."""
        events, number = self._close("completed"), len(self._output)
        name = f"{self.job.id.partition('_')[2]}{number:02x}"
        self._open = item = Open(kind, f"{_SHAPES[kind].prefix}_{name}", number)
        if kind == "function_call":
            item.call = {"call_id": f"call_{name}", **call}
        told = item.item("in_progress", False)
        events.append(self._event("response.output_item.added", output_index=number, item=told))
        if part := _SHAPES[kind].part:
            events.append(self._tell(f"{part}.added", part=item.part("")))
        return events

    def _close(self, status: str) -> list[bytes]:
        """End the open item, if there is one."""
        item, self._open = self._open, self._open
        if item is None:
            return []
        shape, text = _SHAPES[item.kind], "".join(item.texts)
        done: Dump = {shape.value: text}
        done |= {"logprobs": item.logprobs} if item.kind == "message" else {}
        done |= {"name": item.call["name"]} if item.kind == "function_call" else {}
        events = [self._tell(f"{shape.text}.done", **done)]
        if shape.part:
            events.append(self._tell(f"{shape.part}.done", part=item.part(text)))
        told = item.item(status, self._seal)
        self._output.append(told)
        self._open = None
        events.append(self._event("response.output_item.done", output_index=item.index, item=told))
        return events

    def _tell(self, kind: str, **members: Any) -> bytes:
        """An event of the open item."""
        assert self._open is not None
        where: Dump = {"item_id": self._open.id, "output_index": self._open.index}
        if at := _SHAPES[self._open.kind].at:
            where[at] = 0
        return self._event(kind, **where, **members)


def _usage(run: Run, tally: Tally) -> Dump:
    """The usage object. What was read and not reused is in the cache, where that is in use."""
    return {
        "input_tokens": tally.prompt,
        "input_tokens_details": {
            "cached_tokens": tally.cached,
            "cache_write_tokens": tally.prompt - tally.cached if run.request.cached else 0,
        },
        "output_tokens": tally.completion,
        "output_tokens_details": {"reasoning_tokens": tally.reasoning},
        "total_tokens": tally.prompt + tally.completion,
        **({"strata": experts.stats([tally.usage])} if run.stats and tally.usage else {}),
    }
