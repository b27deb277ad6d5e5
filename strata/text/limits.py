"""What a running chat template may use up: time, space, and single operations that explode.

Knows sizes and the names of filters and methods; knows no jinja2 environment. A value's
size is its characters and `_ELEMENT` for each element, at any depth.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from time import thread_time
from typing import Any

from jinja2 import TemplateError
from jinja2.exceptions import SecurityError

DEPTH = 64
_SECONDS = 2.0
_TURNS = 64  # turns between two looks at the clock
_FREE = 1 << 20  # characters that any template may use
_SPEND = 32  # all values together, in values of the largest size
_ELEMENT = 16  # an element of a list or dict, in characters
_BITS = 4096  # of a whole number
_PADDED = re.compile(r"\d{5,}|\*|\{[^{}]*\{")  # format strings that could pad without bound
_REFUSED = frozenset(("encode", "to_bytes", "translate"))
_PADDING = frozenset(
    ("batch", "center", "expandtabs", "indent", "ljust", "rjust", "slice", "zfill")
)


class TooLarge(TemplateError):
    """The template used up its time or its space."""


class Budget:
    """What one rendering may still use. Times are seconds of this thread's CPU time."""

    def __init__(self, size: int) -> None:
        """For data of `size` characters."""
        self.deadline = thread_time() + _SECONDS
        self.largest = _FREE + 4 * size
        self.left = _SPEND * self.largest
        self.turns = 0

    def tick(self) -> None:
        """One turn. TooLarge when the time is over."""
        self.turns += 1
        if self.turns % _TURNS == 0 and thread_time() > self.deadline:
            raise TooLarge(f"the chat template ran for more than {_SECONDS:g} s")

    def allow(self, size: float) -> None:
        """TooLarge if a value of this size must not exist."""
        if size > self.largest:
            raise TooLarge(f"the chat template makes more than {self.largest} characters")

    def spend(self, value: Any) -> Any:
        """Account for a value that was just made; returns it."""
        if isinstance(value, (str, bytes, list, tuple, dict)):
            self.left -= len(value) * (1 if isinstance(value, (str, bytes)) else _ELEMENT)
            self.allow(measure(value, self.largest))
            if self.left < 0:
                raise TooLarge("the chat template makes too much text")
        elif isinstance(value, int) and value.bit_length() > _BITS:
            raise TooLarge(f"the chat template computes with numbers of more than {_BITS} bits")
        return value


def measure(value: Any, limit: int) -> int:
    """The size of a value; counting ends beyond `limit`."""
    total, todo = 0, [(value, 0)]
    while todo and total <= limit:
        item, depth = todo.pop()
        if isinstance(item, (str, bytes)):
            total += len(item)
        elif isinstance(item, (list, tuple, Mapping)):
            if depth >= DEPTH:
                raise TooLarge(f"the chat template nests values deeper than {DEPTH}")
            total += _ELEMENT * len(item)
            todo += [(inner, depth + 1) for inner in item]
            if isinstance(item, Mapping):
                todo += [(inner, depth + 1) for inner in item.values()]
    return total


def checked(
    budget: Budget, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The arguments of a filter or method (its value first), if its result can be allowed.

    Raises TooLarge, or SecurityError for methods that no template needs.
    """
    if name in _REFUSED:
        raise SecurityError(f"a chat template cannot call {name}")
    given = (*args[1:], *kwargs.values())
    for value in given if name in _PADDING else ():
        budget.allow(value if isinstance(value, int) else 0)
    if name in _CHECKS and args:
        args = (_CHECKS[name](budget, args[0], given), *args[1:])
    return args


def check_operator(budget: Budget, operator: str, left: Any, right: Any) -> None:
    """TooLarge if `left operator right` must not be computed."""
    if operator in ("*", "**"):
        _check_product(budget, operator, left, right)
    elif operator == "%" and isinstance(left, str):
        _check_format(budget, left, (right,))
    elif operator == "+" and isinstance(left, (str, list, tuple)):
        budget.allow(len(left) + (len(right) if isinstance(right, type(left)) else 0))


def _check_product(budget: Budget, operator: str, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * right if operator == "**" else left.bit_length()
        if max(bits, right.bit_length()) > _BITS:
            raise TooLarge(f"the chat template computes with numbers of more than {_BITS} bits")
    for value, count in ((left, right), (right, left)):
        if isinstance(value, (str, list, tuple)) and isinstance(count, int):
            budget.allow(measure(value, budget.largest) * max(count, 0))


# What a filter or method of that name makes of `value`, bounded before it runs.


def _check_join(budget: Budget, value: Any, given: tuple[Any, ...]) -> Any:
    if isinstance(value, str):  # the method: "separator".join(items)
        separator, items = value, list(given[0]) if given else []
        budget.allow(measure(items, budget.largest) + len(separator) * len(items))
        return value
    items, separator = list(value), str(given[0]) if given else ""
    budget.allow(measure(items, budget.largest) + len(separator) * len(items))
    return items


def _check_replace(budget: Budget, value: Any, given: tuple[Any, ...]) -> Any:
    texts = [item for item in given if isinstance(item, str)]
    if len(texts) >= 2:
        budget.allow(str(value).count(texts[0]) * len(texts[1]) + len(str(value)))
    return value


def _check_lines(budget: Budget, value: Any, given: tuple[Any, ...]) -> Any:
    text = str(value)
    marks = text.count("\n") + text.count("\r") + text.count("\t") + len(text) // 16
    budget.allow(marks * _width(given))
    return value


def _check_format(budget: Budget, value: Any, given: tuple[Any, ...]) -> Any:
    if _PADDED.search(str(value)):
        raise TooLarge("the chat template formats with a width that is not allowed")
    fields = str(value).count("%") + str(value).count("{")
    budget.allow(fields * measure(given, budget.largest))
    return value


def _check_json(budget: Budget, value: Any, given: tuple[Any, ...]) -> Any:
    if _width(given) > 32:
        raise TooLarge("the chat template indents JSON by more than 32 characters")
    return value


def _width(given: tuple[Any, ...]) -> int:
    widths = (item if isinstance(item, int) else len(str(item)) for item in given)
    return max(widths, default=0)


_CHECKS: dict[str, Callable[[Budget, Any, tuple[Any, ...]], Any]] = {
    "join": _check_join,
    "replace": _check_replace,
    "indent": _check_lines,
    "expandtabs": _check_lines,
    "format": _check_format,
    "format_map": _check_format,
    "tojson": _check_json,
}
