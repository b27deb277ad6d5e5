"""A chat as any API asks for it, and the job that answers it.

The one way from messages to a Job: each API turns its own body into a ChatRequest, so the
same chat has the same tokens whatever it came through. What messages mean is the text
layer's to decide. Knows no API's names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from strata.server.errors import Refusal
from strata.server.job import Job, make_job
from strata.server.output import output_of
from strata.server.schema import Common
from strata.server.service import Service
from strata.text.template import Prompt


@dataclass(frozen=True, slots=True)
class Format:
    """What the content must be. `value` is a JSON schema, a regular expression or a Lark
    grammar; `field` is where it came from, for errors.
    """

    kind: Literal["json_object", "json_schema", "regex", "grammar"]
    value: Any = None
    field: str = "response_format"


# Whether to think and for how many tokens: the figures are those of Gemini's OpenAI endpoint.
EFFORTS: Mapping[str, tuple[bool, int | None]] = {
    "none": (False, None),
    "minimal": (False, None),
    "low": (True, 1024),
    "medium": (True, 8192),
    "high": (True, 24576),
    "xhigh": (True, None),
    "max": (True, None),
}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat to answer, in OpenAI's shapes.

    `body` has sampling, stops and the stream's options. `messages` and `tools` are dicts as in
    chat completions (`{"type": "function", "function": {...}}`; tools that are no functions are
    left out). `tool_choice` is auto, none, required, or the name of the function to call.
    `parallel` False: at most one call.
    `variables` are for the template. `thinking` None leaves it to the template; `budget` is in
    tokens, None without end. `max_tokens` None: all that fits. `logprobs` None: none.
    `header`: write the header of an answer; `continued`: go on with the last message instead.
    """

    body: Common
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str = "auto"
    parallel: bool = True
    format: Format | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    thinking: bool | None = None
    budget: int | None = None
    max_tokens: int | None = None
    logprobs: int | None = None
    header: bool = True
    continued: bool = False


def render(service: Service, chat: ChatRequest) -> Prompt:
    """The prompt of a chat. Raises a 400 when the model has no template or it refuses."""
    if service.template is None:
        raise Refusal(
            "this model has no chat template; use /v1/completions, or start the server "
            "with --chat-template FILE",
            field="messages",
        )
    thinking = {} if chat.thinking is None else {"enable_thinking": chat.thinking}
    tools = () if chat.tool_choice == "none" else chat.tools
    return service.template.render(
        list(chat.messages),
        tools=[tool for tool in tools if "function" in tool] or None,
        add_generation_prompt=chat.header,
        continue_final_message=chat.continued,
        variables=thinking | dict(chat.variables),
    )


def chat_job(service: Service, chat: ChatRequest, caller: str, kind: str = "chatcmpl-") -> Job:
    """The job that answers a chat; `kind` begins its id, `caller` names the API key.

    Renders and tokenises: slow for long prompts. Raises RequestError.
    """
    prompt = render(service, chat)
    return make_job(
        service,
        chat.body,
        [prompt],
        caller,
        kind=kind,
        field="messages",
        max_tokens=chat.max_tokens,
        logprobs=chat.logprobs,
        output=output_of(service, chat, prompt.text),
    )


def format_of(body: Common) -> Format | None:
    """What a body wants the answer to be. Raises a 400 where it wants several things."""
    formats: list[Format] = []
    wanted = body.response_format
    if wanted is not None and wanted.type != "text":
        inner = wanted.json_schema.content if wanted.json_schema else None
        if inner is not None and wanted.type == "json_schema":
            formats.append(Format("json_schema", inner, "response_format.json_schema.schema"))
        elif wanted.content is not None:
            formats.append(Format("json_schema", wanted.content, "response_format.schema"))
        else:
            formats.append(Format("json_object"))
    if body.json_schema is not None:
        formats.append(Format("json_schema", body.json_schema, "json_schema"))
    if body.regex is not None:
        formats.append(Format("regex", body.regex, "regex"))
    if body.grammar is not None:
        formats.append(Format("grammar", body.grammar, "grammar"))
    if len(formats) > 1:
        one, other = (each.field.split(".")[0] for each in formats[:2])
        raise Refusal(f"{one} and {other} cannot both be met; give one", field=other)
    return formats[0] if formats else None
