"""Thousands of requests of random shape against a server of its own; a third are cut off.

Sixteen clients send chats, texts and token ids, streamed and whole, with shared and fresh
prefixes, salts, stop strings, several choices and wrong fields now and then; a third of them
close the connection at a random moment. Then every greedy answer that was completed is asked for
again with the cache off and must be the same, token for token. In the end nothing may run, all
pages must be free or reusable, and the process must not have grown. See README.md.

    python bench/soak.py [--requests 2000] [--clients 16] [--seed 1] [-- flags of strata serve]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

TEXT = (
    "the river runs past a quiet town where people bake bread, mend nets and count the days "
    "until spring; nobody asks the old clock why it is always late, because 世界 turns anyway 🙂 "
    "and café doors open at seven. Paris, Rome, Oslo: which is north? def f(x): return x * 2"
)
CUT = 1 / 3
GROWTH = 64 << 20
"""Bytes that the process may grow by between the first quarter of the run and its end."""


@dataclass
class Outcome:
    """What came of all requests."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    greedy: list[tuple[str, dict[str, Any], list[Any]]] = field(default_factory=list)


# ------------------------------------------------------------------- random requests


def text(source: random.Random, words: int) -> str:
    """Random words."""
    return " ".join(source.choices(TEXT.split(), k=words))


