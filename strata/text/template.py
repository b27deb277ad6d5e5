"""Conversations to prompts: the model's chat template, its tokens, and where they repeat.

Text and ids equal transformers' `apply_chat_template` on the same file and values, except that
special-token text inside of a message stays text (`marks`). The template alone decides whether a
bos is written. Its failure, whatever it is, is a RequestError.

Where a template refuses system messages (in the middle, or at all) or leaves one out, the prompt
is rendered again with such messages moved into the user's (`messages.without_system`); if that is
refused as well, the first complaint is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from strata.files import ModelFile
from strata.text import tokenizer as tokenizers
from strata.text.anchors import Anchors, asked_for
from strata.text.messages import check_tools, normalise, without_system
from strata.text.pieces import valid
from strata.text.source import Chat, Refused, Rendering, Source
from strata.text.tokenizer import Tokenizer
from strata.types import ModelError, RequestError

_RESERVED = frozenset(("messages", "tools", "add_generation_prompt"))


class NoTemplate(ModelError):
    """The model's file has no chat template: it can complete text, but not chat."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation.

    anchors: positions (counts of tokens from the start, ascending, 0 < anchor < len(tokens))
    where other requests are likely to part: the end of the system and tools block, of the last
    user message, and of messages whose `cache_anchor` is true (the last four). stable_len: how
    many tokens the next turn repeats, whatever the answer is. text: what was tokenised, where a
    client's words cannot look like an added token.
    """

    tokens: tuple[int, ...]
    anchors: tuple[int, ...]
    stable_len: int
    text: str = ""


class ChatTemplate:
    """A model's chat template with its tokenizer. Thread safe.

    source, tool_source: the templates' texts.
    """

    def __init__(self, tokenizer: Tokenizer, source: str, tool_source: str | None = None) -> None:
        """tool_source: the template for requests with tools, where a model has two."""
        self._tokenizer = tokenizer
        self.source, self.tool_source = source, tool_source
        tokens, named = tokenizer.added_tokens, tokenizer.named
        self._plain = self._tools = Source(source, tokens, named)
        if tool_source is not None:
            self._tools = Source(tool_source, tokens, named)

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
        places = Anchors(done, tokens, self._tokenizer)
        stable = places.stable()
        anchors = {*places.system(), *places.user(stable), *places.ends(asked_for(messages))}
        kept = sorted(anchor for anchor in anchors if 0 < anchor < len(tokens))
        return Prompt(tuple(tokens), tuple(kept), stable, done.text)

    def text(self, messages: Any, **options: Any) -> str:
        """What `render` tokenises with these options, as text."""
        done = self._rendered(messages, **options)
        return done.plain

    def _rendered(
        self,
        messages: Any,
        tools: Any = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> Rendering:
        tools, variables = check_tools(tools), _checked_variables(variables)
        source = self._tools if tools else self._plain
        chat, continued = normalise(messages, source.habits), continue_final_message
        if continued and chat[-1]["role"] != "assistant":
            raise RequestError(
                "continue_final_message needs an assistant's message at the end", field="messages"
            )
        first: RequestError | None = None
        left_out: Rendering | None = None
        marked = continued or bool(asked_for(messages))
        for move in _moves(chat):
            values = source.marks.apply(move(chat), tools, variables, always=marked)
            try:
                text = source.text(values, values.messages, add_generation_prompt, continued)
            except Refused as error:
                first = first or error
                continue
            header = add_generation_prompt
            done = Rendering(source, chat, tools, variables, move, values, header, continued, text)
            if _shows_system(chat, done.plain):
                return done
            left_out = left_out or done
        if left_out is not None:
            return left_out
        assert first is not None
        raise first


def _moves(chat: list[dict[str, Any]]) -> Iterator[Callable[[Chat], Chat]]:
    """Ways to render the conversation: as it is, then with its system messages moved."""
    yield list
    if any(message["role"] == "system" for message in chat):
        for keep_first in (True, False):
            if without_system(chat, keep_first) != chat:
                yield partial(without_system, keep_first=keep_first)


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
