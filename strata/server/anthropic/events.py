"""A job's answer as Anthropic's Messages API writes it: a message, or the events that make one.

An answer's kinds of text are blocks with a number each; a block ends where another kind begins.
A signature says whose thoughts these are; nobody checks this one.

Usage adds up: input, cache_read and cache_creation are the whole prompt. Read are the tokens that
came from the cache; created, those computed now that the next turn of the talk finds there.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import orjson
from pydantic_core import from_json

from strata.server import experts
from strata.server.anthropic.voice import AnthropicVoice, event
from strata.server.form import Block, Form, blocks
from strata.server.generate import Part, Tally
from strata.server.job import Job, Run
from strata.text.delta import Delta, Kind

SIGNATURE = "c3RyYXRh"
# A finish that is not here is told as it is.
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_STARTS: dict[Kind, dict[str, Any]] = {
    Kind.CONTENT: {"type": "text", "text": ""},
    Kind.REASONING: {"type": "thinking", "thinking": "", "signature": ""},
}
_DELTAS = {
    Kind.CONTENT: b'"delta":{"type":"text_delta","text":%s}',
    Kind.REASONING: b'"delta":{"type":"thinking_delta","thinking":%s}',
    Kind.ARGUMENTS: b'"delta":{"type":"input_json_delta","partial_json":%s}',
}


class MessageForm(AnthropicVoice, Form):
    """Writes one job, of one run, as a message. `context` is the model's, in tokens."""

    def __init__(self, job: Job, context: int) -> None:
        AnthropicVoice.__init__(self)
        Form.__init__(self, job)
        self._context = context
        self._index = -1
        self._open: Kind | None = None
        self._stop: dict[str, Any] = {}

    def begin(self, tallies: Sequence[Tally]) -> bytes:
        """The message without content, and what its prompt took."""
        message = self._message([], {"stop_reason": None, "stop_sequence": None}, tallies[0])
        return event("message_start", b',"message":' + orjson.dumps(message))

    def part(self, run: Run, part: Part, tally: Tally) -> bytes:
        """The events of what the part's text turned out to be."""
        events = b"".join([self._delta(delta) for delta in part.deltas])
        if part.finish is None:
            return events
        self._stop = self._stopped(part, tally)
        return events + self._close()

    def end(self, tallies: Sequence[Tally]) -> bytes:
        """Why the message ended, and what it took in all."""
        delta, usage = orjson.dumps(self._stop), orjson.dumps(self._usage(tallies[0]))
        return event("message_delta", b',"delta":%s,"usage":%s' % (delta, usage)) + event(
            "message_stop"
        )

    def whole(self, wholes: Sequence[Part], tallies: Sequence[Tally]) -> bytes:
        """The message."""
        (whole,), (tally,) = wholes, tallies
        told = (delta for delta in whole.deltas if delta.text or delta.kind is Kind.END)
        content = [_block(block) for block in blocks(told)]
        return orjson.dumps(self._message(content, self._stopped(whole, tally), tally))

    def _delta(self, delta: Delta) -> bytes:
        kind, events = delta.kind, b""
        if kind is Kind.END:
            return self._close()
        if kind is Kind.CALL:
            return self._start(kind, _call(delta.text, {}))
        if not delta.text:
            return b""
        if kind in _STARTS and kind is not self._open:
            events = self._start(kind, _STARTS[kind])
        return events + self._event("content_block_delta", _DELTAS[kind] % orjson.dumps(delta.text))

    def _start(self, kind: Kind, block: dict[str, Any]) -> bytes:
        """A block's start, behind the end of the one before."""
        events = self._close()
        self._open = kind
        self._index += 1
        start = b'"content_block":' + orjson.dumps(block)
        return events + self._event("content_block_start", start)

    def _close(self) -> bytes:
        """The end of the open block, where there is one."""
        was, self._open, events = self._open, None, b""
        if was is Kind.REASONING:
            signed = b'"delta":{"type":"signature_delta","signature":"%s"}' % SIGNATURE.encode()
            events = self._event("content_block_delta", signed)
        return events + self._event("content_block_stop") if was else b""

    def _event(self, kind: str, member: bytes = b"") -> bytes:
        return event(kind, b',"index":%d%s%s' % (self._index, b"," if member else b"", member))

    def _message(
        self, content: list[dict[str, Any]], stop: dict[str, Any], tally: Tally
    ) -> dict[str, Any]:
        return {
            "id": self.job.id,
            "type": "message",
            "role": "assistant",
            "model": self.job.model,
            "content": content,
            **stop,
            "usage": self._usage(tally),
        }

    def _stopped(self, part: Part, tally: Tally) -> dict[str, Any]:
        """Why the answer ended, of its last part."""
        reason = _REASONS.get(part.finish or "", part.finish)
        if reason == "max_tokens" and tally.prompt + tally.completion >= self._context:
            reason = "model_context_window_exceeded"
        if reason == "end_turn" and part.stop is not None:
            return {"stop_reason": "stop_sequence", "stop_sequence": part.stop}
        return {"stop_reason": reason, "stop_sequence": None}

    def _usage(self, tally: Tally) -> dict[str, Any]:
        (run,) = self.job.runs
        stable = run.request.stable_len if run.request.cached else 0
        created = max(0, stable - tally.cached)
        stats = run.stats and tally.usage
        return {
            "input_tokens": tally.prompt - tally.cached - created,
            "cache_creation_input_tokens": created,
            "cache_read_input_tokens": tally.cached,
            "output_tokens": tally.completion,
            "output_tokens_details": {"thinking_tokens": tally.reasoning},
            **({"strata": experts.stats([stats])} if stats else {}),
        }


def _block(block: Block) -> dict[str, Any]:
    """A block of a whole answer. Of arguments that were cut off, those that had come."""
    if block.kind is Kind.CALL:
        arguments = from_json(block.text or "{}", allow_partial="trailing-strings")
        return _call(block.name, arguments)
    if block.kind is Kind.REASONING:
        return {"type": "thinking", "thinking": block.text, "signature": SIGNATURE}
    return {"type": "text", "text": block.text}


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A call, under a name that its result will come back with."""
    call = f"toolu_{secrets.token_hex(12)}"
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}
