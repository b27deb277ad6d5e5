"""Conversations to prompts: the model's chat template, its tokens, and where they repeat.

Text and ids equal transformers' `apply_chat_template` on the same file and values, except that
special-token text inside of a message stays text (`marks`). The template alone decides whether a
bos is written. Its failure, whatever it is, is a RequestError.

Where a template refuses system messages (in the middle, or at all) or leaves one out, the prompt
is rendered again with such messages moved into the user's (`messages.without_system`); if that is
refused as well, the first complaint is returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jinja2

from strata.files import ModelFile
from strata.text import tokenizer as tokenizers
from strata.text.limits import TooLarge
from strata.text.marks import Marked, Marks
from strata.text.messages import Habits, check_tools, normalise, without_system
from strata.text.pieces import valid
from strata.text.sandbox import Sandbox
from strata.text.tokenizer import Tokenizer
from strata.types import ModelError, RequestError

_LARGEST = 1 << 20  # characters of a template's source
_RESERVED = frozenset(("messages", "tools", "add_generation_prompt"))
_STRIDE = 1024  # tokens compared at once
_NEAR = 8  # tokens before a border in which its control token is looked for

Chat = Sequence[dict[str, Any]]


class NoTemplate(ModelError):
    """The model's file has no chat template: it can complete text, but not chat."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation.

    anchors: positions (counts of tokens from the start, ascending, 0 < anchor < len(tokens))
    where other requests are likely to part: the end of the system and tools block and of the
    last user message. stable_len: how many tokens the next turn repeats, whatever the answer is.
    """

    tokens: tuple[int, ...]
    anchors: tuple[int, ...]
    stable_len: int


class _Source:
    """One template of a model, compiled."""

    def __init__(self, source: str, added_tokens: Mapping[str, bool]) -> None:
        """ModelError when it is no template."""
        if len(source) > _LARGEST:
            raise ModelError(f"the chat template has more than {_LARGEST} characters")
        source = valid(source)
        self.habits = Habits.of(source)
        self.marks = Marks(added_tokens, source)
        self._sandbox = Sandbox()
        try:
            self._template = self._sandbox.compiled(source)
        except Exception as error:  # jinja2 raises Python's errors for some broken templates
            place = f" in line {line}" if (line := getattr(error, "lineno", None)) else ""
            raise ModelError(
                f"the chat template has an error{place}: {error}; give another one with"
                " --chat-template FILE"
            ) from error

    def render(self, variables: Mapping[str, Any]) -> str:
        """The template's text. RequestError with the template's own words when it refuses."""
        try:
            return self._sandbox.run(self._template, variables)
        except TooLarge as error:
            raise RequestError(str(error), field="messages") from error
        except jinja2.TemplateError as error:
            raise _Refused(f"the model's chat template says: {error}", field="messages") from error
        except Exception as error:  # whatever a template does wrong, the request ends with a 400
            message = f"the model's chat template failed: {type(error).__name__}: {error}"
            raise _Refused(message, field="messages") from error


class _Refused(RequestError):
    """A template's own failure, as against a limit of ours."""


@dataclass(frozen=True, slots=True)
class _Rendering:
    """One conversation under one template: values to render and what they gave."""

    source: _Source
    values: Marked
    text: str


