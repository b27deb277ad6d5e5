"""The body of POST /v1/responses, and the items that a conversation is made of.

An item is told by its `type`; without one it is a message, or a reference where it has no role.
Fields that are other servers' business are read and left alone; unknown ones are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from strata.server.body import Body, Whole
from strata.server.schema import Common, Effort, JsonSchema, Tools


class Part(Body):
    """A piece of content. Strata reads text."""

    type: str
    text: str | None = None
    refusal: str | None = None


Content = str | Annotated[list[Part], Field(fail_fast=True)]


class Message(Body):
    """A message; developer means system."""

    type: Literal["message"] | None = None
    id: str | None = None
    role: Literal["system", "developer", "user", "assistant"]
    content: Content


class Call(Body):
    """A function that the model called. `arguments` is JSON text."""

    type: Literal["function_call"]
    id: str | None = None
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str


class CallOutput(Body):
    """What a function returned."""

    type: Literal["function_call_output"]
    id: str | None = None
    call_id: str
    output: Content


class ReasoningText(Body):
    """A piece of reasoning, or of its summary."""

    type: str
    text: str


ReasoningTexts = Annotated[list[ReasoningText], Field(fail_fast=True)]


class Thought(Body):
    """A reasoning item of an earlier answer: its content, else what this server sealed, else
    its summary.
    """

    type: Literal["reasoning"]
    id: str | None = None
    summary: ReasoningTexts | None = None
    content: ReasoningTexts | None = None
    encrypted_content: str | None = None


class Reference(Body):
    """An item that this server remembers."""

    type: Literal["item_reference"] | None = None
    id: str


class Other(Body):
    """An item of a type that Strata does not have: refused."""

    type: str


_KINDS = ("message", "function_call", "function_call_output", "reasoning", "item_reference")


def _kind(value: Any) -> str:
    """The tag of an item's model."""
    said = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    kind = said.get("type")
    if kind is None:
        return "item_reference" if "id" in said and "role" not in said else "message"
    return kind if kind in _KINDS else "other"


Item = Annotated[
    Annotated[Message, Tag("message")]
    | Annotated[Call, Tag("function_call")]
    | Annotated[CallOutput, Tag("function_call_output")]
    | Annotated[Thought, Tag("reasoning")]
    | Annotated[Reference, Tag("item_reference")]
    | Annotated[Other, Tag("other")],
    Discriminator(_kind),
]


class TextFormat(JsonSchema):
    """What the text must be; `schema` with json_schema."""

    type: Literal["text", "json_object", "json_schema"]


class TextConfig(Body):
    """How the text is told."""

    format: TextFormat | None = None
    verbosity: str | None = None


class Reasoning(Body):
    """How much the model thinks, and how that is told: with `summary` as a summary (which is the
    whole of it), else as the item's content.
    """

    effort: Effort | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponsesBody(Common):
    """POST /v1/responses."""

    input: str | Annotated[list[Item], Field(fail_fast=True)] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = Field(None, description="false: nothing is remembered of it.")
    n: Literal[1] | None = None
    max_output_tokens: Whole | None = Field(None, ge=1, le=2**31 - 1)
    tools: Tools | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    include: list[str] | None = None
    top_logprobs: Whole | None = Field(None, ge=0, le=20)
    metadata: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    background: bool | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    truncation: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    user: str | None = None
