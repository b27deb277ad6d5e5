"""How models write reasoning and calls of tools: one module a form, and a table of them.

A model's form is known from its chat template, which shows it to the model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from strata.text.dialects import lark
from strata.text.dialects.hermes import Hermes
from strata.text.dialects.llama3 import Llama3
from strata.text.dialects.qwen_xml import QwenXml
from strata.text.dialects.reader import Reader, Steps
from strata.types import RequestError

_THINK = ("<think>", "</think>")


class Form(Protocol):
    """How calls are written in one form.

    markers: texts that may be single tokens. between: what parts calls. opener: a pattern for
    what a call may begin with.
    """

    markers: tuple[str, ...]
    between: str
    opener: str

    def __init__(self, announced: Collection[str]) -> None: ...

    def call(self, reader: Reader, tools: Mapping[str, Any], first: bool) -> Steps[bool]:
        """Read a call whose opener comes next. False: it is none, and nothing was read.

        first: only blanks were read since the answer's or the last call's end.
        """
        ...

    @staticmethod
    def rules(rule: str, name: str, schema: Any) -> str:
        """Grammar rules, the first named `rule`, for a call of one function. Or RequestError."""
        ...


_FORMS: tuple[tuple[str, type[Form]], ...] = (  # what a template has in it
    ("<function=", QwenXml),
    ("<tool_call>", Hermes),
    ("<|python_tag|>", Llama3),
    ('"parameters": ', Llama3),
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one model speaks.

    think_open, think_close: the tags around its reasoning, or None. form: of its calls.
    tokens: markers that are single tokens of its vocabulary.
    """

    think_open: str | None
    think_close: str | None
    form: type[Form]
    tokens: frozenset[str]

    def markers(self, forced: bool = False) -> frozenset[str]:
        """The markers that count as tokens only, for TextStream and Segmenter.

        forced: the answer's calls are forced by a grammar, which may spell theirs.
        """
        return self.tokens & {*_THINK} if forced else self.tokens

    def tool_grammar(self, tools: Mapping[str, Any], choice: str, parallel: bool) -> str:
        """A grammar for llguidance: one call of a tool, or with `parallel` one or more.

        tools: name -> schema of its parameters. choice: "required", or one tool's name. The
        grammar begins after the reasoning. Raises RequestError for a choice that is no tool.
        """
        names = list(tools) if choice == "required" else [choice]
        if not names or not tools.keys() >= set(names):
            raise RequestError(f"tool_choice: there is no tool {choice!r}", field="tool_choice")
        calls = [f"call{number}" for number in range(len(names))]
        again = f" ({lark.quoted(self.form.between)} call)*" if parallel else ""
        return f'start: "\\n\\n"? call{again}\ncall: {" | ".join(calls)}\n' + "".join(
            map(self.form.rules, calls, names, map(tools.__getitem__, names))
        )


def of(template_source: str, added_tokens: Collection[str]) -> Dialect:
    """The dialect of a model, by its chat template and the texts of its added tokens."""
    thinks = any(_THINK[1] in place for place in (template_source, added_tokens))
    form = next((form for sign, form in _FORMS if sign in template_source), Hermes)
    markers = {*_THINK, *form.markers}
    return Dialect(
        think_open=_THINK[0] if thinks else None,
        think_close=_THINK[1] if thinks else None,
        form=form,
        tokens=frozenset(markers.intersection(added_tokens)),
    )
