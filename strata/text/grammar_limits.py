"""What of a stranger's grammar is refused before llguidance sees it.

Its own limits bound most of the work of compiling, but they are looked at between single
operations. What makes one operation explode, or nest without bound, is counted here. Numbers are
of llguidance 1.9 on one core: each bound keeps a compile below some two seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from strata.types import RequestError

_TEXT = 256 << 10  # characters of a schema or grammar
_REGEX = 8 << 10  # of all different regular expressions: 4,000 optional parts take 1.4 s
_OPERATORS = 4096  # ? and the like of a Lark grammar, which join into one expression
# Texts that must match several expressions at once: 12 take 0.04 s, 18 take 0.4 s, 24 take 50 s.
_JOINED = 12
# An object's named properties (2,000 take 0.3 s, 10,000 take 8 s) and patterns of names, each of
# which is compared with each (64 take 0.02 s, 500 take 18 s).
_NAMES = {"properties": 2000, "patternProperties": 64}

_JOINING = ("$ref", "anyOf", "oneOf")
_LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"|/((?:\\.|[^/\\\n])+)/')
_JSON = re.compile(r"%json\s*")


def check_regex(text: str, field: str) -> None:
    """Raises RequestError when a regular expression is too long."""
    _check(len(text), _REGEX, "characters", field)


def check_schema(schema: object, field: str) -> None:
    """Raises RequestError when a schema is too large, or joins too many patterns."""
    patterns: set[str] = set()
    joins, size = False, 0
    todo = [schema]
    while todo:
        node = todo.pop()
        size += len(node) + 2 if isinstance(node, str) else 2
        if isinstance(node, list | tuple):
            todo += node
        elif isinstance(node, Mapping):
            todo += [*node, *node.values()]
            own = _patterns(node, field)
            patterns |= own
            joins = joins or "allOf" in node or (bool(own) and any(k in node for k in _JOINING))
        _check(size, _TEXT, "characters", field)
    _check(sum(map(len, patterns)), _REGEX, "characters of patterns", field)
    if joins:
        _check(len(patterns), _JOINED, "patterns and formats beside allOf, anyOf or $ref", field)


def _patterns(node: Mapping[Any, Any], field: str) -> set[str]:
    """The regular expressions that an object of a schema states, if it is one."""
    found = {node[key] for key in ("pattern", "format") if isinstance(node.get(key), str)}
    for key, most in _NAMES.items():
        names = node.get(key)
        if isinstance(names, Mapping):
            _check(len(names), most, f"{key} in one object", field)
            found |= set(names) if key == "patternProperties" else set()
    return found


def check_lark(text: str, field: str) -> None:
    """Raises RequestError when a Lark grammar, or a schema in it, is too large."""
    _check(len(text), _TEXT, "characters", field)
    plain: list[str] = []
    at = 0
    for match in _JSON.finditer(text):
        if match.start() < at:
            continue
        try:
            schema, end = json.JSONDecoder().raw_decode(text, match.end())
        except (RecursionError, ValueError):
            continue  # llguidance says what is wrong with it
        check_schema(schema, field)
        plain.append(text[at : match.start()])
        at = end
    rest = "".join((*plain, text[at:]))
    expressions = set(_LITERAL.findall(rest))
    _check(sum(map(len, expressions)), _REGEX, "characters of regular expressions", field)
    bare = _LITERAL.sub("", rest)
    _check(bare.count("&"), _JOINED, "joined expressions (&)", field)
    operators = sum(bare.count(sign) for sign in "?*+~[{")
    _check(operators, _OPERATORS, "operators", field)


def _check(count: int, most: int, what: str, field: str) -> None:
    if count > most:
        message = f"{field}: the grammar has more than {most} {what}; this server refuses it"
        raise RequestError(message, field=field)
