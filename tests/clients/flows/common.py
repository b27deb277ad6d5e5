"""Runs a family's flows against the server at argv[1]; prints what each saw, one JSON a line."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

URL = sys.argv[1]
MODEL = "scripted"
CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "note": {"type": "string"},
    },
    "required": ["city", "days", "note"],
    "additionalProperties": False,
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def run(*flows: Callable[[], dict[str, Any]]) -> None:
    for flow in flows:
        try:
            saw = flow()
        except Exception:
            saw = {"error": traceback.format_exc()}
        print(json.dumps({"flow": flow.__name__, **saw}), flush=True)
