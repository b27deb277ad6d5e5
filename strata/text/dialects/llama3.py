"""Calls as Llama 3 writes them: an answer that is bare JSON, or JSON after a token.

    {"name": "find", "parameters": {"text": "x"}}

Several are parted by `;` or by blanks. An object is a call only where an answer begins or after
another call, and if it begins with the name of a known function.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import regex

from strata.text.dialects import hermes, lark
from strata.text.dialects.reader import Reader, Steps, marker


class Llama3:
    """How calls are read, and rules for them."""

    markers: tuple[str, ...] = ("<|python_tag|>",)
    between = "; "

    def __init__(self, announced: Collection[str]) -> None:
        tag = marker(self.markers[0], announced)
        self.opener = f"{tag}|[;{{]"
        self._tag = regex.compile(tag)
        self._bare = regex.compile(r";|(?=\{)")

    def call(self, reader: Reader, tools: Mapping[str, Any], first: bool) -> Steps[bool]:
        """Read a call whose opener comes next, if it is one."""
        opened = yield from reader.match(self._tag)
        if opened is None and first:
            opened = yield from reader.match(self._bare)
        if opened is None:
            return False
        name = yield from hermes.head(reader, len(opened[0]), tools)
        if name is None:
            return False
        yield from hermes.body(reader, name)
        return True

    @staticmethod
    def rules(rule: str, name: str, schema: Any) -> str:
        """Grammar rules for a call of one function."""
        begin = lark.quoted(f'{{"name": {json.dumps(name, ensure_ascii=False)}, "parameters": ')
        return (
            f'{rule}: {begin} {rule}_parameters "}}"\n{rule}_parameters: {lark.arguments(schema)}\n'
        )
