"""Calls as tags, a parameter's value as bare text: Qwen3-Coder, Qwen3.5 and later.

    <tool_call>
    <function=find>
    <parameter=text>
    x
    </parameter>
    </function>
    </tool_call>

The form has no escapes. A value ends at a closing tag that another parameter or the function's end
follows; so look-alikes are text. One line break on each side of a value is the template's. The
outer tags may be missing, since models forget them; so the letters of a call are a call, whatever
tokens spell them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from itertools import count
from typing import Any

import regex

from strata.text.dialects import json_text, lark
from strata.text.dialects.reader import Reader, Steps, marker
from strata.text.dialects.schema import Leaf, Schema, Value, choices, items, mapping, types
from strata.types import RequestError

_W = r"\s{0,32}"
_NEXT = rf"{_W}(?:<parameter=|</function>)"
_BODY = regex.compile(_NEXT)
_END = regex.compile(rf"{_W}</function>")
_PARAMETER = regex.compile(rf"{_W}<parameter=")
_CLOSE = regex.compile(rf"(\n?</parameter>){_NEXT}")
_JSON_CLOSE = regex.compile(rf"({_W}</parameter>){_NEXT}")
_LINE = regex.compile(r"\n")
_FIRST = regex.compile(rf"{_W}\S")
_NAME = regex.compile(r"([^>]{0,256})>")


def _name(reader: Reader, after: int, known: Iterable[str]) -> Steps[str | None]:
    """The name before a `>`: the longest known one, else any."""
    for name in sorted((name for name in known if ">" in name), key=len, reverse=True):
        if (yield from reader.match(regex.compile(regex.escape(f"{name}>")), after)):
            return name
    found = yield from reader.match(_NAME, after)
    return found[1] if found else None


class QwenXml:
    """How calls are read, and rules for them."""

    markers: tuple[str, ...] = ("<tool_call>", "</tool_call>")
    between = "\n"

    def __init__(self, announced: Collection[str]) -> None:
        begin = marker(self.markers[0], announced)
        self.opener = f"{begin}|<function="
        self._begin = regex.compile(rf"(?:{begin}{_W})?<function=")
        self._end = regex.compile(rf"{_W}{marker(self.markers[1], ())}")

    def call(self, reader: Reader, tools: Mapping[str, Any], first: bool) -> Steps[bool]:
        """Read a call whose opener comes next, if it is one."""
        opened = yield from reader.match(self._begin)
        if opened is None:
            return False
        name = yield from _name(reader, len(opened[0]), tools)
        if name is None or name not in tools:
            return False
        size = len(opened[0]) + len(name) + 1
        if (yield from reader.match(_BODY, size)) is None:
            return False
        reader.take(size)
        reader.begin_call(name)
        if (yield from _arguments(reader, Schema(tools[name]))):
            reader.end_call()
            yield from reader.skip(self._end)
        elif reader.ended:
            reader.rest()
        return True

    @staticmethod
    def rules(rule: str, name: str, schema: Any) -> str:
        """Grammar rules for a call of one function. Raises RequestError where there can be none."""
        parameters, numbers = Schema(schema), count()
        bodies, lines = [], []
        for leaf in parameters.leaves:
            undone = [key for key in _UNDONE if key in leaf]
            if undone or "object" not in types(leaf):
                what = undone[0] if undone else "type"
                raise RequestError(
                    f"calls of {name!r} cannot be forced: its parameters have {what!r}",
                    field="tools",
                )
            declared, required = mapping(leaf.get("properties")), items(leaf.get("required"))
            body = []
            for key in dict.fromkeys((*declared, *map(str, required))):
                inner = declared.get(key, leaf.get("additionalProperties"))
                if key not in required and not parameters.possible(inner):
                    continue
                part = f"{rule}_{next(numbers)}"
                body.append(part + ("" if key in required else "?"))
                lines.append(_parameter(part, key, inner, parameters))
            bodies.append(" ".join(body) or '""')
        begin = lark.quoted(f"<tool_call>\n<function={name}>\n")
        end = lark.quoted("</function>\n</tool_call>")
        alternatives = " | ".join(f"({body})" for body in bodies)
        return f"{rule}: {begin} ({alternatives}) {end}\n" + "".join(lines)


def _arguments(reader: Reader, schema: Schema) -> Steps[bool]:
    """Read and tell a call's parameters and its end."""
    before = "{"
    while (yield from reader.skip(_PARAMETER)):
        name = yield from _name(reader, 0, schema.names)
        if name is None:
            return False
        reader.take(len(name) + 1)
        yield from reader.skip(_LINE)
        reader.argue(f"{before}{json.dumps(name, ensure_ascii=False)}: ")
        if not (yield from _value(reader, schema.parameter(name))):
            return False
        before = ", "
    yield from reader.skip(_END)  # which is there: nothing else was let pass
    reader.argue("{}" if before == "{" else "}")
    return True


