"""The engine's settings and the limits that a request must respect.

Knows no files, no flags and no environment: whoever starts the engine fills
`EngineSettings` in. `Limits.admit` is the one place where a request is refused
or its `max_tokens` is cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from strata.types import ConfigError, Request, RequestError

# Prompt positions scored in one step: bounds the logits held at once (64 x vocabulary).
SCORE_CHUNK = 64


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How the engine shares its time. Counts in tokens unless said.

    `batch` rows run at once. `prefill_chunk` prompt tokens make a step while no
    row decodes, `mixed_chunk` while some do. `decode_share` is the part of their
    solo rate that decoding rows keep beside prompts. `max_queue` requests wait.
    """

    batch: int = 4
    prefill_chunk: int = 512
    mixed_chunk: int = 64
    decode_share: float = 0.25
    max_queue: int = 256

    def __post_init__(self) -> None:
        for name in ("batch", "prefill_chunk", "mixed_chunk"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if not 0.0 <= self.decode_share < 1.0:
            raise ConfigError(f"decode_share is {self.decode_share}; it must be in [0, 1)")
        if self.max_queue < 0:
            raise ConfigError(f"max_queue is {self.max_queue}; it must be 0 or more")


@dataclass(frozen=True, slots=True)
class Limits:
    """What fits. `context` tokens in the model, `room` tokens in the pages, `vocab` ids."""

    context: int
    room: int
    vocab: int

    def admit(self, request: Request) -> Request:
        """The request as it will run: `max_tokens` cut to what the context leaves.

        Prompt and answer together hold at most min(context, room) tokens. A
        prompt must leave place for one token of answer. Raises RequestError 400.
        """
        length = len(request.tokens)
        if length == 0:
            raise RequestError("the prompt holds no token", field="prompt")
        if length >= self.context:
            raise RequestError(
                f"the prompt holds {length} tokens and the context {self.context}: it must leave "
                "place for at least one token of answer",
                field="prompt",
            )
        if length >= self.room:
            raise RequestError(
                f"the prompt holds {length} tokens and the memory for them {self.room}: raise the "
                "cache size or shorten the prompt",
                field="prompt",
            )
        if min(request.tokens) < 0 or max(request.tokens) >= self.vocab:
            raise RequestError(f"token ids must be in 0..{self.vocab - 1}", field="prompt")
        if any(not 0 <= token < self.vocab for token, _ in request.sampling.logit_bias):
            raise RequestError(f"token ids must be in 0..{self.vocab - 1}", field="logit_bias")
        thinking = request.thinking
        if thinking is not None:
            ids = (*thinking.close, *(() if thinking.opens is None else (thinking.opens,)))
            if not thinking.close or not all(0 <= token < self.vocab for token in ids):
                raise RequestError(
                    f"reasoning is closed by one or more tokens in 0..{self.vocab - 1}",
                    field="thinking",
                )
        if request.max_tokens < 0:
            raise RequestError("max_tokens must be 0 or more", field="max_tokens")
        rest = min(self.context, self.room) - length
        if request.max_tokens <= rest:
            return request
        return replace(request, max_tokens=rest)
