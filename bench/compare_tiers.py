"""Strata against llama.cpp on a model larger than memory: one file, one cap, in turns.

Each program runs in a memory control group of its own with the same limit, page cache included:
Strata with its experts in a record file and `--expert-ram`, llama.cpp on the mapped GGUF. They are
measured alternately, round after round. Needs the right to make control groups. Prints medians and
ratios as a Markdown table, and what each group held at most. See README.md.

    python bench/compare_tiers.py --model FILE [--cap 3GiB] [--expert-ram 1GiB] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sides import HERE, Side, peer_python

from strata.cli.machine import usable_cores
from strata.config import cache_folder, environment
from strata.memory.budget import parse_size, show_bytes

CONTEXT = 4096
SHORT_PROMPT = 16
GOAL = 2.0


class Group:
    """A memory control group with a limit on everything in it, the page cache too."""

    def __init__(self, name: str, limit: int) -> None:
        unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
        self._path = Path("/sys/fs/cgroup", *([] if unified else ["memory"]), name)
        self._path.mkdir()
        file = "memory.max" if unified else "memory.limit_in_bytes"
        (self._path / file).write_text(str(limit), encoding="ascii")
        self._peak = "memory.peak" if unified else "memory.max_usage_in_bytes"

    def command(self, command: list[str]) -> list[str]:
        """The command, run inside."""
        enter = f'echo $$ > {self._path}/cgroup.procs; exec "$@"'
        return ["sh", "-c", enter, "sh", *command]

    def peak(self) -> int:
        """The most bytes that were charged at once: up to the limit, where page cache fills it."""
        return int((self._path / self._peak).read_text(encoding="ascii"))

    def resident(self) -> int:
        """Bytes of the processes' own memory now, without the page cache."""
        pids = (self._path / "cgroup.procs").read_text(encoding="ascii").split()
        pages = [Path("/proc", pid, "statm").read_text(encoding="ascii").split() for pid in pids]
        own = sum(int(fields[1]) - int(fields[2]) for fields in pages)
        return own * os.sysconf("SC_PAGE_SIZE")

    def remove(self) -> None:
        """Once its processes have ended."""
        self._path.rmdir()


def forget(path: Path) -> None:
    """Drop a file from the page cache: what was read outside a group is charged to nobody."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def prompt(length: int, seed: int, vocab: int) -> list[int]:
    """Random token ids: no two prompts share a prefix."""
    source = random.Random(seed)
    return [source.randrange(100, vocab) for _ in range(length)]


@contextmanager
def sides(options: argparse.Namespace) -> Iterator[tuple[dict[str, Side], dict[str, Group]]]:
    """Both programs, loaded, each in its group."""
    common = [str(options.model), str(options.threads), str(max(options.rows)), str(CONTEXT)]
    settings = [f"expert_ram={options.expert_ram}", "cache_size=256MiB", *options.set]
    peer = options.llama_python or peer_python(cache_folder(environment()))
    commands = {
        "strata": [sys.executable, str(HERE / "strata_side.py"), *common, "auto", *settings],
        "llama": [str(peer), str(HERE / "llama_side.py"), *common, "mapped"],
    }
    cap = parse_size(options.cap, 0)
    groups = {name: Group(f"strata-bench-{os.getpid()}-{name}", cap) for name in commands}
    running: dict[str, Side] = {}
    try:
        for name, command in commands.items():
            forget(options.model)
            running[name] = Side(groups[name].command(command))
        yield running, groups
    finally:
        for side in running.values():
            side.stop()
        for group in groups.values():
            group.remove()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds; who begins changes from round to round."""
    numbers: dict[str, dict[str, list[float]]] = {}
    with sides(options) as (running, groups):
        for side in running.values():  # warm up: what is done once, each record's first check
            side.ask("prompt", tokens=prompt(512, 99, options.vocab))
        for number in range(options.rounds):
            for name in list(running)[:: 1 if number % 2 == 0 else -1]:
                for what, order in orders(options, number):
                    value = running[name].ask(**order)
                    numbers.setdefault(what, {}).setdefault(name, []).append(value)
                    print(f"  {number} {what}, {name}: {value:.4g}", file=sys.stderr, flush=True)
        held = {n: {"peak": g.peak(), "resident": g.resident()} for n, g in groups.items()}
        facts = {name: side.facts for name, side in running.items()}
    return {"numbers": numbers, "memory": held, "facts": facts}


def orders(options: argparse.Namespace, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The measures of a round."""
    for length in options.prompts:
        tokens = prompt(length, 10 * number + length, options.vocab)
        yield f"read {length}", {"op": "prompt", "tokens": tokens}
    for rows in options.rows:
        short = [prompt(SHORT_PROMPT, 100 * number + n, options.vocab) for n in range(rows)]
        yield f"decode {rows}", {"op": "decode", "prompts": short, "length": options.length}


def table(results: dict[str, Any], options: argparse.Namespace) -> str:
    """Medians and ratios, and the memory held."""
    lines = [
        f"{name}: {facts['program']}: {facts['system']}  "
        for name, facts in results["facts"].items()
    ]
    lines += [
        "",
        f"| tokens/s, cap {options.cap} | Strata | llama.cpp | ratio | goal |",
        "|---|---|---|---|---|",
    ]
    for what, both in results["numbers"].items():
        ours, theirs = (statistics.median(both[name]) for name in ("strata", "llama"))
        verdict = "reached" if ours / theirs >= GOAL else "MISSED"
        lines.append(
            f"| {what} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} | {GOAL}, {verdict} |"
        )
    lines.append("")
    for name, held in results["memory"].items():
        own, peak = show_bytes(held["resident"]), show_bytes(held["peak"])
        lines.append(f"{name} held {own} of its own at the end; its group held {peak} at most.  ")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="GGUF file, larger than the cap")
    parser.add_argument("--cap", default="3GiB", help="memory of each program, page cache included")
    parser.add_argument("--expert-ram", default="1GiB", help="as in strata serve")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other settings")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--prompts", type=int, nargs="+", default=[512, 2048], metavar="TOKENS")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4], metavar="N")
    parser.add_argument("--length", type=int, default=24, help="tokens of an answer")
    parser.add_argument("--vocab", type=int, default=4000, help="token ids are below this")
    parser.add_argument("--llama-python", type=Path, help="an interpreter that has xllamacpp")
    parser.add_argument("--json", type=Path, help="keep every measurement here")
    options = parser.parse_args()
    results = measure(options)
    print(table(results, options))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
