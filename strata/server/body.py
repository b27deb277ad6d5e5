"""Reading a request's body strictly: what every body has in common, and how a fault is told.

Unknown fields are ignored, `null` means "not given", a bool is no number and a whole
float is an integer. Refused is what has no single meaning (invalid UTF-8, NaN, lone
surrogates, keys given twice, nesting beyond MAX_DEPTH levels). Knows no fields.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from strata.server.errors import Refusal


def _whole(value: object) -> object:
    """JSON has one kind of number: 3.0 is 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


MAX_DEPTH = 64
M = TypeVar("M", bound=BaseModel)
Whole = Annotated[int, BeforeValidator(_whole)]
Token = Annotated[int, Field(ge=0, le=2**31 - 1)]
Ids = Annotated[list[Token], Field(fail_fast=True)]
IdLists = Annotated[list[Ids], Field(fail_fast=True)]
Texts = Annotated[list[str], Field(fail_fast=True)]
Text = Annotated[str, Field(min_length=1, max_length=1024)]
Stops = Annotated[list[Text], Field(fail_fast=True, max_length=16)]


class Body(BaseModel):
    """Strict types; fields that Strata does not know are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, protected_namespaces=())


_WORDS = (
    ("Input should be a valid ", "must be a "),
    ("must be a integer", "must be an integer"),
    ("Input should", "must"),
    (" should have", " must have"),
    ("Field required", "is required"),
    ("Unable to extract tag using discriminator", "must have the field"),
    ("Input tag", "the value"),
    (
        "found using 'type' does not match any of the expected tags:",
        "of type is not supported here; supported:",
    ),
    (
        "found using 'role' does not match any of the expected tags:",
        "of role is not supported here; supported:",
    ),
    ("Value error, ", ""),
    ("List ", ""),
    ("String ", ""),
    ("item after validation", "item"),
)


def parse(kind: type[M], body: bytes) -> M:
    """`body` as a `kind`. Raises a 400 that says what is wrong, where, and what is allowed."""
    document = _document(body)
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
    paths = [_path(fault["loc"], document, fault["type"] == "missing") for fault in faults]
    # A union reports each of its branches: the one that came furthest was the one meant.
    furthest = max(paths, key=lambda path: (len(path), [s for s in path if isinstance(s, int)]))
    reasons = [f["msg"] for f, path in zip(faults, paths, strict=True) if path == furthest]
    said = " or ".join(dict.fromkeys(_plain(reason) for reason in reasons))
    field = ".".join(str(step)[:60] for step in furthest[:12])
    raise Refusal(f"{field}: {said}" if field else said, field=field or None)


def _path(location: tuple[int | str, ...], document: object, missing: bool) -> list[int | str]:
    """The part of a pydantic location that exists in the document, plus a missing key.

    The rest of a location are names of a union's branches.
    """
    path: list[int | str] = []
    value = document
    for i, step in enumerate(location):
        if isinstance(step, str) and isinstance(value, dict):
            if step in value:
                value = value[step]
            elif not missing or i + 1 < len(location):
                continue
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            continue
        path.append(step)
    return path


def _plain(message: str) -> str:
    for was, now in _WORDS:
        message = message.replace(was, now)
    return re.sub(r"a dictionary or instance of \w+", "an object", message)


def _document(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refusal(f"the request body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise Refusal("the request body must be a JSON object", code="invalid_json")
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        _check_depth(value)
    # orjson keeps the last of two equal keys; which one a client meant nobody knows.
    json.loads(body.decode("utf-8"), object_pairs_hook=_check_keys)
    return value


def _check_depth(top: dict[str, Any]) -> None:
    """Level by level, so that the check itself cannot exhaust the stack."""
    level: list[Any] = [top]
    for _ in range(MAX_DEPTH):
        parts = [item.values() if isinstance(item, dict) else item for item in level]
        level = [child for part in parts for child in part if isinstance(child, dict | list)]
        if not level:
            return
    raise Refusal(f"the request body is nested deeper than {MAX_DEPTH} levels", code="invalid_json")


def _check_keys(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise Refusal(f"the key {key[:60]!r} appears twice in one object", code="invalid_json")
