"""GET /openapi.json: the routes, with the very models that validate their bodies."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import strata
from strata.server.anthropic import CountBody, MessagesBody
from strata.server.responses.schema import ResponsesBody
from strata.server.schema import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody

_REF = "#/components/schemas/{model}"
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
_STREAMED = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses")
_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_ERROR = {"message": _TEXT, "type": _TEXT, "param": _TEXT_OR_NULL, "code": _TEXT_OR_NULL}
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "object", "required": list(_ERROR), "properties": _ERROR}},
}
_ANTHROPIC_ERROR_SCHEMA = {
    "type": "object",
    "required": ["type", "error", "request_id"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": _TEXT, "message": _TEXT},
        },
        "request_id": _TEXT,
    },
}
_READ = "400 401 403 503"
_ALL = " ".join(_ERRORS)
_ERROR_SCHEMAS = {"Error": _ERROR_SCHEMA, "AnthropicError": _ANTHROPIC_ERROR_SCHEMA}
# path, method, summary, body, errors. GET /v1/monitor is not here: it is a stream without end.
_ROUTES: tuple[tuple[str, str, str, type[BaseModel] | None, str], ...] = (
    ("/v1/chat/completions", "post", "Answer a chat.", ChatBody, _ALL),
    ("/v1/completions", "post", "Continue a text.", CompletionBody, _ALL),
    ("/v1/messages", "post", "Answer a chat, as Anthropic's API.", MessagesBody, _ALL),
    ("/v1/messages/count_tokens", "post", "How long a prompt is.", CountBody, _ALL),
    ("/v1/responses", "post", "Answer a chat of items.", ResponsesBody, _ALL),
    ("/v1/responses/{id}", "get", "A remembered response.", None, "400 401 403 404"),
    ("/v1/responses/{id}", "delete", "Forget a response.", None, "400 401 403 404"),
    ("/v1/responses/{id}/input_items", "get", "What it answered.", None, "400 401 403 404"),
    ("/v1/models", "get", "The served model.", None, _READ),
    ("/v1/models/{id}", "get", "One model.", None, "400 401 403 404 503"),
    ("/v1/requests", "get", "The last 500 requests.", None, _READ),
    ("/v1/experts", "get", "Where experts came from, in all and by layer.", None, _READ),
    ("/v1/cache", "get", "What is cached, and what that has saved.", None, _READ),
    ("/v1/cache", "delete", "Drop what no running request uses.", None, _READ),
    ("/v1/about", "get", "What is served, and of what it is made.", None, "400 401 403"),
    ("/v1/cache/tree", "get", "Which prefixes are cached.", None, _READ),
    ("/v1/cache/text", "get", "What one of them says.", None, "400 401 403 404 503"),
    ("/slots", "get", "What runs now, in llama.cpp's shape.", None, _READ),
    ("/props", "get", "What is served, in llama.cpp's shape.", None, _READ),
    ("/tokenize", "post", "Text or chat to token ids.", TokenizeBody, _ALL),
    ("/detokenize", "post", "Token ids to text.", DetokenizeBody, _ALL),
    ("/metrics", "get", "Counters, as Prometheus text.", None, "400 401 403"),
    ("/health", "get", "Whether requests are served.", None, "400 403 503"),
)


def openapi_document() -> bytes:
    """The OpenAPI 3.1 description as JSON."""
    _, schemas = models_json_schema(
        [(body, "validation") for _, _, _, body, _ in _ROUTES if body is not None],
        ref_template=_REF,
    )
    paths: dict[str, dict[str, Any]] = {}
    for path, method, summary, body, errors in _ROUTES:
        paths.setdefault(path, {})[method] = _operation(path, summary, body, errors)
    return orjson.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": "Strata", "version": strata.__version__},
            "paths": paths,
            "components": {
                "schemas": {**schemas.get("$defs", {}), **_ERROR_SCHEMAS},
                "securitySchemes": {
                    "key": {"type": "http", "scheme": "bearer"},
                    "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                },
            },
            "security": [{}, {"key": []}, {"header": []}],
        }
    )


def _operation(
    path: str, summary: str, body: type[BaseModel] | None, errors: str
) -> dict[str, Any]:
    kinds = ["text/plain" if path == "/metrics" else "application/json"]
    if path in _STREAMED:
        kinds.append("text/event-stream")
    responses: dict[str, Any] = {
        "200": {"description": "Answered.", "content": {kind: {} for kind in kinds}}
    }
    error = "AnthropicError" if path.startswith("/v1/messages") else "Error"
    for status in errors.split():
        responses[status] = {"description": _ERRORS[status], "content": _json(error)}
    if path == "/health":
        responses["503"]["content"] = {"application/json": {}}
    operation: dict[str, Any] = {"summary": summary, "responses": responses}
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _json(body.__name__)}
    if "{id}" in path:
        operation["parameters"] = [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
        ]
    return operation


def _json(model: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(model=model)}}}
