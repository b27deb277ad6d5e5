"""The request bodies, as models: which fields exist, their types and what is allowed.

Unknown fields are ignored, `null` means "not given", a bool is no number and a whole
float is an integer. `parse` reads a body strictly: refused is what has no single meaning
(invalid UTF-8, NaN, lone surrogates, keys given twice, nesting beyond MAX_DEPTH levels).
The models are also what GET /openapi.json shows.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from strata.server.errors import Refusal


def _whole(value: object) -> object:
    """JSON has one kind of number: 3.0 is 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _few(value: object) -> object:
    """Counted before the entries are looked at: a million faults would take a minute."""
    if isinstance(value, dict) and len(value) > MOST_BIASES:
        raise ValueError(f"must have at most {MOST_BIASES} entries")
    return value


MAX_DEPTH = 64
MOST_BIASES = 1024
M = TypeVar("M", bound=BaseModel)
Whole = Annotated[int, BeforeValidator(_whole)]
Token = Annotated[int, Field(ge=0, le=2**31 - 1)]
Ids = Annotated[list[Token], Field(fail_fast=True)]
IdLists = Annotated[list[Ids], Field(fail_fast=True)]
Texts = Annotated[list[str], Field(fail_fast=True)]
Text = Annotated[str, Field(min_length=1, max_length=1024)]
Stops = Annotated[list[Text], Field(fail_fast=True, max_length=16)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Biases = Annotated[dict[str, Bias], BeforeValidator(_few)]
Tools = Annotated[list[dict[str, Any]], Field(fail_fast=True)]


class Body(BaseModel):
    """Strict types; fields that Strata does not know are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, protected_namespaces=())


class StreamOptions(Body):
    """What a stream tells beside the text."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Common(Body):
    """Fields of both generating routes. A missing one has the model's default."""

    model: str | None = Field(None, description="The served model; it may be left out.")
    n: Whole | None = Field(None, ge=1, le=128, description="Answers to one prompt.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=100, description="0 is greedy.")
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: Whole | None = Field(None, ge=-1, le=2**31 - 1, description="0 and -1 are off.")
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, ge=0.01, le=100)
    logit_bias: Biases | None = Field(None, description="Token id to what its logit gains.")
    seed: Whole | None = Field(
        None, ge=-(2**63), le=2**64 - 1, description="-1 draws one. Choice i uses seed + i."
    )
    stop: Text | Stops | None = Field(None, description="The text ends before any of these.")
    stop_token_ids: Annotated[Ids, Field(max_length=1024)] | None = None
    min_tokens: Whole | None = Field(None, ge=0, le=2**31 - 1)
    ignore_eos: bool | None = Field(None, description="Go on past the model's end tokens.")
    return_token_ids: bool | None = None
    cache_prompt: bool | None = Field(
        None, description="false: neither look up nor store prefixes."
    )
    cache_salt: Annotated[str, Field(max_length=1024)] | None = Field(
        None, description="Prefixes are shared only among requests of the same salt."
    )
    strata_stats: bool | None = Field(
        None, description="true: usage gets a `strata` object: times, and where experts came from."
    )


class Part(Body):
    """A piece of a message's content. Strata reads text."""

    type: str
    text: str | None = None
    refusal: str | None = None


class FunctionCall(Body):
    """What an assistant called. `arguments` is JSON in a string, or an object."""

    name: str
    arguments: str | dict[str, Any] | None = None


class ToolCall(Body):
    """A call in an assistant's message."""

    id: str | None = None
    type: str | None = None
    function: FunctionCall


class ChatMessage(Body):
    """One message. Empty and null content are fine; developer means system."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Annotated[list[Part], Field(fail_fast=True)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    cache_anchor: bool | None = Field(
        None, description="Remember the prompt up to this message's end; the last four count."
    )


Messages = Annotated[list[ChatMessage], Field(fail_fast=True, min_length=1)]


class ResponseFormat(Body):
    """Only plain text is produced."""

    type: str


class ChatBody(Common):
    """POST /v1/chat/completions."""

    messages: Messages
    max_tokens: Whole | None = Field(None, ge=1, le=2**31 - 1)
    max_completion_tokens: Whole | None = Field(None, ge=1, le=2**31 - 1)
    logprobs: bool | None = None
    top_logprobs: Whole | None = Field(None, ge=0, le=20)
    tools: Tools | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: ResponseFormat | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = Field(
        None, description="Go on with the last message, the assistant's."
    )


class CompletionBody(Common):
    """POST /v1/completions."""

    prompt: str | Ids | Texts | IdLists = Field(description="Text, token ids, or a list of either.")
    max_tokens: Whole | None = Field(None, ge=0, le=2**31 - 1)
    logprobs: Whole | None = Field(None, ge=0, le=20)
    echo: bool | None = None
    best_of: Whole | None = Field(None, ge=1, le=128)
    suffix: str | None = Field(None, description="Not supported: refused unless empty.")


class TokenizeBody(Body):
    """POST /tokenize: `prompt` (or `content`), or `messages` as in a chat."""

    prompt: str | None = None
    content: str | None = None
    messages: Messages | None = None
    tools: Tools | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Body):
    """POST /detokenize."""

    tokens: Ids


_WORDS = (
    ("Input should be a valid ", "must be a "),
    ("must be a integer", "must be an integer"),
    ("Input should", "must"),
    (" should have", " must have"),
    ("Field required", "is required"),
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
    return message


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
