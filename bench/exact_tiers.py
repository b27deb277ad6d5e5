"""A model larger than its memory against the same model held whole: the same tokens?

Starts `strata serve` in a memory control group with a small `--expert-ram`, asks greedy answers
of random prompts, one after the other and four at once, with the cache and without it, and
compares them with those of a server that holds every expert. Then prints what the group held at
most, what the server says it needs, and where experts came from. See README.md.

    python bench/exact_tiers.py --model FILE [--cap 3GiB] [--expert-ram 1GiB] [-- flags]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from compare_tiers import Group, forget, prompt

from strata.memory.budget import parse_size, show_bytes

MAIN = "import sys; from strata.cli import main; sys.exit(main(sys.argv[1:]))"
Tokens = list[int]


@contextmanager
def server(model: Path, flags: list[str], group: Group | None) -> Iterator[str]:
    """`strata serve` on a free port; its URL once it is ready."""
    command = [sys.executable, "-c", MAIN, "serve", str(model), "--port", "0", "--batch", "4"]
    command += ["--ctx-size", "4096", "--cache-size", "256MiB", "--log-level", "warning", *flags]
    process = subprocess.Popen(
        group.command(command) if group else command, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            print("  |", line.rstrip(), file=sys.stderr)
            if line.startswith("ready "):
                found = re.search(r"http://[^/ ]+", line)
                assert found is not None
                yield found[0]
                return
        raise SystemExit("the server did not start")
    finally:
        process.terminate()
        process.wait(120)


async def answers(url: str, options: argparse.Namespace) -> dict[str, list[Tokens]]:
    """Greedy tokens of every prompt, by way of asking."""
    prompts = [prompt(options.prompt, n, options.vocab) for n in range(options.requests)]
    found: dict[str, list[Tokens]] = {}
    async with httpx.AsyncClient(base_url=url, timeout=None, trust_env=False) as client:
        for at_once in (1, 4):
            for cached in (False, True, True):  # the second time round it is warm
                gate = asyncio.Semaphore(at_once)
                name = f"batch {at_once}, cache {'on' if cached else 'off'}"
                name += " again" if name in found else ""
                jobs = [ask(client, gate, tokens, options.length, cached) for tokens in prompts]
                found[name] = await asyncio.gather(*jobs)
                print(f"  {name}: done", file=sys.stderr)
    return found


async def ask(
    client: httpx.AsyncClient, gate: asyncio.Semaphore, tokens: Tokens, length: int, cached: bool
) -> Tokens:
    """The tokens of one greedy answer."""
    body: dict[str, Any] = {
        "model": (await client.get("/v1/models")).json()["data"][0]["id"],
        "prompt": tokens, "max_tokens": length, "temperature": 0, "ignore_eos": True,
        "cache_prompt": cached, "return_token_ids": True,
    }  # fmt: skip
    async with gate:
        answer = await client.post("/v1/completions", json=body)
    answer.raise_for_status()
    ids: Tokens = answer.json()["choices"][0]["token_ids"]
    assert len(ids) == length
    return ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--cap", default="3GiB", help="memory of the group, page cache included")
    parser.add_argument("--expert-ram", default="1GiB")
    parser.add_argument("--requests", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=300, metavar="TOKENS")
    parser.add_argument("--length", type=int, default=24, metavar="TOKENS")
    parser.add_argument("--vocab", type=int, default=4000, help="token ids are below this")
    parser.add_argument("flags", nargs="*", help="flags of strata serve, after --")
    options = parser.parse_args()
    group = Group(f"strata-exact-{os.getpid()}", parse_size(options.cap, 0))
    forget(options.model)
    try:
        with server(
            options.model, ["--expert-ram", options.expert_ram, *options.flags], group
        ) as url:
            tiered = asyncio.run(answers(url, options))
            resident = group.resident()
            experts = httpx.get(f"{url}/v1/experts", trust_env=False).json()
    finally:
        peak = group.peak()
        group.remove()
    with server(options.model, [], None) as url:
        whole = asyncio.run(answers(url, options))
    wrong = 0
    for name, expected in whole.items():
        same = sum(a == b for a, b in zip(tiered[name], expected, strict=True))
        wrong += len(expected) - same
        print(f"{name}: {same} of {len(expected)} answers have the same tokens")
    alike = len({str(found) for found in whole.values()}) == 1
    print(f"all ways of asking give the same tokens: {'yes' if alike else 'NO'}")
    print(
        f"own memory {show_bytes(resident)}; the group's peak {show_bytes(peak)} of {options.cap}"
    )
    print(f"experts: {experts.get('total', experts)}")
    sys.exit(bool(wrong) or not alike)


if __name__ == "__main__":
    main()
