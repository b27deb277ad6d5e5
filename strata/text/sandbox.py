"""Running a chat template that came with a model file, and so from anywhere.

jinja2's immutable sandbox keeps a template away from Python; this module bounds what
it can use up. It sees the language that transformers gives to templates: `tojson`
without HTML escapes, `raise_exception`, `strftime_now`, loop controls, `generation`.

Invariants while a template runs:
  every turn of a loop, call, filter and operator looks at the clock;
  no value is larger than `Budget.largest` (characters, and elements at any depth) or
  nested deeper than `DEPTH`: whatever makes a value is checked, and what could be too
  large at one blow (`*`, join, replace, padding) is refused before it is made;
  all values made together are no larger than `Budget.left`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from time import thread_time
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.environment import Template
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

DEPTH = 64
_SECONDS = 2.0
_TURNS = 256  # turns between two looks at the clock
_FREE = 1 << 20  # characters that any template may use
_SPEND = 32  # all values together, in values of the largest size
_PADDED = re.compile(r"\d{5,}|\*|\{[^{}]*\{")  # format strings that could pad without bound
_UNSUPPORTED = frozenset("pprint random striptags urlize wordwrap xmlattr".split())
_UNSAFE_METHODS = frozenset("encode to_bytes translate".split())
_PADDING = frozenset("batch center expandtabs indent ljust rjust slice zfill".split())


class TooLarge(TemplateError):
    """The template used up its time or its space."""


@dataclass(slots=True)
class Budget:
    """What one rendering may still use. Times are seconds of this thread's CPU time."""

    deadline: float
    largest: int
    left: int
    turns: int = 0

    @classmethod
    def of(cls, size: int) -> Budget:
        """For data of `size` characters."""
        largest = _FREE + 4 * size
        return cls(thread_time() + _SECONDS, largest, _SPEND * largest)

    def tick(self) -> None:
        """One turn. TooLarge when the time is over."""
        self.turns += 1
        if self.turns % _TURNS == 0:
            self.look()

    def look(self) -> None:
        """TooLarge when the time is over."""
        if thread_time() > self.deadline:
            raise TooLarge(f"the chat template ran for more than {_SECONDS:g} s")

    def allow(self, size: float) -> None:
        """TooLarge if a value of this size must not exist."""
        if size > self.largest:
            raise TooLarge(f"the chat template makes more than {self.largest} characters")

    def spend(self, value: Any) -> Any:
        """Account for a value that was just made; returns it."""
        if isinstance(value, (str, bytes, list, tuple, dict)):
            self.left -= len(value)
            self.allow(measure(value, self.largest))
            if self.left < 0:
                raise TooLarge("the chat template makes too much text")
        elif isinstance(value, int) and value.bit_length() > 4096:
            raise TooLarge("the chat template computes with numbers of more than 4096 bits")
        return value


def measure(value: Any, limit: int) -> int:
    """Characters and elements of a value at any depth; counting ends beyond `limit`."""
    total, todo = 0, [(value, 0)]
    while todo and total <= limit:
        item, depth = todo.pop()
        if isinstance(item, (str, bytes)):
            total += len(item)
        elif isinstance(item, (list, tuple, Mapping)):
            if depth >= DEPTH:
                raise TooLarge(f"the chat template nests values deeper than {DEPTH}")
            total += len(item)
            todo += [(inner, depth + 1) for inner in item]
            if isinstance(item, Mapping):
                todo += [(inner, depth + 1) for inner in item.values()]
    return total


