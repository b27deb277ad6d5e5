"""The cases of a public suite of tool calls, as chats with tools in OpenAI's form.

`bfcl-eval` ships them as data inside its wheel, which pip fetches once into build/; nothing of it
is installed or imported. Names of functions lose their dots and types become JSON Schema's, as the
suite's own adapters do it; objects with properties admit no others, as OpenAI's strict mode has it
(else a small model makes up one after another, and no answer ends).
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PIN = "bfcl-eval==2026.3.23"
FOLDER = Path(__file__).parents[1] / "build" / "bfcl"
SINGLE = ("simple_python", "multiple", "parallel", "parallel_multiple")  # 400 + 200 + 200 + 200
MULTI = ("base", "long_context", "miss_func", "miss_param")  # 200 each
MORE = ("live_simple", "live_multiple", "simple_java", "simple_javascript", "live_irrelevance")
_TYPES = {
    **dict.fromkeys(("float", "double"), "number"),
    **dict.fromkeys(("byte", "short", "long", "Bigint"), "integer"),
    **dict.fromkeys(("list", "tuple", "ArrayList", "Array", "Queue", "Stack"), "array"),
    **dict.fromkeys(("dict", "HashMap", "Hashtable"), "object"),
    **dict.fromkeys(("any", "Any", "char", "String"), "string"),
    "bool": "boolean",
}
# Which file has the functions of a class that a case involves.
_DOCS = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}


@dataclass(frozen=True)
class Case:
    """A chat: what is said to the model before each of its turns, and the tools."""

    id: str
    turns: tuple[list[dict[str, Any]], ...]
    tools: list[dict[str, Any]]


class Suite:
    """The wheel's data, fetched if it is not there."""

    def __init__(self) -> None:
        if not list(FOLDER.glob("*.whl")):
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", PIN]
            subprocess.run([*command, "--dest", str(FOLDER)], check=True)
        self._wheel = zipfile.ZipFile(next(FOLDER.glob("*.whl")))

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The objects of one data file."""
        text = self._wheel.read(f"bfcl_eval/data/{name}.json").decode()
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    def single(self, *kinds: str) -> Iterator[Case]:
        """Cases of one turn."""
        for kind in kinds or SINGLE:
            for case in self.lines(f"BFCL_v4_{kind}"):
                yield Case(case["id"], tuple(case["question"]), tools(case["function"]))

    def multi(self) -> Iterator[Case]:
        """Cases of several turns. A turn in which the suite reveals a tool says so in words."""
        for kind in MULTI:
            for case in self.lines(f"BFCL_v4_multi_turn_{kind}"):
                known: list[dict[str, Any]] = []
                for one in case["involved_classes"]:
                    known += self.lines(f"multi_turn_func_doc/{_DOCS[one]}")
                revealed = [{"role": "user", "content": "What you lacked is there: go on."}]
                turns = tuple(turn or revealed for turn in case["question"])
                yield Case(case["id"], turns, tools(known))


def tools(functions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Function tools of the suite's definitions."""
    made = []
    for one in functions:
        function = {
            "name": one["name"].replace(".", "_")[:64],
            "description": one["description"],
            "parameters": schema(one["parameters"]),
        }
        made.append({"type": "function", "function": function})
    return made


def schema(of: Any, names: bool = False) -> Any:
    """A JSON Schema of the suite's; `names`: the keys of `of` are properties, not keywords."""
    if isinstance(of, list):
        return [schema(one) for one in of]
    if not isinstance(of, dict):
        return of
    made = {}
    for key, value in of.items():
        if key == "type" and not names and isinstance(value, str):
            made[key] = _TYPES.get(value, value)
        elif key in ("default", "enum", "description") and not names:
            made[key] = value
        else:
            made[key] = schema(value, key == "properties" and not names)
    if not names and made.get("properties") and made.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made
