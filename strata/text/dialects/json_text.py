"""JSON as it arrives: one value of the text, told piece by piece until it is whole or broken.

Strict (RFC 8259), but for raw control characters inside strings, which models write for line
breaks and which are told escaped. Knows where a value ends; closing tags inside strings are text.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import regex

from strata.text.dialects.reader import Reader, Steps

_SCALAR = regex.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_STRING = regex.compile(
    r'"|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|[\x00-\x1f]|[^"\\\x00-\x1f]+', regex.DOTALL
)
_BLANK = r"[ \t\r\n]+"
_VALUE = rf'{_BLANK}|[{{\["]|([-+.\w]{{1,512}})[ \t\r\n,\]}}]'
# What may follow, by what is due. `}` and `]`: a value has come, and this bracket closes.
_DUE = {
    "value": regex.compile(_VALUE),
    "first item": regex.compile(rf"{_VALUE}|\]"),
    "first key": regex.compile(rf'{_BLANK}|["}}]'),
    "key": regex.compile(rf'{_BLANK}|"'),
    "colon": regex.compile(rf"{_BLANK}|:"),
    "}": regex.compile(rf"{_BLANK}|[,}}]"),
    "]": regex.compile(rf"{_BLANK}|[,\]]"),
}


def quoted(text: str) -> str:
    """A piece of a JSON string's inside."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def value(reader: Reader, put: Callable[[str], None]) -> Steps[bool]:
    """Put the JSON value that begins here. False: it is broken here, or the text ended in it."""
    due, closing = "value", list[str]()
    while True:
        found = yield from reader.match(_DUE[due])
        word = found[1] if found and found.re.groups else None
        if found is None or (word is not None and not _SCALAR.fullmatch(word)):
            if reader.ended:
                put(reader.rest())
            return False
        piece = reader.take(len(word or found[0]))
        put(piece)
        if piece.isspace():
            continue
        match piece:
            case ":":
                due = "value"
                continue
            case ",":
                due = "key" if closing[-1] == "}" else "value"
                continue
            case "{" | "[":
                closing.append("}" if piece == "{" else "]")
                due = "first key" if piece == "{" else "first item"
                continue
            case "}" | "]":
                closing.pop()
            case '"':
                if not (yield from _string(reader, put)):
                    return False
                if due in ("key", "first key"):
                    due = "colon"
                    continue
        if not closing:
            return True
        due = closing[-1]


def _string(reader: Reader, put: Callable[[str], None]) -> Steps[bool]:
    """Put a string's inside and its closing quote."""
    while True:
        found = yield from reader.match(_STRING)
        if found is None:
            if reader.ended:
                put(reader.rest())
            return False
        piece = reader.take(len(found[0]))
        put(quoted(piece) if piece < " " else piece)
        if piece == '"':
            return True
