"""The bodies of OpenAI's routes, as models: which fields exist, their types and what is allowed.

The models are also what GET /openapi.json shows. How a body is read: body.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from strata.server.body import Body, IdLists, Ids, Stops, Text, Texts, Whole

MOST_BIASES = 1024


def _few(value: object) -> object:
    """Counted before the entries are looked at: a million faults would take a minute."""
    if isinstance(value, dict) and len(value) > MOST_BIASES:
        raise ValueError(f"must have at most {MOST_BIASES} entries")
    return value


Bias = Annotated[float, Field(ge=-100, le=100)]
Biases = Annotated[dict[str, Bias], BeforeValidator(_few)]
Tools = Annotated[list[dict[str, Any]], Field(fail_fast=True)]


class StreamOptions(Body):
    """What a stream tells beside the text."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class JsonSchema(Body):
    """A schema by name. It holds whether `strict` or not."""

    name: str | None = None
    description: str | None = None
    content: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    """What the content must be: any text, any JSON object, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    content: dict[str, Any] | None = Field(
        default=None, alias="schema", description="llama.cpp's place for a schema."
    )


class Common(Body):
    """Fields of both generating routes. A missing one has the model's default."""

    model: str | None = Field(default=None, description="The served model; it may be left out.")
    n: Whole | None = Field(default=None, ge=1, le=128, description="Answers to one prompt.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(default=None, ge=0, le=100, description="0 is greedy.")
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: Whole | None = Field(default=None, ge=-1, le=2**31 - 1, description="0 and -1 are off.")
    min_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, ge=0.01, le=100)
    logit_bias: Biases | None = Field(default=None, description="Token id to what its logit gains.")
    seed: Whole | None = Field(
        default=None, ge=-(2**63), le=2**64 - 1, description="-1 draws one. Choice i uses seed + i."
    )
    stop: Text | Stops | None = Field(
        default=None, description="The text ends before any of these."
    )
    stop_token_ids: Annotated[Ids, Field(max_length=1024)] | None = None
    min_tokens: Whole | None = Field(default=None, ge=0, le=2**31 - 1)
    ignore_eos: bool | None = Field(default=None, description="Go on past the model's end tokens.")
    return_token_ids: bool | None = None
    cache_prompt: bool | None = Field(
        default=None, description="false: neither look up nor store prefixes."
    )
    response_format: ResponseFormat | None = None
    json_schema: dict[str, Any] | None = Field(
        default=None, description="llama.cpp's: the answer is JSON of this schema."
    )
    regex: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="The whole answer matches this regular expression."
    )
    grammar: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="The whole answer is of this Lark grammar (llguidance)."
    )
    repetition_guard: bool | None = Field(
        default=None, description="false: an answer may repeat itself without end."
    )
    return_progress: bool | None = Field(
        default=None, description="A stream tells how far the prompt is read: `prompt_progress`."
    )
    timings_per_token: bool | None = Field(
        default=None, description="Each chunk of a stream has the `timings` so far."
    )
    cache_salt: Annotated[str, Field(max_length=1024)] | None = Field(
        default=None, description="Prefixes are shared only among requests of the same salt."
    )
    strata_stats: bool | None = Field(
        default=None,
        description="true: usage gets a `strata` object: times, and where experts came from.",
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
        default=None,
        description="Remember the prompt up to this message's end; the last four count.",
    )


Messages = Annotated[list[ChatMessage], Field(fail_fast=True, min_length=1)]


class ChoiceOfFunction(Body):
    """The function to call."""

    name: str


class NamedChoice(Body):
    """The one tool to call."""

    type: Literal["function"]
    function: ChoiceOfFunction


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Budget = Annotated[Whole, Field(ge=-1, le=2**31 - 1)]


class ChatBody(Common):
    """POST /v1/chat/completions."""

    messages: Messages
    max_tokens: Whole | None = Field(default=None, ge=1, le=2**31 - 1)
    max_completion_tokens: Whole | None = Field(default=None, ge=1, le=2**31 - 1)
    logprobs: bool | None = None
    top_logprobs: Whole | None = Field(default=None, ge=0, le=20)
    tools: Tools | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = Field(
        default=None, description="false: the answer ends with its first call."
    )
    reasoning_effort: Effort | None = None
    thinking_budget: Budget | None = Field(
        default=None, description="Tokens after which thinking is closed; -1 is without end."
    )
    thinking_budget_tokens: Budget | None = None
    thinking_token_budget: Budget | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = Field(
        default=None, description="Go on with the last message, the assistant's."
    )


class CompletionBody(Common):
    """POST /v1/completions."""

    prompt: str | Ids | Texts | IdLists = Field(description="Text, token ids, or a list of either.")
    max_tokens: Whole | None = Field(default=None, ge=0, le=2**31 - 1)
    logprobs: Whole | None = Field(default=None, ge=0, le=20)
    echo: bool | None = None
    best_of: Whole | None = Field(default=None, ge=1, le=128)
    suffix: str | None = Field(default=None, description="Not supported: refused unless empty.")


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
