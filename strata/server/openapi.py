"""GET /openapi.json: the routes, with the very models that validate their bodies."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import strata
from strata.server.schema import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody

_REF = "#/components/schemas/{model}"
_BODIES: tuple[type[BaseModel], ...] = (ChatBody, CompletionBody, TokenizeBody, DetokenizeBody)
_ERRORS = {
    "400": "A field is missing, mistyped or out of range; the message names it.",
    "401": "A missing or wrong API key.",
    "403": "A Host or Origin that is not served.",
    "404": "An unknown path or model.",
    "413": "The body is too large.",
    "429": "The queue is full; Retry-After says when to come back.",
    "500": "A fault of the server's.",
    "503": "The model is being loaded.",
    "504": "The request took longer than the server allows.",
}
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
# path, method, summary, body, errors beside 403 and 404
_ROUTES: tuple[tuple[str, str, str, type[BaseModel] | None, tuple[str, ...]], ...] = (
    ("/v1/chat/completions", "post", "Answer a chat.", ChatBody, tuple(_ERRORS)),
    ("/v1/completions", "post", "Continue a text.", CompletionBody, tuple(_ERRORS)),
    ("/v1/models", "get", "The served model.", None, ("400", "401", "403", "503")),
    ("/v1/models/{id}", "get", "One model.", None, ("400", "401", "403", "404", "503")),
    ("/v1/requests", "get", "The last 500 requests.", None, ("400", "401", "403", "503")),
    ("/tokenize", "post", "Text or chat to token ids.", TokenizeBody, tuple(_ERRORS)),
    ("/detokenize", "post", "Token ids to text.", DetokenizeBody, tuple(_ERRORS)),
    ("/metrics", "get", "Counters, as Prometheus text.", None, ("400", "401", "403")),
    ("/health", "get", "Whether requests are served.", None, ("400", "403", "503")),
)


def openapi_document() -> bytes:
    """The OpenAPI 3.1 description as JSON."""
    _, schemas = models_json_schema([(body, "validation") for body in _BODIES], ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for path, method, summary, body, errors in _ROUTES:
        paths.setdefault(path, {})[method] = _operation(path, summary, body, errors)
    return orjson.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": "Strata", "version": strata.__version__},
            "paths": paths,
            "components": {
                "schemas": {**schemas.get("$defs", {}), "Error": _ERROR_SCHEMA},
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{}, {"key": []}],
        }
    )


def _operation(
    path: str, summary: str, body: type[BaseModel] | None, errors: tuple[str, ...]
) -> dict[str, Any]:
    kind = "text/plain" if path == "/metrics" else "application/json"
    success: dict[str, Any] = {"description": "Answered.", "content": {kind: {}}}
    if "completions" in path:
        success["content"]["text/event-stream"] = {}
    responses: dict[str, Any] = {"200": success}
    for status in errors:
        responses[status] = {
            "description": _ERRORS[status],
            "content": {"application/json": {"schema": {"$ref": _REF.format(model="Error")}}},
        }
    if path == "/health":
        responses["503"]["content"] = {"application/json": {}}
    operation: dict[str, Any] = {"summary": summary, "responses": responses}
    if body is not None:
        reference = {"$ref": _REF.format(model=body.__name__)}
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": reference}},
        }
    if "{id}" in path:
        operation["parameters"] = [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
        ]
    return operation
