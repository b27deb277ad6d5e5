"""Strata, llama.cpp's server and mlx-lm on one trace of chats: what each finds again.

Each program runs in a virtual environment of its own, one after the other, on the same random
hybrid model (`strata synth qwen3_next`: a GGUF for the first two, a folder for the third) and
plays the phases of `chat_trace.py` from an empty cache. Then a second server of the same kind
answers every chat once more, alone and one after the other, as the measure of a cold answer.
Prints one Markdown table. See README.md.

    python bench/compare_servers.py [--servers strata llama.cpp mlx-lm] [--words 700] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from chat_trace import Chat, Message, Phase, phases
from server_kinds import KINDS, Running, models
from tokenizers import Tokenizer


@dataclass
class Answer:
    """One chat as it went. Times in seconds; `gaps` between its tokens."""

    phase: str
    prompt: list[int]
    text: str = ""
    tokens: int = 0
    cached: int | None = None
    reusable: int = 0
    first: float | None = None
    gaps: list[float] = field(default_factory=list)
    error: str | None = None
    scored: bool = False
    running: bool = False
    same: bool = False
    cut: bool = False


# ------------------------------------------------------------------- the prompts


class Prompts:
    """Counts what could be reused. The model's template is ChatML, whose tokens are known."""

    def __init__(self, tokenizer: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._seen: list[list[int]] = []

    def tokens(self, messages: Sequence[Message]) -> list[int]:
        """The prompt's token ids."""
        text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
        ids = self._tokenizer.encode(text + "<|im_start|>assistant\n", add_special_tokens=False)
        return list(ids.ids)

    def reusable(self, prompt: list[int]) -> int:
        """Tokens that an earlier prompt, or one of the same burst, begins with too."""
        best = max((_common(prompt, other) for other in self._seen), default=0)
        self._seen.append(prompt)
        return min(best, len(prompt) - 1)


def _common(a: list[int], b: list[int]) -> int:
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


# ------------------------------------------------------------------- one chat


async def ask(server: Running, chat: Chat, answer: Answer, *, cold: bool = False) -> None:
    """Stream one chat into `answer`."""
    await asyncio.sleep(chat.after)
    body = {
        "model": server.model,
        "messages": chat.messages,
        "max_tokens": chat.tokens,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **({"cache_prompt": False} if cold else {}),
    }
    clock = asyncio.get_running_loop().time
    begun = last = clock()
    try:
        async with server.client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                answer.error = f"HTTP {response.status_code}"
                return
            async for line in response.aiter_lines():
                event = _event(line)
                if event is None:
                    continue
                now = clock()
                if _take(event, answer):
                    if answer.first is None:
                        answer.first = now - begun
                    else:
                        answer.gaps.append(now - last)
                    last = now
    except Exception as error:  # a server that breaks off is a result, not a failure of ours
        answer.error = type(error).__name__


def _event(line: str) -> dict[str, Any] | None:
    if not line.startswith("data:") or line[5:].strip() == "[DONE]":
        return None
    event = json.loads(line[5:])
    return event if isinstance(event, dict) else None


def _take(event: dict[str, Any], answer: Answer) -> bool:
    """Note what an event says; whether it brought text."""
    usage = event.get("usage")
    if usage:
        details = usage.get("prompt_tokens_details") or {}
        answer.cached = details.get("cached_tokens", answer.cached)
        answer.tokens = usage.get("completion_tokens", answer.tokens)
    piece = ""
    for choice in event.get("choices") or ():
        piece += (choice.get("delta") or {}).get("content") or ""
    answer.text += piece
    return bool(piece)


# ------------------------------------------------------------------- the trace


async def play(server: Running, plan: Sequence[Phase], prompts: Prompts) -> list[Answer]:
    """Every phase, from an empty cache."""
    answers: list[Answer] = []
    for phase in plan:
        tasks = []
        for chat in phase.chats:
            prompt = prompts.tokens(chat.messages)
            answer = Answer(
                phase.name, prompt, reusable=prompts.reusable(prompt), same=phase.same,
                scored=phase.scored and not chat.running, running=chat.running,
            )  # fmt: skip
            answers.append(answer)
            tasks.append(asyncio.create_task(_limited(server, chat, answer)))
        await asyncio.gather(*tasks)
    return answers


async def _limited(server: Running, chat: Chat, answer: Answer) -> None:
    try:
        await asyncio.wait_for(ask(server, chat, answer), chat.cancel or 900)
    except TimeoutError:
        answer.cut = True


async def alone(server: Running, plan: Sequence[Phase]) -> list[Answer]:
    """Every chat once, one after the other, with nothing cached where that can be asked for."""
    known: dict[str, Answer] = {}
    answers = []
    for chat in (chat for phase in plan for chat in phase.chats):
        key = json.dumps(chat.messages)
        if key not in known:
            known[key] = Answer("cold", [])
            if chat.cancel is None:
                await ask(server, Chat(chat.messages, chat.tokens), known[key], cold=True)
        answers.append(known[key])
    return answers


# ------------------------------------------------------------------- the table


def rows(answers: list[Answer], cold: list[Answer]) -> dict[str, str]:
    """Name of a row -> what it shows."""
    shown: dict[str, str] = {}
    groups: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        groups[answer.phase].append(answer)
    for name, group in groups.items():
        scored = [a for a in group if a.scored]
        reused, could = sum(a.cached or 0 for a in scored), sum(a.reusable for a in scored)
        shown[f"{name}: tokens reused"] = f"{reused} of {could} ({reused / max(could, 1):.0%})"
        firsts = [a.first for a in scored if a.first is not None]
        if firsts:
            middle, most = statistics.median(firsts), max(firsts)
            shown[f"{name}: first token, median / last"] = f"{middle:.2f} / {most:.2f} s"
        gaps = [gap for a in group if a.running for gap in a.gaps]
        if gaps:
            shown[f"{name}: longest gap of a running row"] = f"{max(gaps):.2f} s"
        if any(a.same for a in group):
            shown[f"{name}: distinct answers"] = str(len({a.text for a in group}))
    whole = [(a, c) for a, c in zip(answers, cold, strict=True) if not a.cut]
    equal = sum(a.error is None and a.text == c.text for a, c in whole)
    shown["answers equal to a cold serial run"] = f"{equal} of {len(whole)}"
    shown["failed requests"] = str(sum(a.error is not None for a in answers))
    return shown


def table(results: dict[str, dict[str, str]]) -> str:
    """Markdown: one column for each server."""
    names = list(results)
    order = list(dict.fromkeys(row for shown in results.values() for row in shown))
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row in order:
        lines.append(f"| {row} | " + " | ".join(results[n].get(row, "") for n in names) + " |")
    return "\n".join(lines)


async def measure(kind: str, options: argparse.Namespace, plan: Sequence[Phase]) -> Any:
    """One server through the trace, and a fresh one alone."""
    at = models(Path(options.folder))
    async with KINDS[kind](at, options.threads) as server:
        answers = await play(server, plan, Prompts(at.folder / "tokenizer.json"))
    async with KINDS[kind](at, options.threads) as server:
        cold = await alone(server, plan)
    return answers, cold


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--servers", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--words", type=int, default=700, help="words of a long prefix")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", default="build/compare", help="where models and venvs are kept")
    parser.add_argument("--json", help="keep every answer here")
    options = parser.parse_args()
    plan, results, kept = list(phases(options.words)), {}, {}
    for kind in options.servers:
        print(f"{kind} ...", file=sys.stderr)
        answers, cold = asyncio.run(measure(kind, options, plan))
        results[kind] = rows(answers, cold)
        kept[kind] = [asdict(a) | {"cold": c.text} for a, c in zip(answers, cold, strict=True)]
    print(table(results))
    if options.json:
        Path(options.json).write_text(json.dumps(kept))


if __name__ == "__main__":
    main()
