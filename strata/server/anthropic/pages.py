"""What is told in Anthropic's shapes beside messages: how many tokens a prompt has, and models."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from strata.server.anthropic.convert import chat_request
from strata.server.anthropic.schema import CountBody
from strata.server.service import Service
from strata.server.talk import render


def count_tokens(service: Service, body: CountBody) -> bytes:
    """POST /v1/messages/count_tokens: what the usage of the same body adds up to, or would
    if it fitted. Raises RequestError.
    """
    chat = chat_request(service, body)
    service.named(chat.body.model)
    return orjson.dumps({"input_tokens": len(render(service, chat).tokens)})


def model_list(service: Service) -> bytes:
    """GET /v1/models: one entry."""
    name = service.model.id
    return orjson.dumps(
        {"data": [_model(service, name)], "has_more": False, "first_id": name, "last_id": name}
    )


def model(service: Service, name: str) -> bytes:
    """GET /v1/models/{name}; raises 404 for a name that is not served."""
    return orjson.dumps(_model(service, service.named(name)))


def _model(service: Service, name: str) -> dict[str, Any]:
    facts = service.model
    return {
        "type": "model",
        "id": name,
        "display_name": facts.root,
        "created_at": datetime.fromtimestamp(facts.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": facts.context,
        "max_tokens": facts.context,
    }
