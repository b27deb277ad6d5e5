"""POST /v1/chat/completions: a body to a Job, and the job's answer as chat completions.

The role travels in the delta of the first token. A chunk's bytes are put together from
pieces encoded once a stream; only the text is encoded for each token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from strata.server.errors import Refusal
from strata.server.generate import Part, Tally
from strata.server.job import Job, Run, Wish, make_job
from strata.server.logprobs import TokenNames, chat_logprobs
from strata.server.prompt import render_chat
from strata.server.schema import ChatBody
from strata.server.service import Service

_PLAIN_END = b'},"logprobs":null,"finish_reason":null}]}\n\n'


def chat_job(service: Service, body: ChatBody, caller: str) -> Job:
    """The job that a chat body asks for. Renders and tokenises: slow for long prompts."""
    _refuse_unsupported(body)
    prompt = render_chat(
        service,
        body.messages,
        tools=None if body.tool_choice == "none" else body.tools,
        variables=body.chat_template_kwargs,
        generate=body.add_generation_prompt,
        go_on=body.continue_final_message,
    )
    if body.top_logprobs is not None and not body.logprobs:
        raise Refusal("top_logprobs: needs logprobs to be true", field="top_logprobs")
    limit = body.max_completion_tokens
    wish = Wish(
        kind="chatcmpl",
        field="messages",
        max_tokens=body.max_tokens if limit is None else limit,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )
    return make_job(service, body, [prompt], wish, caller)


def _refuse_unsupported(body: ChatBody) -> None:
    """What would change the answer, and is not there, is refused rather than ignored."""
    if body.response_format is not None and body.response_format.type != "text":
        raise Refusal(
            "response_format: only {'type': 'text'} is supported", field="response_format"
        )
    if body.tool_choice not in (None, "auto", "none"):
        raise Refusal("tool_choice: only 'auto' and 'none' are supported", field="tool_choice")


class ChatForm:
    """Writes one job as chat.completion or chat.completion.chunk objects."""

    def __init__(self, job: Job, names: TokenNames, logprobs: bool) -> None:
        self._job = job
        self._names = names
        self._logprobs = logprobs
        self._plain = not (logprobs or job.token_ids)
        self._head = b'data: {"id":%s,"object":"chat.completion.chunk","created":%d,"model":%s' % (
            orjson.dumps(job.id),
            job.created,
            orjson.dumps(job.model),
        )
        starts = [b'%s,"choices":[{"index":%d,"delta":{' % (self._head, r.index) for r in job.runs]
        self._first = [start + b'"role":"assistant","content":' for start in starts]
        self._next = [start + b'"content":' for start in starts]
        self._last = [start[:-1] for start in starts]
        self._begun = [False] * len(job.runs)

    def chunk(self, run: Run, part: Part, tally: Tally, usage: bytes) -> bytes:
        """The events of one part: its text, then its finish reason in a chunk of its own."""
        index = run.index
        if part.finish is None and self._plain and not usage:
            if self._begun[index]:
                return self._next[index] + orjson.dumps(part.text) + _PLAIN_END
            self._begun[index] = True
            return self._first[index] + orjson.dumps(part.text) + _PLAIN_END
        events = b""
        rest = part
        if part.text or not self._begun[index]:
            head = self._next[index] if self._begun[index] else self._first[index]
            self._begun[index] = True
            # An answer without text begins and ends in one chunk.
            finish = part.finish if not part.text else None
            events = head + orjson.dumps(part.text) + b"}" + self._tail(part, finish, usage)
            if part.finish is None or finish is not None:
                return events
            rest = Part("", [], [], part.finish)
        return events + self._last[index] + b"{}" + self._tail(rest, part.finish, usage)

    def usage_chunk(self, usage: bytes) -> bytes:
        """The usage alone: no choices."""
        return b'%s,"choices":[],"usage":%s}\n\n' % (self._head, usage)

    def whole(self, outcomes: Sequence[tuple[Run, Part, Tally]], usage: bytes) -> bytes:
        """A chat.completion object."""
        body = {
            "id": self._job.id,
            "object": "chat.completion",
            "created": self._job.created,
            "model": self._job.model,
            "choices": [self._choice(run, part) for run, part, _ in outcomes],
            "usage": orjson.Fragment(usage),
        }
        return orjson.dumps(body)

    def _choice(self, run: Run, part: Part) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": run.index,
            "message": {"role": "assistant", "content": part.text, "refusal": None},
            "logprobs": chat_logprobs(self._names, part.logprobs) if self._logprobs else None,
            "finish_reason": part.finish,
        }
        if self._job.token_ids:
            choice["token_ids"] = part.tokens
        return choice

    def _tail(self, part: Part, finish: str | None, usage: bytes) -> bytes:
        """What follows a chunk's delta."""
        logprobs = b"null"
        if self._logprobs and part.logprobs:
            logprobs = orjson.dumps(chat_logprobs(self._names, part.logprobs))
        tail = b',"logprobs":%s,"finish_reason":%s' % (logprobs, orjson.dumps(finish))
        if self._job.token_ids:
            tail += b',"token_ids":' + orjson.dumps(part.tokens)
        return tail + (b'}],"usage":%s}\n\n' % usage if usage else b"}]}\n\n")
