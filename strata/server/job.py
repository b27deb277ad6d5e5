"""From a validated body to what the engine is asked: a Job of one or more Runs.

Pure functions. Knows sampling, stops, limits and the context; not how a prompt was made
(chat.py, completions.py) nor how an answer looks.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from strata.server.errors import Refusal
from strata.server.schema import Common, StreamOptions
from strata.server.service import Service
from strata.text.segment import Segmenter
from strata.text.template import Prompt
from strata.types import Guide, Request, Sampling, Thinking

_PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty")
_OVERLAID = ("temperature", "top_p", "min_p", *_PENALTIES)


@dataclass(frozen=True, slots=True)
class Output:
    """What an answer is held to, and what its text is split into.

    `segmenter` makes what splits its text into deltas, told where the tokens `markers` are; None
    where text is all there is. `one_call`: it ends with its first call's end. `guide` makes the
    constraint of one answer, `thinking` is how it reasons before.
    """

    segmenter: Callable[[], Segmenter] | None = None
    markers: frozenset[str] = frozenset()
    one_call: bool = False
    guide: Callable[[], Guide] | None = None
    thinking: Thinking | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One choice: prompt number `prompt`, answered under `index`. `stop` are strings. `stats`:
    what it cost is wanted beyond tokens.
    """

    index: int
    prompt: int
    request: Request
    stop: tuple[str, ...]
    stats: bool = False
    output: Output = Output()


@dataclass(frozen=True, slots=True)
class Job:
    """One HTTP request's runs and how they are told. `timings`: in every chunk."""

    id: str
    created: int
    model: str
    runs: tuple[Run, ...]
    stream: bool
    options: StreamOptions
    token_ids: bool
    timings: bool = False

    def traced(self, parent: str) -> Job:
        """As a part of the caller's trace; `parent` as in W3C's header of that name."""
        runs = [replace(run, request=replace(run.request, trace=parent)) for run in self.runs]
        return replace(self, runs=tuple(runs))


def make_job(
    service: Service,
    body: Common,
    prompts: Sequence[Prompt],
    caller: str,
    *,
    kind: str,  # the id's beginning
    field: str,  # where the prompt is, for errors
    max_tokens: int | None,  # None: all that fits
    logprobs: int | None,
    prompt_logprobs: int | None = None,
    output: Output = Output(),
) -> Job:
    """The job for `prompts`, n choices each; `caller` names the API key. Raises RequestError."""
    model, n = service.named(body.model), body.n or 1
    count, most = n * len(prompts), service.limits.runs
    if count > most:
        raise Refusal(f"n x prompts is {count}; at most {most} are allowed", field="n")
    job_id = f"{kind}{secrets.token_hex(12)}"
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    common = replace(
        _common(service, body, caller, logprobs, prompt_logprobs),
        # What ends an answer from here has no last account but its last token's.
        timed=bool(stops or output.one_call or body.timings_per_token),
        guide=output.guide,
        thinking=output.thinking,
        progress=bool(body.stream and body.return_progress),
    )
    runs: list[Run] = []
    for number, prompt in enumerate(prompts):
        room = _room(service, prompt, field)
        for choice in range(n):
            request = replace(
                common,
                id=job_id if count == 1 else f"{job_id}-{len(runs)}",
                tokens=prompt.tokens,
                anchors=prompt.anchors,
                stable_len=prompt.stable_len,
                max_tokens=room if max_tokens is None else min(max_tokens, room),
                sampling=_seeded(common.sampling, choice),
            )
            stats = bool(body.strata_stats)
            runs.append(Run(len(runs), number, request, stops, stats, output))
    options = body.stream_options or StreamOptions()
    stream, token_ids = bool(body.stream), bool(body.return_token_ids)
    timings, now = bool(body.timings_per_token), int(time.time())
    return Job(job_id, now, model, tuple(runs), stream, options, token_ids, timings)


def _room(service: Service, prompt: Prompt, field: str) -> int:
    """How many tokens fit behind the prompt: what max_tokens is cut to."""
    count, context = len(prompt.tokens), service.model.context
    if count < context:
        return context - count
    raise Refusal(
        f"the prompt has {count} tokens, but the context holds {context}, "
        "of which at least one must remain for the answer",
        field=field,
        code="context_length_exceeded",
    )


def _seeded(sampling: Sampling, choice: int) -> Sampling:
    """Choices of one prompt must differ, and still be repeatable."""
    if sampling.seed is None:
        return sampling
    return replace(sampling, seed=(sampling.seed + choice) % 2**64)


def _common(
    service: Service,
    body: Common,
    caller: str,
    logprobs: int | None,
    prompt_logprobs: int | None,
) -> Request:
    """What the requests of all runs share; id, prompt and limit are each run's own."""
    base, timeout = service.defaults, service.limits.timeout_s
    given = {name: getattr(body, name) for name in _OVERLAID}
    sampling = replace(
        base,
        **{name: float(value) for name, value in given.items() if value is not None},
        top_k=base.top_k if body.top_k is None else max(0, body.top_k),
        logit_bias=_bias(body.logit_bias, service.tokenizer.vocab_size),
        seed=None if body.seed == -1 else body.seed,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        min_tokens=body.min_tokens or 0,
    )
    ends = frozenset(body.stop_token_ids or ())
    return Request(
        id="",
        tokens=(),
        max_tokens=0,
        sampling=sampling,
        stop_token_ids=ends if body.ignore_eos else ends | service.tokenizer.end_ids,
        namespace=namespace(caller, body.cache_salt),
        cached=body.cache_prompt is not False,
        deadline=None if timeout is None else time.monotonic() + timeout,
        # A benchmark wants its tokens, whatever they are.
        guard=body.repetition_guard is not False and not body.ignore_eos,
    )


def namespace(caller: str, salt: str | None) -> str:
    """Whose prefixes a request shares. A key's name is hex, so the line break is unambiguous."""
    return f"{caller}\n{salt}" if salt else caller


def check_tokens(tokens: Sequence[int], vocab_size: int, field: str) -> None:
    """Raises a 400 that names the first id which the vocabulary does not have."""
    for i, token in enumerate(tokens):
        if not 0 <= token < vocab_size:
            raise Refusal(
                f"{field}.{i}: {token} is no token id; this model has 0 to {vocab_size - 1}",
                field=f"{field}.{i}",
            )


def _bias(bias: dict[str, float] | None, vocab_size: int) -> tuple[tuple[int, float], ...]:
    pairs: dict[int, float] = {}
    for key, value in (bias or {}).items():
        token = int(key) if key.isascii() and key.isdigit() and len(key) < 11 else -1
        if not 0 <= token < vocab_size:
            raise Refusal(
                f"logit_bias: the key {key[:40]!r} is no token id; "
                f"this model has 0 to {vocab_size - 1}",
                field="logit_bias",
            )
        pairs[token] = float(value)
    return tuple(sorted(pairs.items()))
