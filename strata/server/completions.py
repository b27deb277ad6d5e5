"""POST /v1/completions: text or token prompts, one or many, with echo and logprobs.

A text prompt is raw: special-token text in it means the special token. A prompt's
number is its place in the list; choice i of prompt p has the index p * n + i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from strata.server.errors import Refusal
from strata.server.generate import Part, Tally
from strata.server.job import Job, Prompt, Run, Wish, check_tokens, make_job
from strata.server.logprobs import CompletionLogprobs, TokenNames
from strata.server.schema import CompletionBody
from strata.server.service import Service
from strata.types import Logprob

_PLAIN_END = b',"logprobs":null,"finish_reason":null}]}\n\n'


def completion_job(service: Service, body: CompletionBody, caller: str) -> Job:
    """The job that a completion body asks for. Tokenises: slow for long prompts."""
    if body.suffix:
        raise Refusal("suffix: inserting text is not supported", field="suffix")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise Refusal("best_of: only the value of n is supported; use n", field="best_of")
    prompts = [Prompt(tokens) for tokens in _prompts(service, body)]
    wish = Wish(
        kind="cmpl",
        field="prompt",
        max_tokens=body.max_tokens,
        logprobs=body.logprobs,
        prompt_logprobs=body.logprobs if body.echo else None,
    )
    return make_job(service, body, prompts, wish, caller)


def _prompts(service: Service, body: CompletionBody) -> list[tuple[int, ...]]:
    given = body.prompt
    if isinstance(given, str):
        return [_encoded(service, given)]
    if not given:
        raise Refusal("prompt: must not be an empty list", field="prompt")
    if isinstance(given[0], int):
        return [_checked(service, given, "prompt")]
    if len(given) > service.limits.runs:
        raise Refusal(f"prompt: at most {service.limits.runs} prompts", field="prompt")
    return [
        _encoded(service, item) if isinstance(item, str) else _checked(service, item, f"prompt.{i}")
        for i, item in enumerate(given)
    ]


def _encoded(service: Service, text: str) -> tuple[int, ...]:
    tokens = tuple(service.tokenizer.encode(text, special=True))
    if tokens:
        return tokens
    if service.tokenizer.bos is None:
        raise Refusal("prompt: must have at least one token", field="prompt")
    return (service.tokenizer.bos,)


def _checked(service: Service, tokens: Any, field: str) -> tuple[int, ...]:
    if not tokens:
        raise Refusal(f"{field}: must have at least one token", field=field)
    check_tokens(tokens, service.tokenizer.vocab_size, field)
    return tuple(tokens)


class CompletionForm:
    """Writes one job as text_completion objects, streamed or whole."""

    def __init__(self, job: Job, service: Service, names: TokenNames, body: CompletionBody) -> None:
        self._job = job
        self._tokenizer = service.tokenizer
        self._echo = bool(body.echo)
        self._prompt = body.prompt if isinstance(body.prompt, str) else None
        self._logprobs = body.logprobs is not None
        self._plain = not (self._logprobs or job.token_ids)
        self._offsets = [CompletionLogprobs(names) for _ in job.runs]
        self._begun = [False] * len(job.runs)
        self._head = b'data: {"id":%s,"object":"text_completion","created":%d,"model":%s' % (
            orjson.dumps(job.id),
            job.created,
            orjson.dumps(job.model),
        )
        self._starts = [
            b'%s,"choices":[{"index":%d,"text":' % (self._head, run.index) for run in job.runs
        ]

    def chunk(self, run: Run, part: Part, tally: Tally, usage: bytes) -> bytes:
        """The events of one part: its text, then its finish reason in a chunk of its own."""
        index = run.index
        begun = self._begun[index]
        self._begun[index] = True
        echo = self._echo and not begun
        if self._plain and part.finish is None and not usage and not echo:
            return self._starts[index] + orjson.dumps(part.text) + _PLAIN_END
        text = self._echoed(run) + part.text if echo else part.text
        logprobs = self._told(run, part, tally, echo)
        tokens = part.tokens
        events = b""
        if text:
            events = self._event(index, text, logprobs, tokens, None, usage)
            logprobs, tokens = None, []
        if part.finish is not None:
            events += self._event(index, "", logprobs, tokens, part.finish, usage)
        return events

    def usage_chunk(self, usage: bytes) -> bytes:
        """The usage alone: no choices."""
        return b'%s,"choices":[],"usage":%s}\n\n' % (self._head, usage)

    def whole(self, outcomes: Sequence[tuple[Run, Part, Tally]], usage: bytes) -> bytes:
        """A text_completion object."""
        body = {
            "id": self._job.id,
            "object": "text_completion",
            "created": self._job.created,
            "model": self._job.model,
            "choices": [self._choice(*outcome) for outcome in outcomes],
            "usage": orjson.Fragment(usage),
        }
        return orjson.dumps(body)

    def _choice(self, run: Run, part: Part, tally: Tally) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": run.index,
            "text": self._echoed(run) + part.text if self._echo else part.text,
            "logprobs": self._told(run, part, tally, self._echo),
            "finish_reason": part.finish,
        }
        if self._job.token_ids:
            choice["token_ids"] = part.tokens
            choice["prompt_token_ids"] = list(run.request.tokens)
        return choice

    def _echoed(self, run: Run) -> str:
        """The prompt's text, to stand in front of the answer's."""
        if self._prompt is not None:
            return self._prompt
        return self._tokenizer.decode(list(run.request.tokens))

    def _told(self, run: Run, part: Part, tally: Tally, echo: bool) -> dict[str, Any] | None:
        """The part's log probabilities, behind the prompt's with `echo`."""
        if not self._logprobs:
            return None
        entries: list[Logprob | None] = [*part.logprobs]
        tokens = part.tokens
        if echo:
            entries = [*tally.prompt_logprobs, *entries]
            tokens = [*run.request.tokens, *tokens]
        return self._offsets[run.index].take(tokens, entries)

    def _event(
        self,
        index: int,
        text: str,
        logprobs: dict[str, Any] | None,
        tokens: list[int],
        finish: str | None,
        usage: bytes,
    ) -> bytes:
        event = self._starts[index] + orjson.dumps(text)
        event += b',"logprobs":%s,"finish_reason":%s' % (
            orjson.dumps(logprobs),
            orjson.dumps(finish),
        )
        if self._job.token_ids:
            event += b',"token_ids":' + orjson.dumps(tokens)
        return event + (b'}],"usage":%s}\n\n' % usage if usage else b"}]}\n\n")
