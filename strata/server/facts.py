"""The pages that tell: what this is, whether it is well, its models, its last requests."""

from __future__ import annotations

from typing import Any

import orjson

import strata
from strata.server.errors import Refusal
from strata.server.service import Lobby, Service
from strata.types import Record


def about(lobby: Lobby) -> bytes:
    """GET /: one object that says what answers here and where to go on."""
    service = lobby.present
    return orjson.dumps(
        {
            "name": "strata",
            "version": strata.__version__,
            "model": service.model.id if service else None,
            "status": lobby.reason or "ok",
            "openai_base_url": "/v1",
            "openapi": "/openapi.json",
        }
    )


def health(lobby: Lobby) -> tuple[int, bytes]:
    """GET /health: 200, or 503 with the reason."""
    reason = lobby.reason
    if reason is None:
        return 200, orjson.dumps({"status": "ok"})
    return 503, orjson.dumps({"status": "unavailable", "reason": reason})


def model_list(service: Service) -> bytes:
    """GET /v1/models: one entry, whatever names the model answers to."""
    return orjson.dumps({"object": "list", "data": [_model(service)]})


def model(service: Service, name: str) -> bytes:
    """GET /v1/models/{name}; raises 404 for a name that is not served."""
    facts = service.model
    if name not in (facts.id, *facts.aliases):
        raise Refusal(
            f"the model {name[:100]!r} is not served here; available: "
            f"{', '.join((facts.id, *facts.aliases))}",
            status=404,
            field="model",
            code="model_not_found",
        )
    return orjson.dumps(_model(service))


def request_list(service: Service) -> bytes:
    """GET /v1/requests: the last finished requests, newest first. No content."""
    records = service.engine.records()
    return orjson.dumps({"object": "list", "data": [_record(record) for record in records]})


def _model(service: Service) -> dict[str, Any]:
    facts = service.model
    return {
        "id": facts.id,
        "object": "model",
        "created": facts.created,
        "owned_by": "strata",
        "root": facts.root,
        "parent": None,
        "aliases": list(facts.aliases),
        "max_model_len": facts.context,
        "context_length": facts.context,
    }


def _record(record: Record) -> dict[str, Any]:
    """Rates in tokens/s, times in seconds, `time` since 1970."""
    return {
        "id": record.id,
        "time": record.time,
        "status": record.status,
        "prompt": record.prompt,
        "reused": record.reused,
        "output": record.output,
        "prefill_tokens_per_s": record.prefill_rate,
        "decode_tokens_per_s": record.decode_rate,
        "first_token_s": record.first_token_s,
        "queue_s": record.queue_s,
        "duration_s": record.duration_s,
    }
