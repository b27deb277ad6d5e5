"""What a parameter's JSON schema says about its value's type, as far as reading a value needs it.

A schema comes down to its leaves: the ways to satisfy it, references followed, `anyOf` and `oneOf`
as alternatives, `allOf` merged. Any JSON is taken for a schema; what is none allows everything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import islice, product
from typing import Any
from urllib.parse import unquote

_MOST = 64  # leaves of one schema; steps to find them: 1,024
_FIRST = {  # how a value of the type begins, in JSON or as templates write Python's words
    "null": "nN",
    "boolean": "tTfF",
    "integer": "-0123456789",
    "number": "-0123456789",
    "object": "{",
    "array": "[",
    "string": '"',
}
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_COMBINE = ("$ref", "allOf", "anyOf", "oneOf", "$defs", "definitions")
Leaf = Mapping[str, Any]


def mapping(value: Any) -> Mapping[str, Any]:
    """A JSON object, empty where there is none."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> list[Any]:
    """A JSON list, empty where there is none."""
    return value if isinstance(value, list) else []


def types(leaf: Leaf) -> frozenset[str]:
    """The types that a leaf allows."""
    stated = leaf.get("type")
    found = {str(name) for name in (stated if isinstance(stated, list) else [stated]) if name}
    if not found and ("enum" in leaf or "const" in leaf):
        found = {_type(value) for value in choices(leaf) or ()}
    found = found or (
        {"object"} if "properties" in leaf else {"array"} if "items" in leaf else set()
    )
    return frozenset(found) if found and found <= set(_FIRST) else frozenset(_FIRST)


def choices(leaf: Leaf) -> list[Any] | None:
    """The values that a leaf lists, or None."""
    if "const" in leaf:
        return [leaf["const"]]
    return leaf["enum"] if isinstance(leaf.get("enum"), list) else None


def _type(value: Any) -> str:
    """The narrowest type of a JSON value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    named = {type(None): "null", int: "integer", str: "string", list: "array"}
    return named.get(type(value), "object")


def _fits(value: Any, leaf: Leaf) -> bool:
    listed, kind = choices(leaf), _type(value)
    if listed is not None and json.dumps(value) not in map(json.dumps, listed):
        return False
    allowed = types(leaf)
    return kind in allowed or (kind == "integer" and "number" in allowed)


def _merged(left: Leaf, right: Leaf) -> Leaf:
    """Both at once; of what both state otherwise, the right one's."""
    both = {**left, **right}
    if "properties" in left and "properties" in right:
        both["properties"] = {**mapping(left["properties"]), **mapping(right["properties"])}
    if "required" in left and "required" in right:
        both["required"] = [*items(left["required"]), *items(right["required"])]
    return both


@dataclass(frozen=True, slots=True)
class Value:
    """What a parameter may be."""

    leaves: tuple[Leaf, ...]

    @property
    def text(self) -> bool:
        """It is a string, whatever it looks like."""
        return all(types(leaf) == {"string"} for leaf in self.leaves)

    @property
    def starts(self) -> str:
        """What values begin with that are no bare text; all others are strings, if allowed."""
        return "".join(sorted({c for leaf in self.leaves for t in types(leaf) for c in _FIRST[t]}))

    @property
    def stringly(self) -> bool:
        """It may be a string."""
        return any("string" in types(leaf) for leaf in self.leaves)

    def json(self, text: str) -> str:
        """A written value as JSON: of a type that is allowed, else as a string."""
        if not self.text:
            bare = _PYTHON.get(text.strip(), text.strip())
            try:
                value = json.loads(bare, parse_constant=_refuse)
            except (ValueError, RecursionError):
                pass
            else:
                if any(_fits(value, leaf) for leaf in self.leaves):
                    return bare
        return json.dumps(text, ensure_ascii=False)


def _refuse(word: str) -> None:
    raise ValueError(word)


class Schema:
    """A function's parameters."""

    def __init__(self, schema: Any) -> None:
        self.root = mapping(schema)
        self._steps = 0
        self.leaves = self._leaves(self.root)

    @property
    def names(self) -> set[str]:
        """The parameters that are declared."""
        return {name for leaf in self.leaves for name in mapping(leaf.get("properties"))}

    def parameter(self, name: str) -> Value:
        """What the schema says of one parameter, declared or not."""
        declared = [mapping(leaf.get("properties")) for leaf in self.leaves]
        found = [properties[name] for properties in declared if name in properties]
        return self.value(
            {"anyOf": found or [leaf.get("additionalProperties") for leaf in self.leaves]}
        )

    def possible(self, schema: Any) -> bool:
        """Whether a schema inside of this one allows anything, as far as types tell."""
        return bool(self._leaves(schema))

    def value(self, schema: Any) -> Value:
        """What a schema inside of this one allows."""
        return Value(tuple(self._leaves(schema)) or ({},))

    def _leaves(self, schema: Any) -> list[Leaf]:
        self._steps = 0
        return list(islice(self._walk(schema, ()), _MOST))

    def _walk(self, schema: Any, seen: tuple[str, ...]) -> Iterator[Leaf]:
        """The leaves, without those inside of themselves."""
        self._steps += 1
        if self._steps > 16 * _MOST or schema is False:
            return
        schema = mapping(schema)
        groups: list[Iterable[Any]] = [[part] for part in items(schema.get("allOf"))]
        groups += [items(schema[key]) for key in ("anyOf", "oneOf") if items(schema.get(key))]
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in seen:
                return
            seen = (*seen, reference)
            groups.insert(0, [self._target(reference)])
        own = {key: inner for key, inner in schema.items() if key not in _COMBINE}
        inner = [
            list(islice((leaf for part in group for leaf in self._walk(part, seen)), _MOST))
            for group in groups
        ]
        for parts in product(*inner):
            leaf = reduce(_merged, (*parts, own))
            listed = choices(leaf)
            if listed is None or any(_fits(value, leaf) for value in listed):
                yield leaf

    def _target(self, reference: str) -> Any:
        """What a reference into this schema means (RFC 6901); others allow everything."""
        if not reference.startswith("#"):
            return {}
        found: Any = self.root
        for step in unquote(reference[1:]).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
            else:
                found = mapping(found).get(step, {})
        return found
