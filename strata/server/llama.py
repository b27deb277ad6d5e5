"""What llama.cpp's server tells under names of its own, for the clients that read those.

Names and shapes: tools/server/README.md of llama.cpp. Every value is this server's own;
what has no counterpart here is left out. Knows no content: prompts are not shown.
"""

from __future__ import annotations

from typing import Any

import orjson

import strata
from strata.server.service import Service
from strata.types import ProgressEvent, RowState, Sampling, Usage


def timings(usage: Usage) -> dict[str, Any]:
    """What a request took, measured by the engine. Null: too little was measured for a rate.

    The time of the first token is the prompt's, so rates of the prediction are of the others.
    """
    read, later = usage.prompt_tokens - usage.cached_tokens, usage.completion_tokens - 1
    return {
        "cache_n": usage.cached_tokens,
        "prompt_n": read,
        "prompt_ms": usage.prefill_s * 1e3,
        "prompt_per_token_ms": _over(usage.prefill_s * 1e3, read),
        "prompt_per_second": _over(read, usage.prefill_s),
        "predicted_n": usage.completion_tokens,
        "predicted_ms": usage.decode_s * 1e3,
        "predicted_per_token_ms": _over(usage.decode_s * 1e3, later),
        "predicted_per_second": _over(later, usage.decode_s),
    }


def _over(amount: float, whole: float) -> float | None:
    return amount / whole if amount > 0 and whole > 0 else None


def progress(event: ProgressEvent) -> dict[str, Any]:
    """`prompt_progress`: tokens that are there, cached ones included, and how long it took."""
    return {
        "total": event.total,
        "cache": event.cached,
        "processed": event.read,
        "time_ms": event.seconds * 1e3,
    }


def props(service: Service) -> bytes:
    """GET /props: what is served, and how by default."""
    tokenizer, template = service.tokenizer, service.template
    idle = {"id": 0, "id_task": -1, "is_processing": False}
    return orjson.dumps(
        {
            "default_generation_settings": {
                **idle,
                "n_ctx": service.model.context,
                "speculative": False,
                "params": _params(service.defaults, -1),
            },
            "total_slots": service.limits.at_once,
            "model_alias": service.model.id,
            "model_path": service.model.root,
            "chat_template": template.source if template else "",
            "bos_token": tokenizer.named.get("bos_token", ""),
            "eos_token": tokenizer.named.get("eos_token", ""),
            "modalities": {"vision": False, "audio": False},
            "build_info": f"strata-{strata.__version__}",
            "is_sleeping": False,
        }
    )


def slots(service: Service) -> bytes:
    """GET /slots: one entry for each row of a batch, those that run first."""
    running = service.engine.rows()
    idle = {"id_task": -1, "is_processing": False}
    shared = {"n_ctx": service.model.context, "speculative": False}
    entries = [_row(row) for row in running]
    entries += [idle] * (service.limits.at_once - len(running))
    return orjson.dumps([{"id": i, **shared, **entry} for i, entry in enumerate(entries)])


def _row(row: RowState) -> dict[str, Any]:
    limit = row.request.max_tokens
    return {
        "id_task": row.request.id,
        "is_processing": True,
        "n_prompt_tokens": len(row.request.tokens),
        "n_prompt_tokens_cache": row.cached,
        "n_prompt_tokens_processed": row.read - row.cached,
        "params": _params(row.request.sampling, limit),
        "next_token": {
            "has_next_token": row.output < limit,
            "n_remain": limit - row.output,
            "n_decoded": row.output,
        },
    }


def _params(sampling: Sampling, limit: int) -> dict[str, Any]:
    return {
        "n_predict": limit,
        "max_tokens": limit,
        "seed": -1 if sampling.seed is None else sampling.seed,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "n_probs": sampling.logprobs or 0,
    }