def _value(reader: Reader, value: Value) -> Steps[bool]:
    """Read and tell a value and its closing tag."""
    bare = value.text
    if not bare:
        first = yield from reader.match(_FIRST)
        last = first[0][-1] if first else " "
        bare = value.stringly and last not in value.starts
        if last in '{["' and last in value.starts:
            text = yield from _json(reader)
            if text is not None:
                reader.argue(value.json(text))
                return True
    if bare:
        reader.argue('"')
        closed = yield from reader.until(
            _CLOSE, lambda piece: reader.argue(json_text.quoted(piece))
        )
        reader.argue('"' if closed else "")
        return closed
    pieces: list[str] = []
    closed = yield from reader.until(_CLOSE, pieces.append)
    text = "".join(pieces)
    reader.argue(value.json(text) if closed else text)
    return closed


def _json(reader: Reader) -> Steps[str | None]:
    """Read a value that is JSON as a whole, and its closing tag; closing tags in it are text."""
    pieces: list[str] = []
    reader.keep()
    whole = yield from json_text.value(reader, pieces.append)
    close = (yield from reader.match(_JSON_CLOSE)) if whole else None
    if close is None:
        reader.back()
        return None
    reader.go_on()
    reader.take(len(close[1]))
    return "".join(pieces)


# ------------------------------------------------------------------ grammar

_ANYTHING = r"(?s:.*)"
_CLOSING = r"\n</parameter>"
_PLAIN = {"type", "title", "description", "default", "examples"}
_UNDONE = (
    *("not", "if", "dependentRequired", "dependentSchemas", "dependencies", "propertyNames"),
    *("minProperties", "maxProperties", "unevaluatedProperties"),
)


def _parameter(rule: str, name: str, schema: Any, parameters: Schema) -> str:
    """Rules for one parameter: strings as bare text, all else as JSON."""
    value, term = parameters.value(schema), rule.upper()
    begin = lark.quoted(f"<parameter={name}>\n")
    json_rule = f'{rule}_json "\\n</parameter>\\n"'
    json_line = f"{rule}_json: {lark.value(schema, parameters.root)}\n"
    if value.text:
        bare = " | ".join(_text(leaf) for leaf in value.leaves)
        return f'{rule}: {begin} {term} "\\n"\n{term}: {bare}\n'
    plain = any(types(leaf) == {"string"} and set(leaf) <= _PLAIN for leaf in value.leaves)
    if not plain:
        return f"{rule}: {begin} {json_rule}\n{json_line}"
    starts = "".join(f"\\x{ord(char):02x}" for char in value.starts)
    bare = _ended(rf"[^\s{starts}]{_ANYTHING}")
    return f'{rule}: {begin} ({json_rule} | {term} "\\n")\n{json_line}{term}: {bare}\n'


def _text(leaf: Leaf) -> str:
    """A terminal for bare text that a string's leaf allows, and its closing tag."""
    listed = choices(leaf)
    if listed is not None:
        texts = [f"{text}\n</parameter>" for text in listed if isinstance(text, str)]
        return " | ".join(map(lark.quoted, texts))
    least, most = (leaf.get(key) for key in ("minLength", "maxLength"))
    least = least if isinstance(least, int) else 0
    bounds = f"{{{least},{most if isinstance(most, int) else ''}}}"
    bare = _ended(f"(?s:.){bounds}")
    if isinstance(leaf.get("pattern"), str):
        bare += f" & {lark.pattern(_anchored(leaf['pattern']) + _CLOSING)}"
    return bare


def _ended(source: str) -> str:
    """A terminal for text, without any closing tag but the one that ends it."""
    inside = lark.pattern(rf"{_ANYTHING}</parameter>(?s:.+)")
    return f"{lark.pattern(source + _CLOSING)} & ~{inside}"


def _anchored(source: str) -> str:
    """A schema's pattern, which is searched for, as one for the whole text."""
    begin = source.startswith("^")
    end = source.endswith("$") and not source.endswith("\\$")
    inner = source[1 if begin else 0 : -1 if end else None]
    return f"{'' if begin else _ANYTHING}(?:{inner}){'' if end else _ANYTHING}"