class ChatTemplate:
    """A model's chat template with its tokenizer. Thread safe."""

    def __init__(self, tokenizer: Tokenizer, source: str, tool_source: str | None = None) -> None:
        """tool_source: the template for requests with tools, where a model has two."""
        self._tokenizer = tokenizer
        self._plain = self._tools = _Source(source, tokenizer.added_tokens)
        if tool_source is not None:
            self._tools = _Source(tool_source, tokenizer.added_tokens)

    def render(
        self,
        messages: Any,
        *,
        tools: Any = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """A conversation's tokens.

        add_generation_prompt: write the header of an answer after the messages, also after
        an assistant's one. continue_final_message: leave the last message, the
        assistant's, open, for the model to go on with it; then no header is written.
        RequestError for messages that are none, and with the template's complaint.
        """
        done = self._rendered(
            messages, tools, add_generation_prompt, continue_final_message, variables
        )
        tokens = self._tokenizer.encode_rendered(done.text, done.values.mark)
        stable = len(tokens)
        if add_generation_prompt and not continue_final_message:
            stable = self._common(done, done.values.messages, tokens)
        anchors = {*self._system_anchor(done, tokens), *self._user_anchor(done, tokens, stable)}
        kept = sorted(anchor for anchor in anchors if 0 < anchor < len(tokens))
        return Prompt(tuple(tokens), tuple(kept), stable)

    def text(self, messages: Any, **options: Any) -> str:
        """What `render` tokenises with these options, as text."""
        done = self._rendered(messages, **options)
        return done.values.unmarked(done.text)

    def _rendered(
        self,
        messages: Any,
        tools: Any = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> _Rendering:
        tools, variables = check_tools(tools), _checked_variables(variables)
        source = self._tools if tools else self._plain
        chat, continued = normalise(messages, source.habits), continue_final_message
        if continued and chat[-1]["role"] != "assistant":
            raise RequestError(
                "continue_final_message needs an assistant's message at the end", field="messages"
            )
        first: RequestError | None = None
        left_out: _Rendering | None = None
        for version in _versions(chat):
            values = source.marks.apply(version, tools, variables, always=continued)
            try:
                text = self._text(source, values, add_generation_prompt, continued)
            except _Refused as error:
                first = first or error
                continue
            done = _Rendering(source, values, text)
            if _shows_system(chat, values.unmarked(text)):
                return done
            left_out = left_out or done
        if left_out is not None:
            return left_out
        assert first is not None
        raise first

    def _text(self, source: _Source, values: Marked, header: bool, continued: bool = False) -> str:
        """The rendered text, with marks. RequestError."""
        tail = (values.mark or "") * 3  # a run of three marks is found nowhere else
        messages = values.messages
        if continued:
            last = messages[-1]
            messages = [*messages[:-1], {**last, "content": f"{last['content'] or ''}{tail} "}]
        text = source.render(
            {
                **self._tokenizer.named,
                **values.variables,
                "messages": messages,
                "tools": values.tools,
                "add_generation_prompt": header and not continued,
            }
        )
        if values.mark is not None:  # each mark as itself, also where the template escaped it
            text = text.replace(f"\\u{ord(values.mark):04x}", values.mark)
        if not continued:
            return text
        at = text.rfind(tail)
        if at < 0:
            raise _Refused("the model's chat template hides the final message", field="messages")
        return text[:at] if text.startswith(" ", at + len(tail)) else text[:at].rstrip()

    def _common(self, done: _Rendering, messages: Chat, tokens: Sequence[int]) -> int:
        """How many tokens another, unfinished rendering shares; 0 where it is refused."""
        values = replace(done.values, messages=list(messages))
        try:
            text = self._text(done.source, values, header=False)
        except RequestError:
            return 0
        return _shared(tokens, self._tokenizer.encode_rendered(text, values.mark))

    def _system_anchor(self, done: _Rendering, tokens: Sequence[int]) -> Iterator[int]:
        """The end of the system and tools block, wherever a next message may begin.

        Found by a probe: the block with another message after it. What follows the last
        control token before the border (a role, a line break) may merge with that message's
        first characters, so the anchor is at that token, or one token before the border.
        """
        chat = done.values.messages
        leading = next((i for i, m in enumerate(chat) if m["role"] != "system"), len(chat))
        if not (leading or done.values.tools) or leading == len(chat):
            return
        probe = "y" if str(chat[leading]["content"]).lstrip().startswith("x") else "x"
        others = [*chat[:leading], {"role": "user", "content": probe}]
        border = self._common(done, others, tokens)
        for at in range(border, max(0, border - _NEAR), -1):
            if tokens[at - 1] in self._tokenizer.special_ids:
                yield at
                return
        yield border - 1

    def _user_anchor(self, done: _Rendering, tokens: Sequence[int], stable: int) -> Iterator[int]:
        """The end of the last user message, where agents' turns part from it."""
        chat = done.values.messages
        last = max((i for i, m in enumerate(chat) if m["role"] == "user"), default=None)
        if last == len(chat) - 1:
            yield stable
        elif last is not None:
            yield self._common(done, chat[: last + 1], tokens)


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many items two sequences have in common at their beginning."""
    start, end = 0, min(len(a), len(b))
    while start < end and a[start : start + _STRIDE] == b[start : start + _STRIDE]:
        start += _STRIDE
    return next((i for i in range(start, end) if a[i] != b[i]), end)


def _versions(chat: list[dict[str, Any]]) -> Iterator[Chat]:
    """The conversation as it is, then with its system messages moved."""
    yield chat
    if any(message["role"] == "system" for message in chat):
        for keep_first in (True, False):
            moved = without_system(chat, keep_first)
            if moved != chat:
                yield moved


def _shows_system(chat: Chat, text: str) -> bool:
    """Whether each system message but the first is found in the text."""
    late = (valid(m["content"]).strip() for m in chat[1:] if m["role"] == "system")
    return all(content in text for content in late)


def _checked_variables(variables: Mapping[str, Any] | None) -> dict[str, Any]:
    given = dict(variables or {})
    wrong = [key for key in given if not isinstance(key, str) or key in _RESERVED]
    if wrong:
        raise RequestError(
            f"chat_template_kwargs cannot set {wrong[0]!r}", field="chat_template_kwargs"
        )
    return given


def load(
    model: ModelFile, override: str | None = None, tokenizer: Tokenizer | None = None
) -> ChatTemplate:
    """The chat template of a model, or the text of another one.

    tokenizer: the model's, if it was loaded before. NoTemplate (a ModelError) when there
    is none, ModelError when it is broken.
    """
    source, tool_source = (override, None) if override is not None else _sources(model)
    if source is None:
        raise NoTemplate(
            f"{model.path.name} has no chat template, so it cannot chat; give one with"
            " --chat-template FILE (a jinja2 file; the model's page often has it)"
        )
    return ChatTemplate(tokenizer or tokenizers.load(model), source, tool_source)


def _sources(model: ModelFile) -> tuple[str | None, str | None]:
    """The default template and the one for tools, where the file has them."""
    if model.kind == "gguf":
        key = "tokenizer.chat_template"
        default = model.metadata.get(key) or model.metadata.get(f"{key}.default")
        tools = model.metadata.get(f"{key}.tool_use")
    else:
        default = model.metadata.get("chat_template")
        listed = (model.metadata.get("tokenizer_config") or {}).get("chat_template")
        entries = listed if isinstance(listed, list) else []
        named = {e.get("name"): e.get("template") for e in entries if isinstance(e, Mapping)}
        default, tools = default or named.get("default"), named.get("tool_use")
    return (
        default if isinstance(default, str) else None,
        tools if isinstance(tools, str) else None,
    )
