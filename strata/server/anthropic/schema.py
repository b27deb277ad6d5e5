"""The bodies of Anthropic's Messages API: which fields exist, their types and what is allowed.

Sampling and Strata's own fields are those of every route. What is not here is ignored: metadata,
service_tier, context_management, container, mcp_servers and whatever a beta adds.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from strata.server.body import Body, Stops, Whole
from strata.server.schema import Common


class Block(Body):
    """A piece of a content."""

    cache_control: dict[str, Any] | None = Field(
        default=None,
        description="Remember the prompt up to the end of the message that this is in.",
    )


class TextBlock(Block):
    """A text."""

    type: Literal["text"]
    text: str


class ToolReferenceBlock(Block):
    """The name of a tool that was found; all tools are in the prompt from the start."""

    type: Literal["tool_reference"]
    tool_name: str


class ThinkingBlock(Block):
    """What an assistant thought before. The signature is not looked at."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Block):
    """Thoughts that only their author can read: left out."""

    type: Literal["redacted_thinking"]


class ToolUseBlock(Block):
    """A call in an assistant's message."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


Found = Annotated[TextBlock | ToolReferenceBlock, Field(discriminator="type")]


class ToolResultBlock(Block):
    """What a call came to. An error's text is rendered behind "Error: "."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Annotated[list[Found], Field(fail_fast=True)] | None = None
    is_error: bool | None = None


Texts = Annotated[list[TextBlock], Field(fail_fast=True)]
Said = Annotated[TextBlock | ToolResultBlock, Field(discriminator="type")]
Answered = Annotated[
    TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock, Field(discriminator="type")
]


class UserMessage(Body):
    """What a user says, and what called tools returned."""

    role: Literal["user"]
    content: str | Annotated[list[Said], Field(fail_fast=True)]


class AssistantMessage(Body):
    """An earlier answer; as the last message, the beginning of the one that is wanted."""

    role: Literal["assistant"]
    content: str | Annotated[list[Answered], Field(fail_fast=True)]


class SystemMessage(Body):
    """An instruction in the middle of the talk."""

    role: Literal["system"]
    content: str | Texts


AnyMessage = Annotated[UserMessage | AssistantMessage | SystemMessage, Field(discriminator="role")]


class Tool(Body):
    """A tool of the client's. One with a type and no schema is for other servers: ignored."""

    type: str | None = None
    name: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class ToolChoice(Body):
    """Which tools may or must be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Body):
    """Whether to think; adaptive and between_tools leave it to the model."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Whole | None = Field(default=None, ge=1, le=2**31 - 1)


class OutputFormat(Body):
    """What the text must be."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Body):
    """How hard to try, and what the text must be."""

    effort: Annotated[str, Field(max_length=64)] | None = None
    format: OutputFormat | None = None


class CountBody(Common):
    """POST /v1/messages/count_tokens: a Messages body, of which max_tokens may be missing."""

    messages: Annotated[list[AnyMessage], Field(fail_fast=True, min_length=1)]
    n: Whole | None = Field(default=None, ge=1, le=1, description="A message has one answer.")
    system: str | Texts | None = None
    tools: Annotated[list[Tool], Field(fail_fast=True)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    stop_sequences: Stops | None = None
    max_tokens: Whole | None = Field(default=None, ge=1, le=2**31 - 1)


class MessagesBody(CountBody):
    """POST /v1/messages."""

    max_tokens: Whole = Field(ge=1, le=2**31 - 1)
