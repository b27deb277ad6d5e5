"""The official clients through every flow they have, against a server with a scripted model.

Each family is a program of its own in `flows`, run with its own packages; what it saw is compared
here with what the model said. All of them see the same answers.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from clients.script import COUNT, faults
from clients.world import World

FLOWS = Path(__file__).with_name("flows")
# How many flows each has: one that is never run is missed.
PYTHON = {"openai_python": 12, "anthropic_python": 8, "langchain_flows": 17, "litellm_flows": 9}
NODE = {"openai_node": 10, "anthropic_node": 6, "vercel": 21}


def check(world: World, count: int, *command: str | Path) -> None:
    done = subprocess.run(
        [*command, world.url],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin"},
    )
    seen: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [fault for saw in seen for fault in faults(saw)]
    assert not wrong, "\n".join(wrong)
    assert done.returncode == 0 and len(seen) == count, done.stderr[-3000:]
    left = sum(saw["flow"].endswith("early_close") for saw in seen)
    assert left and _cancelled(world.url, left) == left, "who leaves must be let go"


def _cancelled(url: str, wanted: int) -> int:
    """How many answers were given up in their middle; none may have failed."""
    end = time.monotonic() + 5
    while True:
        rows = httpx.get(f"{url}/v1/requests").json()["data"]
        assert not [row for row in rows if row["status"] == "failed"]
        count = sum(row["status"] == "cancelled" and row["output"] < COUNT for row in rows)
        if count >= wanted or time.monotonic() > end:
            return count
        time.sleep(0.05)


@pytest.mark.parametrize("family", PYTHON)
def test_python(world: World, python: Path, family: str) -> None:
    check(world, PYTHON[family], python, FLOWS / f"{family}.py")


@pytest.mark.parametrize("family", NODE)
def test_node(world: World, node: Path, family: str) -> None:
    program = shutil.which("node")
    assert program is not None
    check(world, NODE[family], program, node / f"{family}.mjs")
