"""Coding agents against Strata's real server, with a model that says what a script says.

Each agent runs from its npm package with a home of its own, is asked for one answer and then for
one thing that it needs its shell for. The model in the middle has no weights but the real prompts,
cache and scheduler (tests/clients/world.py), so the list of requests that is printed tells what
was really reused. Fails when an answer is wrong, when a request failed, or when the request after
the tool reuses less than the whole one before it. See README.md.

    python bench/agents.py [claude] [codex] [opencode]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from clients.world import Say, serving

from strata import config
from strata.files import fetch

ROOT = Path(__file__).parents[1]
PINS = ROOT / "bench" / "agents"
ASKED, COMMAND, PROOF = "Run the strata probe.", "echo probe-$((6*7))", "probe-42"
HEADER = 8  # tokens: how an answer begins, which its place in the history may write otherwise
LIMIT_S = 180


@dataclass(frozen=True)
class Agent:
    """`binary` within node_modules, its words before the question, what it reads on start."""

    binary: str
    words: tuple[str, ...]
    tool: str
    arguments: dict[str, Any]
    set_up: Callable[[Path, str], dict[str, str]]  # writes into a home; gives its environment


def _claude(home: Path, url: str) -> dict[str, str]:
    models = ("MODEL", "SMALL_FAST_MODEL", "DEFAULT_HAIKU_MODEL")
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "EMPTY",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        **{f"ANTHROPIC_{name}": "scripted" for name in models},
    }


def _codex(home: Path, url: str) -> dict[str, str]:
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(
        'model = "scripted"\nmodel_provider = "strata"\n\n[model_providers.strata]\n'
        f'name = "Strata"\nbase_url = "{url}/v1"\nenv_key = "STRATA_KEY"\nwire_api = "responses"\n'
    )
    return {"STRATA_KEY": "EMPTY"}


def _opencode(home: Path, url: str) -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Strata",
        "options": {"baseURL": f"{url}/v1", "apiKey": "EMPTY"},
        "models": {"scripted": {"name": "scripted"}},
    }
    settings = {"provider": {"strata": provider}, "model": "strata/scripted", "share": "disabled"}
    settings |= {"permission": {"bash": "allow"}, "autoupdate": False}
    place = home / ".config" / "opencode"
    place.mkdir(parents=True)
    (place / "opencode.json").write_text(json.dumps(settings))
    return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}


_SHELL = {"command": COMMAND, "description": "Runs the probe"}
AGENTS = {
    "claude": Agent(
        "@anthropic-ai/claude-code-linux-x64/claude",
        ("--allowedTools", "Bash", "-p"),
        "Bash",
        _SHELL,
        _claude,
    ),
    "codex": Agent(
        "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
        "exec_command",
        {"cmd": COMMAND},
        _codex,
    ),
    "opencode": Agent("opencode-linux-x64/bin/opencode", ("run",), "bash", _SHELL, _opencode),
}


def installed() -> Path:
    """node_modules with the agents, installed once for each state of the lock file."""
    lock = PINS / "package-lock.json"
    place = (
        ROOT / "build" / "clients" / f"agents-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    )
    if not (place / "whole").exists():
        place.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", lock.name):
            shutil.copy(PINS / name, place)
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(command, cwd=place, check=True)
        (place / "whole").touch()
    return place / "node_modules"


def try_agent(name: str, binaries: Path, words: Path) -> list[str]:
    """Drives one agent; prints its requests. What is wrong with it."""
    agent, problems = AGENTS[name], list[str]()

    def script(asked: str, _: str) -> Say:
        if "<tool_response>" in asked:
            found = re.search(r"probe-\d+", asked)
            return Say(f"The shell says {found[0] if found else 'nothing'}.", "The result is here.")
        if ASKED in asked and "title" not in asked.lower():
            return Say("", "The shell knows.", ((agent.tool, agent.arguments),))
        return Say("Hello from the script.", "Just a greeting.")

    with serving(words, script, ctx_size=100_000) as world, tempfile.TemporaryDirectory() as temp:
        home, place = Path(temp, "home"), Path(temp, "work")
        home.mkdir()
        place.mkdir()
        more = agent.set_up(home, world.url)
        environment = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "dumb", **more}
        for question, expected in (("Say hello.", "Hello from the script."), (ASKED, PROOF)):
            command = [str(binaries / agent.binary), *agent.words, question]
            done = subprocess.run(
                command,
                cwd=place,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
            if done.returncode or expected not in done.stdout:
                said = (done.stdout + done.stderr)[-1500:]
                problems.append(f"{name}: {question} ended with {done.returncode}: {said}")
        rows = httpx.get(f"{world.url}/v1/requests").json()["data"][::-1]
        return problems + judge(name, rows)


def judge(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """Prints the list of requests; what it shows to be wrong."""
    columns = ("prompt", "reused", "output", "status")
    print("\n" + name + "".join(f"{column:>10}" for column in columns))
    for row in rows:
        print(" " * len(name) + "".join(f"{row[column]:>10}" for column in columns))
    problems = [f"{name}: a request failed" for row in rows if row["status"] == "failed"]
    # The longest prompt is the one with the tool's result; the next is that which it goes on from.
    *_, before, after = sorted([{"prompt": 0}, *rows], key=lambda row: row["prompt"])
    if "reused" not in before or after["reused"] < before["prompt"] - HEADER:
        problems.append(f"{name}: the request after the tool did not reuse the one before it")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("agents", nargs="*", help=f"of {', '.join(AGENTS)}; all of them")
    chosen = parser.parse_args().agents or list(AGENTS)
    binaries = installed()
    words = fetch.locate("", config.cache_folder(config.environment()) / "models")
    problems = [problem for name in chosen for problem in try_agent(name, binaries, words)]
    for problem in problems:
        print(f"PROBLEM {problem}")
    print(f"agents: {'FAILED' if problems else 'passed'} ({len(chosen)} tried)")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
