"""What a chat's answer is held to, and what its text is split into.

From a chat's tools, format and wish to think to the Output of its runs. Grammars are compiled
here, in the caller's thread. Knows no API's names but OpenAI's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from strata.server.errors import Refusal
from strata.server.job import Output
from strata.server.service import Service
from strata.text.grammar import json_rule
from strata.text.segment import Segmenter
from strata.types import Guide, RequestError, Thinking

if TYPE_CHECKING:
    from strata.server.talk import ChatRequest, Format

Tools = Mapping[str, Any]
_BREAK = '"\\n\\n"?'  # what models write between reasoning and answer


def output_of(service: Service, chat: ChatRequest, text: str) -> Output:
    """How to answer a chat whose prompt was rendered to `text`. Raises RequestError."""
    dialect, choice = service.dialect, chat.tool_choice
    tools = {} if choice == "none" else _parameters(chat.tools)
    forced = choice not in ("auto", "none")
    guide = _forced(service, chat, tools) if forced else _free(service, chat.format, tools)
    thinking, markers = _thinking(service, chat, text), dialect.markers(guide is not None)
    return Output(
        segmenter=partial(
            Segmenter,
            dialect,
            tools,
            thinking=thinking is not None and thinking.open,
            calls=bool(tools),
            announced=markers,
        ),
        markers=markers,
        one_call=not chat.parallel,
        guide=guide,
        thinking=thinking,
    )


def format_guide(service: Service, wanted: Format | None) -> Callable[[], Guide] | None:
    """The constraint of a text that is nothing but what a format wants."""
    if wanted is None:
        return None
    if wanted.kind == "regex":
        return service.grammars.regex(wanted.value, wanted.field)
    if wanted.kind == "grammar":
        return service.grammars.lark(wanted.value, wanted.field)
    return service.grammars.lark(f"start: {_json(wanted)}", wanted.field)


def _json(wanted: Format) -> str:
    schema = {"type": "object"} if wanted.kind == "json_object" else wanted.value
    return json_rule(schema, wanted.field)


def _free(service: Service, wanted: Format | None, tools: Tools) -> Callable[[], Guide] | None:
    """The constraint of content, beside which calls stay possible."""
    if wanted is None or wanted.kind in ("regex", "grammar"):
        if wanted is not None and tools:
            message = f"{wanted.field} cannot be met beside tools; set tool_choice to 'none'"
            raise Refusal(message, field=wanted.field)
        return format_guide(service, wanted)
    lead = _BREAK if service.dialect.think_close else ""
    text = f"start: {lead} answer\nanswer: {_json(wanted)}\n"
    if tools:
        calls = service.dialect.tool_grammar(tools, "required", True)
        text = text.replace("answer", "answer | calls", 1) + calls.replace("start:", "calls:", 1)
    return service.grammars.lark(text, wanted.field)


def _forced(service: Service, chat: ChatRequest, tools: Tools) -> Callable[[], Guide]:
    """The constraint of an answer that must call."""
    if not tools:
        raise Refusal("tool_choice: there is no tool to call; give tools", field="tool_choice")
    if chat.format is not None:
        raise Refusal(
            f"tool_choice forces a call, so {chat.format.field} cannot be met; leave one out",
            field="tool_choice",
        )
    dialect, choice = service.dialect, chat.tool_choice
    try:
        grammar = dialect.tool_grammar(tools, choice, chat.parallel)
        return service.grammars.lark(grammar, "tools")
    except RequestError:
        for i, name, _ in _functions(chat.tools):  # whose fault is it?
            if choice in ("required", name):
                _check(service, f"tools.{i}", name, tools[name])
        raise


def _check(service: Service, field: str, name: str, schema: Any) -> None:
    """Raises a 400 that names the tool where calls of it cannot be forced."""
    try:
        grammar = service.dialect.tool_grammar({name: schema}, name, False)
        service.grammars.lark(grammar, field)
    except RequestError as error:
        said = str(error).removeprefix(f"{field}: ")
        raise Refusal(f"{field}: {said}", field=field) from None


def _functions(tools: Iterable[Any]) -> Iterator[tuple[int, str, Any]]:
    """Each function's place, name and parameters."""
    for i, tool in enumerate(tools):
        if "function" in tool:
            yield i, tool["function"]["name"], tool["function"].get("parameters")


def _parameters(tools: Iterable[Any]) -> dict[str, Any]:
    """The schema of each function's arguments, by its name. Raises a 400 that names the tool."""
    found: dict[str, Any] = {}
    for i, name, schema in _functions(tools):
        if schema is not None and not isinstance(schema, Mapping):
            field = f"tools.{i}.function.parameters"
            raise Refusal(f"{field}: must be a JSON schema, an object", field=field)
        if name in found:
            raise Refusal(f"tools.{i}: the name {name[:60]!r} is taken", field=f"tools.{i}")
        found[name] = schema or {}
    return found


def _thinking(service: Service, chat: ChatRequest, text: str) -> Thinking | None:
    """How the answer reasons, where the model can."""
    opening, closing = service.dialect.think_open, service.dialect.think_close
    if opening is None or closing is None:
        return None
    encode = partial(service.tokenizer.encode, special=True, start=False)
    opens = encode(opening)
    return Thinking(
        close=tuple(encode(closing)),
        open=_inside(service, text, opening, closing),
        budget=0 if chat.thinking is False else chat.budget,
        opens=opens[0] if len(opens) == 1 else None,
    )


def _inside(service: Service, text: str, opening: str, closing: str) -> bool:
    """Whether a rendered prompt ends inside of reasoning.

    What a client wrote cannot look like a tag here, and behind the last one there is no other turn.
    """
    at = text.rfind(opening)
    rest = text[at + len(opening) :]
    return at >= 0 and closing not in rest and not service.tokenizer.has_control(rest)
