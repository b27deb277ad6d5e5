"""Pieces of llguidance's grammars: its variant of Lark, with JSON schemas inside.

Source: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# JSON as templates write it, so that the call looks alike when it comes back in a history.
_WRITTEN = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def quoted(text: str) -> str:
    """A text that stands for itself."""
    return json.dumps(text)


def pattern(source: str) -> str:
    """A regular expression between its slashes."""
    out, escaped = [], False
    for char in source:
        out.append("\\/" if char == "/" and not escaped else "\\n" if char == "\n" else char)
        escaped = char == "\\" and not escaped
    return f"/{''.join(out)}/"


def value(schema: Any, root: Mapping[str, Any]) -> str:
    """JSON that a schema allows; its references lead into `root`."""
    schema = schema if isinstance(schema, Mapping) else {}
    shared = {key: root[key] for key in ("$defs", "definitions") if key in root}
    return f"%json {json.dumps({**shared, **schema, 'x-guidance': _WRITTEN})}"


def arguments(schema: Any) -> str:
    """A function's arguments: an object that its parameters' schema allows."""
    schema = schema if isinstance(schema, Mapping) else {}
    return value(schema if "type" in schema else {"type": "object", **schema}, schema)
