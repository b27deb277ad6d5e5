"""One chat template of a model, compiled, and what it makes of one conversation.

Knows text only. A template's failure, whatever it is, is a RequestError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2

from strata.text.limits import TooLarge
from strata.text.marks import Marked, Marks
from strata.text.messages import Habits
from strata.text.pieces import valid
from strata.text.sandbox import Sandbox
from strata.types import ModelError, RequestError

_LARGEST = 1 << 20  # characters of a template's source

Chat = Sequence[dict[str, Any]]


class Refused(RequestError):
    """A template's own failure, as against a limit of ours."""


class Source:
    """One template of a model, compiled."""

    def __init__(
        self, source: str, added_tokens: Mapping[str, bool], named: Mapping[str, Any]
    ) -> None:
        """`named`: the tokenizer's tokens that templates know by name. ModelError when it is no
        template.
        """
        if len(source) > _LARGEST:
            raise ModelError(f"the chat template has more than {_LARGEST} characters")
        source = valid(source)
        self.habits = Habits.of(source)
        self.marks = Marks(added_tokens, source)
        self._named = dict(named)
        self._sandbox = Sandbox()
        try:
            self._template = self._sandbox.compiled(source)
        except Exception as error:  # jinja2 raises Python's errors for some broken templates
            place = f" in line {line}" if (line := getattr(error, "lineno", None)) else ""
            raise ModelError(
                f"the chat template has an error{place}: {error}; give another one with"
                " --chat-template FILE"
            ) from error

    def _render(self, variables: Mapping[str, Any]) -> str:
        """The template's text. RequestError with the template's own words when it refuses."""
        try:
            return self._sandbox.run(self._template, variables)
        except TooLarge as error:
            raise RequestError(str(error), field="messages") from error
        except jinja2.TemplateError as error:
            raise Refused(f"the model's chat template says: {error}", field="messages") from error
        except Exception as error:  # whatever a template does wrong, the request ends with a 400
            message = f"the model's chat template failed: {type(error).__name__}: {error}"
            raise Refused(message, field="messages") from error

    def text(self, values: Marked, messages: Chat, header: bool, continued: bool = False) -> str:
        """The text of these messages, with marks. RequestError.

        header: of an answer, after them. continued: the last one is left open, and no header.
        """
        tail = values.tail
        if continued:
            last = messages[-1]
            messages = [*messages[:-1], {**last, "content": f"{last['content'] or ''}{tail} "}]
        text = self._render(
            {
                **self._named,
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
            raise Refused("the model's chat template hides the final message", field="messages")
        return text[:at] if text.startswith(" ", at + len(tail)) else text[:at].rstrip()


@dataclass(frozen=True, slots=True)
class Rendering:
    """One conversation under one template.

    `chat`, `tools` and `variables` are what was asked for, `move` what made of the chat the
    messages in `values`, which gave `text`; `header` and `continued` as in `Source.text`.
    """

    source: Source
    chat: Chat
    tools: Sequence[Any] | None
    variables: Mapping[str, Any]
    move: Callable[[Chat], Chat]
    values: Marked
    header: bool
    continued: bool
    text: str

    @property
    def plain(self) -> str:
        """The text without marks."""
        return self.values.unmarked(self.text)

    def part(self, count: int) -> Marked:
        """The first `count` messages of the chat, marked anew."""
        return self.source.marks.apply(self.move(self.chat[:count]), self.tools, self.variables)

    def again(self, messages: Chat, header: bool = False, continued: bool = False) -> str:
        """The text of other, marked messages. RequestError."""
        return self.source.text(self.values, messages, header, continued)