class Shapes:
    """Makes requests; prefixes come from a pool, so that many share one."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.pool = [text(self.source, self.source.randrange(20, 900)) for _ in range(12)]

    def opening(self) -> str:
        """A prefix: shared whole, shared in part, or fresh."""
        source = self.source
        if source.random() < 0.2:
            return text(source, source.randrange(1, 200))
        base = source.choice(self.pool)
        return base if source.random() < 0.5 else base[: source.randrange(1, len(base))]

    def make(self) -> tuple[str, dict[str, Any]]:
        """A path and a body."""
        source = self.source
        body: dict[str, Any] = {
            "max_tokens": source.choice((1, 2, 5, 16, 40, 80)),
            "stream": source.random() < 0.6,
            "return_token_ids": True,
            "ignore_eos": source.random() < 0.3,
        }
        if source.random() < 0.6:
            body["temperature"] = 0
        else:
            body |= {"temperature": source.uniform(0.1, 1.5), "seed": source.randrange(1000)}
            body |= {"top_p": source.uniform(0.5, 1), "top_k": source.choice((0, 5, 50))}
        if source.random() < 0.15:
            body["n"] = source.randrange(2, 4)
        if source.random() < 0.15:
            body["stop"] = source.sample(["the", ".", "é", "\n\n"], 2)
        if source.random() < 0.1:
            body["cache_salt"] = source.choice("ab")
        if source.random() < 0.05:
            body["cache_prompt"] = False
        if source.random() < 0.1:
            body["presence_penalty"] = source.uniform(-1, 1)
        return self._addressed(body)

    def _addressed(self, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        source = self.source
        if source.random() < 0.6:
            turns = [{"role": "system", "content": self.opening()}]
            for _ in range(source.choice((0, 0, 1, 2))):
                turns.append({"role": "user", "content": text(source, 6)})
                turns.append({"role": "assistant", "content": text(source, 12)})
            turns.append({"role": "user", "content": text(source, source.randrange(0, 30))})
            if source.random() < 0.1:
                body |= {"logprobs": True, "top_logprobs": 3}
            return "/v1/chat/completions", body | {"messages": turns}
        if source.random() < 0.3:
            base = random.Random(source.randrange(4))
            ids = [base.randrange(1000, 40_000) for _ in range(600)][: source.randrange(1, 600)]
            return "/v1/completions", body | {"prompt": ids}
        return "/v1/completions", body | {"prompt": self.opening()}


# ------------------------------------------------------------------- clients


def tokens_of(body: dict[str, Any], chunks: list[dict[str, Any]]) -> list[Any]:
    """Token ids and finish reason of each choice, from a whole answer or its chunks."""
    found: list[list[Any]] = [[[], None] for _ in range(body.get("n", 1))]
    for chunk in chunks:
        for choice in chunk["choices"]:
            place = found[choice["index"]]
            place[0] += choice.get("token_ids") or []
            place[1] = choice.get("finish_reason") or place[1]
    return found


async def exchange(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], outcome: Outcome
) -> list[Any] | None:
    """One whole request: its tokens, or None if something was wrong."""
    async with client.stream("POST", path, json=body) as answer:
        raw = await answer.aread()
    outcome.counts[f"status {answer.status_code}"] += 1
    if answer.status_code != 200:
        outcome.wrong.append(f"{answer.status_code}: {raw[:200]!r}")
        return None
    if not body["stream"]:
        return tokens_of(body, [json.loads(raw)])
    events = [line[6:] for line in raw.decode().splitlines() if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        outcome.wrong.append(f"a stream without an end: {events[-1:]}")
        return None
    return tokens_of(body, [json.loads(event) for event in events[:-1]])


async def cut_off(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], after: float, outcome: Outcome
) -> None:
    """One request that its client leaves after so many seconds, wherever it is."""
    try:
        async with asyncio.timeout(after):
            async with client.stream("POST", path, json=body) as answer:
                outcome.counts[f"status {answer.status_code}"] += 1
                if answer.status_code != 200:
                    outcome.wrong.append(f"{answer.status_code}: {(await answer.aread())[:200]!r}")
                await answer.aread()
        outcome.counts["completed before the cut"] += 1
    except TimeoutError:
        outcome.counts["cut off"] += 1


async def play(url: str, options: argparse.Namespace, outcome: Outcome, watch: Watch) -> None:
    """All requests from `clients` clients side by side."""
    shapes = Shapes(options.seed)
    numbers = iter(range(options.requests))

    async def one_client() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=None, trust_env=False) as client:
            for _ in numbers:
                path, body = shapes.make()
                if shapes.source.random() < CUT:
                    after = shapes.source.choice((0.001, 0.02, 0.1, 0.5, 2)) * (
                        shapes.source.random() * 2
                    )
                    await cut_off(client, path, body, after, outcome)
                else:
                    found = await exchange(client, path, body, outcome)
                    if found is not None and body["temperature"] == 0:
                        outcome.greedy.append((path, body, found))
                watch.note()

    await asyncio.gather(*[one_client() for _ in range(options.clients)])


async def compare(url: str, options: argparse.Namespace, outcome: Outcome) -> None:
    """Every greedy answer once more, cold: no lookup, nothing kept."""
    left = iter(outcome.greedy)

    async def one_client() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=None, trust_env=False) as client:
            for path, body, expected in left:
                cold = body | {"cache_prompt": False}
                if (found := await exchange(client, path, cold, outcome)) != expected:
                    outcome.wrong.append(f"greedy answer differs: {expected} cold {found}")

    await asyncio.gather(*[one_client() for _ in range(options.clients)])


# ------------------------------------------------------------------- the server


class Watch:
    """The server's memory while requests run. `grown` counts from a quarter of the way."""

    def __init__(self, pid: int, requests: int) -> None:
        self._pid, self._requests = pid, requests
        self._began = time.monotonic()
        self._base = self._done = 0

    def rss(self) -> int:
        """Bytes that the server holds now."""
        status = Path(f"/proc/{self._pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    def note(self) -> None:
        """A request has ended."""
        self._done += 1
        if self._done == self._requests // 4:
            self._base = self.rss()
        if self._done % max(1, self._requests // 20) == 0:
            spent = time.monotonic() - self._began
            text = f"  {self._done} requests, {spent:.0f} s, {self.rss() >> 20} MiB"
            print(text, file=sys.stderr, flush=True)

    @property
    def grown(self) -> int:
        """Bytes since a quarter of the requests were through."""
        return self.rss() - self._base


def start(flags: list[str]) -> tuple[subprocess.Popen[str], str]:
    """`strata serve` on a free port, and its URL once it is ready."""
    code = "import sys; from strata.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "serve", "--port", "0", "--log-level", "warning", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("ready "):
            found = re.search(r"http://[^/ ]+", line)
            assert found is not None
            return process, found[0]
    raise SystemExit("the server did not start")


def metrics(url: str) -> dict[str, float]:
    """The values of GET /metrics by name and labels."""
    page = httpx.get(f"{url}/metrics", trust_env=False).text
    lines = [line.rsplit(" ", 1) for line in page.splitlines() if line and line[0] != "#"]
    return {name: float(value) for name, value in lines}


def leaks(url: str, watch: Watch) -> list[str]:
    """What has not come back to where it was."""
    for _ in range(100):
        now = metrics(url)
        busy = {
            name: value
            for name, value in now.items()
            if name.startswith(("vllm:num_requests_running", "vllm:num_requests_waiting"))
        }
        if not any(busy.values()):
            break
        time.sleep(0.1)
    found = [f"{name} is {value}" for name, value in busy.items() if value]
    total, free, cached = (
        now[f'strata_cache_pages{{state="{state}"}}'] for state in ("total", "free", "cached")
    )
    if free + cached != total:
        found.append(f"{total - free - cached} of {total} pages are lost")
    if watch.grown > GROWTH:
        found.append(f"the server grew by {watch.grown >> 20} MiB")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("flags", nargs="*", help="flags of strata serve, after --")
    options = parser.parse_args()
    # A small cache, so that there is eviction and preemption all the time.
    process, url = start(["--cache-size", "256MiB", "--ctx-size", "4096", *options.flags])
    try:
        outcome, watch = Outcome(), Watch(process.pid, options.requests)
        asyncio.run(play(url, options, outcome, watch))
        print(f"{len(outcome.greedy)} greedy answers to compare with a cold run", file=sys.stderr)
        asyncio.run(compare(url, options, outcome))
        problems = outcome.wrong + leaks(url, watch)
        print(f"{dict(sorted(outcome.counts.items()))}, grown by {watch.grown >> 20} MiB")
        print(f"{len(outcome.greedy)} greedy answers compared with a cold run")
    finally:
        process.terminate()
        code = process.wait(60)
    if code != 0:
        problems.append(f"the server ended with {code}")
    for problem in problems[:20]:
        print(f"PROBLEM {problem}")
    print(f"soak: {'FAILED' if problems else 'passed'} ({len(problems)} problems)")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