class _Generation(Extension):
    """`{% generation %}`: marks an assistant's text for training; here only its content counts."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's protocol)

    def parse(self, parser: Parser) -> nodes.Node:
        """The tag's content, in a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Guarding(NodeTransformer):
    """Puts a check where jinja2's compiled code would run without asking the sandbox."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        """A turn of the loop."""
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("tick", []), lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        """`a ~ b`."""
        self.generic_visit(node)
        return _call("joined", node.nodes)

    def _made(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        return node if getattr(node, "ctx", "load") == "store" else _call("made", [node])

    visit_List = visit_Tuple = visit_Dict = _made

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        """`a[1:2]`, which copies."""
        self.generic_visit(node)
        return _call("made", [node]) if isinstance(node.arg, nodes.Slice) else node


def _call(name: str, arguments: list[nodes.Expr]) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), arguments, [], None, None)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one chat template. Thread safe: a rendering has its own Budget."""

    intercepted_binops = frozenset({"+", "*", "%", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, loopcontrols],
            optimized=False,
        )
        self._budget: ContextVar[Budget] = ContextVar("budget")
        self.globals.pop("lipsum")
        self.globals |= {"raise_exception": _raise, "strftime_now": _now, "namespace": _Names}
        self.filters["tojson"] = _to_json
        self.filters = {
            name: self._guarded(name, filter_)
            for name, filter_ in self.filters.items()
            if name not in _UNSUPPORTED
        }
        self.tests = {name: self._guarded(name, test) for name, test in self.tests.items()}

    def compiled(self, source: str) -> Template:
        """A template of this environment. Raises jinja2.TemplateError."""
        tree = _Guarding().visit(self.parse(source))
        return Template.from_code(self, self.compile(tree), self.make_globals(None))

    def run(self, template: Template, variables: Mapping[str, Any]) -> str:
        """The template's text. Raises TooLarge, and whatever the template raises."""
        budget = Budget.of(measure(variables, 1 << 40))
        token = self._budget.set(budget)
        try:
            return self.concat(template.generate(variables))
        finally:
            self._budget.reset(token)

    # ------------------------------------------- called by compiled templates

    def tick(self) -> None:
        """One turn of a loop."""
        self._budget.get().tick()

    def made(self, value: Any) -> Any:
        """A value that the template wrote down."""
        return self._budget.get().spend(value)

    def joined(self, *values: Any) -> str:
        """`a ~ b`."""
        return self.concat(str(value) for value in values)

    def concat(self, parts: Any) -> str:  # type: ignore[override]
        """Join the parts of an output, which are strings, within the budget."""
        budget, kept, size = self._budget.get(), [], 0
        for part in parts:
            size += len(part)
            budget.allow(size)
            budget.tick()
            kept.append(part)
        budget.left -= size
        return "".join(kept)

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """A function or method call of the template."""
        budget = self._budget.get()
        budget.tick()
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, (str, bytes, int)):
            args = self._checked(obj.__name__, (owner, *args), kwargs)[1:]
        return budget.spend(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """`+`, `*`, `%` and `**`."""
        budget = self._budget.get()
        budget.tick()
        if operator in ("*", "**"):
            _check_product(budget, operator, left, right)
        elif operator == "%" and isinstance(left, str):
            self._checked("format", (left, right), {})
        elif operator == "+" and isinstance(left, (str, list, tuple)):
            budget.allow(len(left) + (len(right) if isinstance(right, type(left)) else 0))
        return budget.spend(super().call_binop(context, operator, left, right))

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter or test that keeps to the budget."""
        skip = 1 if hasattr(function, "jinja_pass_arg") else 0

        @wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            budget = self._budget.get()
            budget.tick()
            checked = self._checked(name, args[skip:], kwargs)
            return budget.spend(function(*args[:skip], *checked, **kwargs))

        return guarded

    def _checked(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """The arguments (the value first), if what comes out can be of allowed size."""
        budget = self._budget.get()
        if name in _UNSAFE_METHODS:
            raise SecurityError(f"a chat template cannot call {name}")
        given = (*args[1:], *kwargs.values())
        for value in given if name in _PADDING else ():
            budget.allow(value if isinstance(value, int) else 0)
        if name in _CHECKS and args:
            args = (_CHECKS[name](budget, args[0], given), *args[1:])
        return args


def _check_product(budget: Budget, operator: str, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * right if operator == "**" else left.bit_length()
        if max(bits, right.bit_length()) > 4096:
            raise TooLarge("the chat template computes with numbers of more than 4096 bits")
    for value, count in ((left, right), (right, left)):
        if isinstance(value, (str, list, tuple)) and isinstance(count, int):
            budget.allow(measure(value, budget.largest) * max(count, 0))


# What a filter or method of that name makes of `value`, bounded before it runs.


def _check_join(budget: Budget, value: Any, given: tuple[Any, ...]) -> Any:
    if isinstance(value, str):  # the method: "separator".join(items)
        separator, items = value, list(given[0]) if given else []
        budget.allow(measure(items, budget.largest) + len(separator) * len(items))
        return value
    items, separators = list(value), [str(item) for item in given[:1]]
    budget.allow(measure(items, budget.largest) + sum(map(len, separators)) * len(items))
    return items


def _check_replace(budget: Budget, value: Any, given: tuple[Any, ...]) -> Any:
    texts = [item for item in given if isinstance(item, str)]
    if len(texts) >= 2:
        budget.allow(str(value).count(texts[0]) * len(texts[1]) + len(str(value)))
    return value


def _check_lines(budget: Budget, value: Any, given: tuple[Any, ...]) -> Any:
    text = str(value)
    widths = [item if isinstance(item, int) else len(str(item)) for item in given]
    marks = text.count("\n") + text.count("\r") + text.count("\t") + len(text) // 16
    budget.allow(marks * max(widths, default=0))
    return value


def _check_format(budget: Budget, value: Any, given: tuple[Any, ...]) -> Any:
    if _PADDED.search(str(value)):
        raise TooLarge("the chat template formats with a width that is not allowed")
    fields = str(value).count("%") + str(value).count("{")
    budget.allow(fields * measure(given, budget.largest))
    return value


def _check_json(budget: Budget, value: Any, given: tuple[Any, ...]) -> Any:
    widths = [item if isinstance(item, int) else len(str(item)) for item in given]
    if max(widths, default=0) > 32:
        raise TooLarge("the chat template indents JSON by more than 32 characters")
    return value


_CHECKS: dict[str, Callable[[Budget, Any, tuple[Any, ...]], Any]] = {
    "join": _check_join,
    "replace": _check_replace,
    "indent": _check_lines,
    "expandtabs": _check_lines,
    "format": _check_format,
    "format_map": _check_format,
    "tojson": _check_json,
}


class _Names(Namespace):
    """jinja2's namespace, without names that begin with an underscore."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"a chat template cannot set {name!r}")
        super().__setitem__(name, value)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> Iterator[str]:
    raise TemplateError(str(message))


def _now(format: str) -> str:
    return datetime.now().strftime(format)
