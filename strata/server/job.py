"""From a validated body to what the engine is asked: a Job of one or more Runs.

Pure functions. Knows sampling, stops, limits and the context; not how a prompt was made
(chat.py, completions.py) nor how an answer looks.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from strata.server.errors import Refusal
from strata.server.schema import Common
from strata.server.service import Service
from strata.types import Request, Sampling

_SEEDS = 2**64


@dataclass(frozen=True, slots=True)
class Prompt:
    """Tokens to read, and the places in them worth remembering."""

    tokens: tuple[int, ...]
    anchors: tuple[int, ...] = ()
    stable_len: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """One choice: prompt number `prompt`, answered under `index`. `stop` are strings."""

    index: int
    prompt: int
    request: Request
    stop: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """One HTTP request's runs and how they are told."""

    id: str
    created: int
    model: str
    runs: tuple[Run, ...]
    stream: bool
    include_usage: bool
    continuous_usage: bool
    token_ids: bool


@dataclass(frozen=True, slots=True)
class Wish:
    """What the two generating routes name differently. `max_tokens` None: all that fits."""

    kind: str  # the id's prefix
    field: str  # where the prompt is, for errors
    max_tokens: int | None
    logprobs: int | None = None
    prompt_logprobs: int | None = None


def make_job(
    service: Service, body: Common, prompts: Sequence[Prompt], wish: Wish, caller: str
) -> Job:
    """The job for `prompts`, n choices each; `caller` names the API key. Raises RequestError."""
    model = _model(service, body.model)
    n = body.n or 1
    count, most = n * len(prompts), service.limits.runs
    if count > most:
        raise Refusal(f"n x prompts is {count}; at most {most} are allowed", field="n")
    job_id = f"{wish.kind}-{secrets.token_hex(12)}"
    common = _common(service, body, wish, caller)
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    runs: list[Run] = []
    for number, prompt in enumerate(prompts):
        room = _room(service, prompt.tokens, wish.field)
        for choice in range(n):
            request = replace(
                common,
                id=job_id if count == 1 else f"{job_id}-{len(runs)}",
                tokens=prompt.tokens,
                anchors=prompt.anchors,
                stable_len=prompt.stable_len,
                max_tokens=room if wish.max_tokens is None else min(wish.max_tokens, room),
                sampling=_seeded(common.sampling, choice),
            )
            runs.append(Run(len(runs), number, request, stops))
    options = body.stream_options
    return Job(
        id=job_id,
        created=int(time.time()),
        model=model,
        runs=tuple(runs),
        stream=bool(body.stream),
        include_usage=bool(options and options.include_usage),
        continuous_usage=bool(options and options.continuous_usage_stats),
        token_ids=bool(body.return_token_ids),
    )


def _common(service: Service, body: Common, wish: Wish, caller: str) -> Request:
    """What the requests of all runs share; id, prompt and limit are each run's own."""
    ends = frozenset(body.stop_token_ids or ())
    timeout = service.limits.timeout_s
    return Request(
        id="",
        tokens=(),
        max_tokens=0,
        sampling=_sampling(service, body, wish),
        stop_token_ids=ends if body.ignore_eos else ends | service.tokenizer.end_ids,
        namespace=_namespace(caller, body.cache_salt),
        cached=body.cache_prompt is not False,
        deadline=None if timeout is None else time.monotonic() + timeout,
    )


def check_tokens(tokens: Sequence[int], vocab_size: int, field: str) -> None:
    """Raises a 400 that names the first id which the vocabulary does not have."""
    for i, token in enumerate(tokens):
        if not 0 <= token < vocab_size:
            raise Refusal(
                f"{field}.{i}: {token} is no token id; this model has 0 to {vocab_size - 1}",
                field=f"{field}.{i}",
            )


def _model(service: Service, name: str | None) -> str:
    """The name to answer under: the one that was asked for."""
    facts = service.model
    known = (facts.id, *facts.aliases)
    if name is None or name in known:
        return name or facts.id
    raise Refusal(
        f"the model {name[:100]!r} is not served here; available: {', '.join(known)}",
        status=404,
        field="model",
        code="model_not_found",
    )


def _room(service: Service, tokens: tuple[int, ...], field: str) -> int:
    """How many tokens fit behind the prompt: what max_tokens is cut to."""
    room = service.model.context - len(tokens)
    if room < 1:
        raise Refusal(
            f"the prompt has {len(tokens)} tokens, but the context holds {service.model.context}, "
            "of which at least one must remain for the answer",
            field=field,
            code="context_length_exceeded",
        )
    return room


def _namespace(caller: str, salt: str | None) -> str:
    """Whose prefixes are shared. A key's name is hex, so the line break is unambiguous."""
    return f"{caller}\n{salt}" if salt else caller


def _sampling(service: Service, body: Common, wish: Wish) -> Sampling:
    """The model's defaults, overlaid with what the body gives."""
    base = service.defaults

    def given(name: str) -> float:
        value = getattr(body, name)
        return float(getattr(base, name) if value is None else value)

    top_k = base.top_k if body.top_k is None else max(0, body.top_k)
    return Sampling(
        temperature=given("temperature"),
        top_p=given("top_p"),
        top_k=top_k,
        min_p=given("min_p"),
        presence_penalty=given("presence_penalty"),
        frequency_penalty=given("frequency_penalty"),
        repetition_penalty=given("repetition_penalty"),
        logit_bias=_bias(body.logit_bias, service.tokenizer.vocab_size),
        seed=None if body.seed in (None, -1) else body.seed,
        logprobs=wish.logprobs,
        prompt_logprobs=wish.prompt_logprobs,
        min_tokens=body.min_tokens or 0,
    )


def _seeded(sampling: Sampling, choice: int) -> Sampling:
    """Choices of one prompt must differ, and still be repeatable."""
    if sampling.seed is None:
        return sampling
    return replace(sampling, seed=(sampling.seed + choice) % _SEEDS)


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
