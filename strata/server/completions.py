"""POST /v1/completions: text or token prompts, one or many, with echo and logprobs.

A text prompt is raw: special-token text in it means the special token. A prompt's
number is its place in the list; choice i of prompt p has the index p * n + i.
"""

from __future__ import annotations

from typing import Any

import orjson

from strata.server.errors import Refusal
from strata.server.generate import Part, Tally
from strata.server.job import Job, Output, Run, check_tokens, make_job
from strata.server.logprobs import CompletionLogprobs
from strata.server.openai import CompletionsForm
from strata.server.output import format_guide
from strata.server.schema import CompletionBody
from strata.server.service import Service
from strata.server.talk import format_of
from strata.text.template import Prompt


def completion_job(service: Service, body: CompletionBody, caller: str) -> Job:
    """The job that a completion body asks for. Tokenises: slow for long prompts."""
    if body.suffix:
        raise Refusal("suffix: inserting text is not supported", field="suffix")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise Refusal("best_of: only the value of n is supported; use n", field="best_of")
    return make_job(
        service,
        body,
        _prompts(service, body.prompt),
        caller,
        kind="cmpl-",
        field="prompt",
        max_tokens=body.max_tokens,
        logprobs=body.logprobs,
        prompt_logprobs=body.logprobs if body.echo else None,
        output=Output(guide=format_guide(service, format_of(body))),
    )


def _prompts(service: Service, given: str | list[Any]) -> list[Prompt]:
    if not given and isinstance(given, list):
        raise Refusal("prompt: must not be an empty list", field="prompt")
    if isinstance(given, str) or isinstance(given[0], int):
        return [_prompt(service, given, "prompt")]
    if len(given) > service.limits.runs:
        raise Refusal(f"prompt: at most {service.limits.runs} prompts", field="prompt")
    return [_prompt(service, item, f"prompt.{i}") for i, item in enumerate(given)]


def _prompt(service: Service, given: str | list[int], field: str) -> Prompt:
    tokenizer = service.tokenizer
    if isinstance(given, str):
        tokens = tokenizer.encode(given, special=True)
        if not tokens and tokenizer.bos is not None:
            tokens = [tokenizer.bos]
    else:
        tokens = given
        check_tokens(tokens, tokenizer.vocab_size, field)
    if not tokens:
        raise Refusal(f"{field}: must have at least one token", field=field)
    return Prompt(tuple(tokens), (), 0)


class CompletionForm(CompletionsForm):
    """Writes one job as text completions; with `echo` the prompt stands before the answer."""

    kinds = ("text_completion", "text_completion")

    def __init__(self, job: Job, service: Service, body: CompletionBody) -> None:
        super().__init__(job, service.names, body.logprobs is not None)
        self._tokenizer = service.tokenizer
        self._echo = bool(body.echo)
        self._prompt = body.prompt if isinstance(body.prompt, str) else None
        self._offsets = [CompletionLogprobs(service.names) for _ in job.runs]

    def news(self, run: Run, part: Part, first: bool) -> list[bytes]:
        """The text alone."""
        text = self._text(run, part, first)
        return [b'"text":' + orjson.dumps(text)] if text else []

    def nothing(self, first: bool) -> bytes:
        """No text."""
        return b'"text":""'

    def content(self, run: Run, whole: Part) -> dict[str, Any]:
        """The text alone."""
        return {"text": self._text(run, whole, True)}

    def _text(self, run: Run, part: Part, first: bool) -> str:
        """The part's text, behind the prompt's with `echo`."""
        if not (self._echo and first):
            return part.text
        if self._prompt is not None:
            return self._prompt + part.text
        return self._tokenizer.decode(list(run.request.tokens)) + part.text

    def told(self, run: Run, part: Part, tally: Tally, first: bool) -> dict[str, Any] | None:
        """The part's log probabilities, behind the prompt's with `echo`."""
        if not self.logprobs:
            return None
        echo = self._echo and first
        return self._offsets[run.index].take(
            [*(run.request.tokens if echo else ()), *part.tokens],
            [*(tally.prompt_logprobs if echo else ()), *part.logprobs],
        )

    def choice(self, run: Run, whole: Part, tally: Tally) -> dict[str, Any]:
        """One choice, with its prompt's tokens where tokens are wanted."""
        prompt = {"prompt_token_ids": list(run.request.tokens)} if self.job.token_ids else {}
        return super().choice(run, whole, tally) | prompt
