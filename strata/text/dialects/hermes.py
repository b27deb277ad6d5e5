"""Calls as JSON between tags, as Hermes and Qwen2.5 to Qwen3 write them, or in a fence.

    <tool_call>
    {"name": "find", "arguments": {"text": "x"}}
    </tool_call>

Between tags the keys may come in any order (Hermes 2 writes the arguments first; such a call is
told when it is whole). Qwen2.5-Coder writes the same object in a fence of JSON; there it is a call
only if it begins with the name of a known function.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import regex

from strata.text.dialects import json_text, lark
from strata.text.dialects.reader import Reader, Steps, marker

_W = r"\s{0,32}"
_HEAD = regex.compile(
    rf'{_W}\{{{_W}(?:"type"{_W}:{_W}"function"{_W},{_W})?'
    rf'"name"{_W}:{_W}("(?:[^"\\]|\\.){{0,256}}"){_W},{_W}"(?:arguments|parameters)"{_W}:{_W}\{{'
)
_FENCE = regex.compile(r"```(?:json)?[ \t]{0,8}\n")
_FENCE_END = regex.compile(rf"{_W}```")
_BRACE = regex.compile(rf"{_W}\{{")
_BRACE_END = regex.compile(rf"{_W}\}}")


def head(reader: Reader, after: int, tools: Collection[str]) -> Steps[str | None]:
    """Read up to a call's arguments, `after` characters from here: the name of a known function."""
    found = yield from reader.match(_HEAD, after)
    name = _loaded(found[1]) if found else None
    if found is None or not isinstance(name, str) or name not in tools:
        return None
    reader.take(after + len(found[0]) - 1)
    return name


def body(reader: Reader, name: str) -> Steps[bool]:
    """Read and tell a call from its arguments on, up to the brace that closes its object."""
    reader.begin_call(name)
    if not (yield from json_text.value(reader, reader.argue)):
        return False
    reader.end_call()
    return (yield from reader.skip(_BRACE_END))


class Hermes:
    """How calls are read, and rules for them."""

    markers: tuple[str, ...] = ("<tool_call>", "</tool_call>")
    between = "\n"

    def __init__(self, announced: Collection[str]) -> None:
        begin = marker(self.markers[0], announced)
        self.opener = f"{begin}|```"
        self._begin = regex.compile(begin)
        self._end = regex.compile(rf"{_W}{marker(self.markers[1], ())}")

    def call(self, reader: Reader, tools: Mapping[str, Any], first: bool) -> Steps[bool]:
        """Read a call whose opener comes next, if it is one."""
        tagged = yield from reader.match(self._begin)
        opened = tagged or (yield from reader.match(_FENCE))
        if opened is None:
            return False
        name = yield from head(reader, len(opened[0]), tools)
        if name is not None:
            if (yield from body(reader, name)):
                yield from reader.skip(self._end if tagged else _FENCE_END)
            return True
        if tagged is None:
            return False
        return (yield from self._whole(reader, len(tagged[0]), tools))

    def _whole(self, reader: Reader, after: int, tools: Collection[str]) -> Steps[bool]:
        """Read a call whose keys come in another order."""
        brace = yield from reader.match(_BRACE, after)
        if brace is None:
            return False
        reader.keep()
        reader.take(after + len(brace[0]) - 1)
        pieces: list[str] = []
        whole = yield from json_text.value(reader, pieces.append)
        called = _loaded("".join(pieces)) if whole else None
        if not isinstance(called, dict) or not isinstance(called.get("name"), str):
            called = {}
        given = called.get("arguments", called.get("parameters", {}))
        given = _loaded(given) if isinstance(given, str) else given
        if called.get("name") not in tools or not isinstance(given, dict):
            reader.back()
            return False
        reader.go_on()
        reader.begin_call(called["name"])
        reader.argue(json.dumps(given, ensure_ascii=False))
        reader.end_call()
        yield from reader.skip(self._end)
        return True

    @staticmethod
    def rules(rule: str, name: str, schema: Any) -> str:
        """Grammar rules for a call of one function."""
        begin = lark.quoted(
            f'<tool_call>\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '
        )
        end = lark.quoted("}\n</tool_call>")
        return (
            f"{rule}: {begin} {rule}_arguments {end}\n{rule}_arguments: {lark.arguments(schema)}\n"
        )


def _loaded(text: str) -> Any:
    """A JSON text's value, or None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
