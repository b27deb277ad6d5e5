"""The JSON of a request's body, read strictly: bytes in, one object out.

Refuses what has no single meaning: invalid UTF-8, NaN and infinities, lone surrogates,
keys given twice, anything but an object at the top, and nesting beyond MAX_DEPTH levels.
Knows no field by name.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from strata.server.errors import Refusal

MAX_DEPTH = 64


def read_document(body: bytes) -> dict[str, Any]:
    """The object that `body` holds. Raises a 400 that says what is wrong and where."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refusal(f"the request body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise Refusal("the request body must be a JSON object", code="invalid_json")
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        _check_depth(value)
    _check_keys(body)
    return value


def _check_depth(top: dict[str, Any]) -> None:
    """Level by level, so that the check itself cannot exhaust the stack."""
    level: list[dict[str, Any] | list[Any]] = [top]
    for _ in range(MAX_DEPTH):
        below: list[dict[str, Any] | list[Any]] = []
        for item in level:
            children = item.values() if isinstance(item, dict) else item
            below += [child for child in children if isinstance(child, dict | list)]
        if not below:
            return
        level = below
    raise Refusal(f"the request body is nested deeper than {MAX_DEPTH} levels", code="invalid_json")


def _check_keys(body: bytes) -> None:
    """orjson keeps the last of two equal keys; which one a client meant nobody knows."""
    json.loads(body.decode("utf-8"), object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) == len(pairs):
        return
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise Refusal(f"the key {key[:60]!r} appears twice in one object", code="invalid_json")
        seen.add(key)
