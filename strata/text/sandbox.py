"""Running a chat template that came with a model file, and so from anywhere.

jinja2's immutable sandbox keeps a template away from Python; this module bounds what it can use up
(see `limits` for sizes). Every turn of a loop, call, filter and operator looks at the clock.
Whatever makes a value is checked, and what could be too large at one blow (`*`, join, replace,
padding) is refused before; all values made together are bounded, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.environment import Template
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from strata.text.limits import Budget, check_operator, checked, measure

# Filters that no chat template needs and that could run for long, or give another text each time.
_DROPPED = ("pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr")


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
        """A turn of the loop, and one of its filter (`tick` is false, so the test decides)."""
        self.generic_visit(node)
        if node.test is not None:
            node.test = nodes.Or(_call("tick", []), node.test, lineno=node.lineno)
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
    """The environment of one chat template, with the language that transformers gives to them.

    Thread safe: a rendering has its own Budget.
    """

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
        for name in _DROPPED:
            del self.filters[name]
        tables: tuple[dict[str, Any], ...] = (self.filters, self.tests)
        for table in tables:
            table.update({name: self._guarded(name, function) for name, function in table.items()})

    def compiled(self, source: str) -> Template:
        """A template of this environment. Raises jinja2.TemplateError."""
        tree = _Guarding().visit(self.parse(source))
        return Template.from_code(self, self.compile(tree), self.make_globals(None))

    def run(self, template: Template, variables: Mapping[str, Any]) -> str:
        """The template's text. Raises TooLarge, and whatever the template raises."""
        token = self._budget.set(Budget(measure(variables, 1 << 40)))
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

    def concat(self, parts: Iterable[str]) -> str:
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
        method = getattr(obj, "__wrapped__", obj)  # the sandbox wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, (str, bytes, int)):
            args = checked(budget, method.__name__, (owner, *args), kwargs)[1:]
        return budget.spend(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """`+`, `*`, `%` and `**`."""
        budget = self._budget.get()
        budget.tick()
        check_operator(budget, operator, left, right)
        return budget.spend(super().call_binop(context, operator, left, right))

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter or test that keeps to the budget."""
        skip = 1 if hasattr(function, "jinja_pass_arg") else 0

        @wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            budget = self._budget.get()
            budget.tick()
            allowed = checked(budget, name, args[skip:], kwargs)
            return budget.spend(function(*args[:skip], *allowed, **kwargs))

        return guarded


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
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> Iterator[str]:
    raise TemplateError(str(message))


def _now(format: str) -> str:
    return datetime.now().strftime(format)
