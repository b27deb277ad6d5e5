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
    """One choice: prompt number `prompt`, answered under `index`. `stop` are strings.

    `silent` runs read their prompt only: the one token that the engine makes is dropped.
    """

    index: int
    prompt: int
    request: Request
    stop: tuple[str, ...]
    silent: bool = False


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
    """What the two generating routes name differently. `max_tokens` None: as fits."""

    kind: str  # the id's prefix
    field: str  # where the prompt is, for errors
    max_tokens: int | None
    logprobs: int | None = None
    prompt_logprobs: int | None = None


def make_job(
    service: Service, body: Common, prompts: Sequence[Prompt], wish: Wish, caller: str
) -> Job:
    """The job for `prompts`, n choices each. `caller` is the API key's namespace.

    Raises RequestError: unknown model, prompt beyond the context, too many runs, …
    """
    model = _model(service, body.model)
    n = body.n or 1
    limits = service.limits
    if n * len(prompts) > limits.runs:
        raise Refusal(
            f"n x prompts is {n * len(prompts)}; at most {limits.runs} are allowed", field="n"
        )
    sampling = _sampling(service, body, wish)
    ends = frozenset(body.stop_token_ids or ())
    if not body.ignore_eos:
        ends |= service.tokenizer.end_ids
    job_id = f"{wish.kind}-{secrets.token_hex(12)}"
    deadline = time.monotonic() + limits.timeout_s if limits.timeout_s else None
    runs: list[Run] = []
    for number, prompt in enumerate(prompts):
        room = _room(service, prompt.tokens, wish.field)
        for _ in range(n):
            index = len(runs)
            request = Request(
                id=job_id if n * len(prompts) == 1 else f"{job_id}-{index}",
                tokens=prompt.tokens,
                max_tokens=room if wish.max_tokens is None else max(1, min(wish.max_tokens, room)),
                sampling=_seeded(sampling, index % n),
                stop_token_ids=ends,
                anchors=prompt.anchors,
                stable_len=prompt.stable_len,
                namespace=_namespace(caller, body.cache_salt),
                cached=body.cache_prompt is not False,
                deadline=deadline,
            )
            runs.append(Run(index, number, request, _stops(body), wish.max_tokens == 0))
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


def _stops(body: Common) -> tuple[str, ...]:
    return (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())


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
