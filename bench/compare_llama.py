"""Strata against llama.cpp: the same file, the same threads, in turns within one run.

Both programs are loaded beside each other and measured alternately, round after round, so that a
machine that slows down slows both. Prints medians and ratios as a Markdown table; --json keeps
every single measurement. See README.md.

    python bench/compare_llama.py [--rounds 5] [--threads 2] [--model FILE ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
import venv
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from requantise import requantise

from strata.cli.machine import usable_cores
from strata.cli.terminal import Progress
from strata.config import cache_folder, environment
from strata.files import fetch, open_model, type_name

HERE = Path(__file__).parent
PEER = "xllamacpp==2026.10.11549"
PROMPTS = (512, 2048, 6000)
ROWS = (1, 2, 4, 8)
DECODE_LENGTH = 128
SHORT_PROMPT = 16
CONTEXT = 8192
# Least ratio to llama.cpp with 2 threads, by architecture and the file's main format.
HYBRID = {"read": 1.5, "decode 1": 1.3, "decode 8": 1.6}
GOALS = {
    "llama Q4_1": {"read": 2.5, "decode 1": 1.5, "decode 8": 3.5},
    "llama Q4_0": {"read": 1.5, "decode 1": 1.4, "decode 8": 2.0},
    "qwen3next Q4_K": HYBRID,
    "qwen3next Q8_0": HYBRID,
    "qwen35moe Q4_K": HYBRID,
    "qwen35moe Q8_0": HYBRID,
}
HTTP_GOAL = 0.95
HIT_GOAL = 0.02


def prompt(length: int, seed: int) -> list[int]:
    """Random token ids: no two prompts share a prefix."""
    source = random.Random(seed)
    return [source.randrange(1000, 30_000) for _ in range(length)]


class Side:
    """One program in a process of its own, asked by JSON lines."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.facts: dict[str, str] = self._read()

    def ask(self, op: str, **what: Any) -> Any:
        """Have one measurement made."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op} | what) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args[1]} ended: see its message above")  # type: ignore[index]
        return json.loads(line)

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def peer_python(folder: Path) -> Path:
    """The interpreter of a venv that holds llama.cpp; made the first time."""
    at = folder / "bench" / PEER.replace("==", "-")
    python = at / "bin" / "python"
    if not (at / "ready").exists():
        print(f"installing {PEER} into {at}", file=sys.stderr)
        venv.create(at, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", PEER], check=True)
        (at / "ready").touch()
    return python


def default_files(folder: Path) -> list[Path]:
    """The default model as it ships and requantised to what llama.cpp is best at."""
    shipped = fetch.locate("", folder / "models", Progress())
    other = folder / "bench" / "SmolLM2-135M-Instruct.Q4_0.gguf"
    if not other.exists():
        print(f"requantising to {other}", file=sys.stderr)
        other.parent.mkdir(parents=True, exist_ok=True)
        requantise(shipped, other, "Q4_0")
    return [shipped, other]


def kind_of(path: Path) -> str:
    """The architecture, and the format of most of a file's weights."""
    file = open_model(path)
    counts: Counter[str] = Counter()
    for tensor in file.tensors.values():
        counts[type_name(tensor.format)] += tensor.data.nbytes
    return f"{file.architecture} {counts.most_common(1)[0][0]}"


# ------------------------------------------------------------------- through HTTP


async def stream(url: str, body: dict[str, Any]) -> tuple[float, float]:
    """Seconds until the first token and until the end of a streamed completion."""
    parts = urlsplit(url)
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    payload = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    )
    writer.write(head.encode() + payload)
    first, tail = 0.0, b""
    while piece := await reader.read(1 << 16):
        if not first and b"data:" in piece:
            first = time.perf_counter() - began
        tail = (tail + piece)[-4096:]
    writer.close()
    if b"[DONE]" not in tail or not first:
        raise SystemExit(f"{url} did not finish an answer: {tail[-300:]!r}")
    return first, time.perf_counter() - began


def request(tokens: list[int], length: int, cached: bool) -> dict[str, Any]:
    """A greedy streamed completion of exactly `length` tokens, as both servers take it."""
    return {
        "prompt": tokens,
        "max_tokens": length,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": cached,
        "stream": True,
    }


def first_token(side: Side, tokens: list[int]) -> float:
    """Seconds to the first token of a prompt that may be cached."""
    return asyncio.run(stream(side.facts["url"], request(tokens, 1, True)))[0]


def http_rate(side: Side, prompts: list[list[int]], length: int) -> float:
    """Total tokens a second of answers streamed side by side, by the wall clock."""

    async def all_of_them() -> float:
        began = time.perf_counter()
        bodies = [request(tokens, length, False) for tokens in prompts]
        await asyncio.gather(*[stream(side.facts["url"], body) for body in bodies])
        return length * len(prompts) / (time.perf_counter() - began)

    return asyncio.run(all_of_them())


# ------------------------------------------------------------------- one file


@dataclass
class Results:
    """All measurements of one file: measure -> side -> one number a round."""

    kind: str
    programs: dict[str, str]
    numbers: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, measure: str, side: str, value: float) -> None:
        """Note one measurement."""
        self.numbers.setdefault(measure, {}).setdefault(side, []).append(value)

    def median(self, measure: str, side: str) -> float:
        """The middle one of the rounds."""
        return statistics.median(self.numbers[measure][side])

    def ratio(self, measure: str) -> float:
        """Strata's median over llama.cpp's."""
        return self.median(measure, "strata") / self.median(measure, "llama")


def measure(file: Path, options: argparse.Namespace, peer: Path) -> Results:
    """Run all rounds on one file."""
    common = [str(file), str(options.threads), str(max(ROWS)), str(CONTEXT)]
    sides = {
        "strata": Side([sys.executable, str(HERE / "strata_side.py"), *common, options.kernels]),
        "llama": Side([str(peer), str(HERE / "llama_side.py"), *common]),
    }
    try:
        facts = {name: f"{s.facts['program']}: {s.facts['system']}" for name, s in sides.items()}
        results = Results(kind_of(file), facts)
        for side in sides.values():  # warm up: pages of the file, first use of every code path
            side.ask("prompt", tokens=prompt(64, 0))
            side.ask("decode", prompts=[prompt(SHORT_PROMPT, n) for n in range(8)], length=8)
        for number in range(options.rounds):
            print(f"{file.name}: round {number + 1} of {options.rounds}", file=sys.stderr)
            one_round(results, sides, number, options.prompts)
        return results
    finally:
        for side in sides.values():
            side.stop()


def one_round(results: Results, sides: dict[str, Side], number: int, lengths: list[int]) -> None:
    """Every measure once on both sides; who begins changes from round to round."""
    names = list(sides)[:: 1 if number % 2 == 0 else -1]

    def both(what: str, run: Callable[[Side], float]) -> None:
        for name in names:
            results.add(what, name, run(sides[name]))
            value = results.numbers[what][name][-1]
            print(f"  {what}, {name}: {value:.4g}", file=sys.stderr, flush=True)

    for length in lengths:
        tokens = prompt(length, 10 * number + length)
        both(f"read {length}", lambda side, t=tokens: side.ask("prompt", tokens=t))  # type: ignore[misc]
    for rows in ROWS:
        short = [prompt(SHORT_PROMPT, 100 * number + n) for n in range(rows)]
        both(
            f"decode {rows}",
            lambda side, p=short: side.ask("decode", prompts=p, length=DECODE_LENGTH),  # type: ignore[misc]
        )
    short = [prompt(SHORT_PROMPT, 1000 + 10 * number + n) for n in range(8)]
    strata = sides["strata"]
    order = [("bare", lambda: strata.ask("wall", prompts=short, length=DECODE_LENGTH))]
    order += [("http", lambda: http_rate(strata, short, DECODE_LENGTH))]
    for name, run in order[:: 1 if number % 2 == 0 else -1]:
        results.add("overhead", name, run())
    tokens = prompt(max(lengths), 5000 + number)
    both("first token, cold", lambda side: first_token(side, tokens))
    both("first token, hit", lambda side: first_token(side, tokens))


# ------------------------------------------------------------------- the report


def table(results: Results) -> str:
    """Medians and ratios of one file, and whether they reach the goals."""
    goals = GOALS.get(results.kind, {})
    lines = [f"### {results.kind}", ""]
    lines += [f"{name}: {text}  " for name, text in results.programs.items()]
    lines += ["", "| measure | Strata | llama.cpp | ratio | goal |", "|---|---|---|---|---|"]
    for what in results.numbers:
        if what.startswith(("read", "decode")):
            goal = goals.get(what, goals.get(what.split()[0]))
            ours, theirs = (results.median(what, side) for side in ("strata", "llama"))
            row = f"| {what}, tokens/s | {ours:.0f} | {theirs:.0f} | {results.ratio(what):.2f} |"
            lines.append(f"{row} {verdict(results.ratio(what), goal)} |")
    for what in ("first token, cold", "first token, hit"):
        ours, theirs = (1000 * results.median(what, side) for side in ("strata", "llama"))
        lines.append(f"| {what}, ms | {ours:.0f} | {theirs:.0f} | | |")
    hit, cold = (results.median(f"first token, {k}", "strata") for k in ("hit", "cold"))
    within = "reached" if hit / cold < HIT_GOAL else "MISSED"
    lines += [
        "",
        f"A full hit takes {100 * hit / cold:.2f} % of the cold time"
        f" (goal: less than {100 * HIT_GOAL:.0f} %, {within}).  ",
        overhead(results),
    ]
    return "\n".join(lines)


def overhead(results: Results) -> str:
    """HTTP streaming against the bare engine, 8 rows."""
    http, bare = (results.median("overhead", kind) for kind in ("http", "bare"))
    return (
        f"Eight rows streamed over HTTP: {http:.0f} tokens/s of the bare engine's {bare:.0f}:"
        f" {http / bare:.3f} (goal {verdict(http / bare, HTTP_GOAL)})."
    )


def verdict(ratio: float, goal: float | None) -> str:
    """`1.5, reached`."""
    return "" if goal is None else f"{goal}, {'reached' if ratio >= goal else 'MISSED'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--model", type=Path, action="append", help="GGUF file; repeat for several")
    parser.add_argument("--prompts", type=int, nargs="+", default=PROMPTS, metavar="TOKENS")
    parser.add_argument("--kernels", default="auto", help="as in strata serve")
    parser.add_argument("--llama-python", type=Path, help="an interpreter that has xllamacpp")
    parser.add_argument("--json", type=Path, help="keep every measurement here")
    options = parser.parse_args()
    folder = cache_folder(environment())
    peer = options.llama_python or peer_python(folder)
    files = options.model or default_files(folder)
    everything = []
    print(f"# Strata and llama.cpp, {options.threads} threads, medians of {options.rounds} rounds")
    for file in files:
        results = measure(file, options, peer)
        everything.append(vars(results) | {"file": file.name, "threads": options.threads})
        print(f"\n{table(results)}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(everything, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
