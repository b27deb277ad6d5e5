"""The cases of a public suite of tool calls as traffic: 1,000 of one turn and 800 of several.

Answers need not be right: what is checked is the server. See README.md for the rules; a sample is
`--every 20`.

    python bench/bfcl_traffic.py [--every 1 [--offset 0]] [--clients 4] [--url URL] [-- flags]

Each turn is asked twice: with `tool_choice` "required", and after the tools' (made up) results
once more, with "auto". Fails when

- an answer has a status other than 200;
- a forced answer that was not cut off by its limit has no call, or one whose arguments are not JSON
  that its tool's schema admits (jsonschema);
- a prompt is not resumed where it can be. Let E be the prompt of the request before it in the same
  chat and the tokens of its answer without the last, and C how far the new prompt goes along
  with E: then min(C, new prompt - 1) tokens must have been cached, no fewer;
- C is shorter than the whole prompt before but for the header of its answer (`HEADER` tokens): a
  template renders a turn otherwise once others follow, and nothing else may differ.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx
import jsonschema
from bfcl import Case, Suite
from soak import start

HEADER = 8
FORCED, FREE = 128, 24  # most tokens of an answer


@dataclass
class Outcome:
    """What came of all cases."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def fault(self, case: Case, text: str) -> None:
        self.wrong.append(f"{case.id}: {text}")


@dataclass
class Talk:
    """One case on its way: its messages, and what the last request left in the cache."""

    client: httpx.AsyncClient
    case: Case
    outcome: Outcome
    messages: list[dict[str, Any]] = field(default_factory=list)
    prompt: list[int] = field(default_factory=list)
    known: list[int] = field(default_factory=list)  # that prompt and its answer but for the end

    async def ask(self, choice: str, limit: int) -> dict[str, Any] | None:
        """One request: its message, or None when there is none."""
        body = {"messages": self.messages, "tools": self.case.tools}
        rendered = await self.client.post("/tokenize", json=body)
        asked = {"tool_choice": choice, "max_tokens": limit, "return_token_ids": True}
        asked["parallel_tool_calls"] = "parallel" in self.case.id
        answer = await self.client.post("/v1/chat/completions", json=body | asked)
        self.outcome.counts[f"status {answer.status_code}"] += 1
        if answer.status_code != 200 or rendered.status_code != 200:
            self.outcome.fault(self.case, f"{answer.status_code}: {answer.text[:300]}")
            return None
        said = answer.json()
        prompt = rendered.json()["tokens"]
        self._judge_reuse(prompt, said["usage"])
        (only,) = said["choices"]
        self.prompt, self.known = prompt, prompt + only["token_ids"][:-1]
        if choice == "required":
            self._judge_calls(only)
        return dict(only["message"])

    def _judge_reuse(self, prompt: list[int], usage: dict[str, Any]) -> None:
        count, cached = self.outcome.counts, usage["prompt_tokens_details"]["cached_tokens"]
        if usage["prompt_tokens"] != len(prompt):
            self.outcome.fault(self.case, f"{len(prompt)} tokens became {usage['prompt_tokens']}")
        if not self.prompt:
            return
        common = 0
        for ours, theirs in zip(self.known, prompt, strict=False):
            if ours != theirs:
                break
            common += 1
        count["later requests"] += 1
        count["tokens before"] += len(self.known)
        count["of them in the next prompt"] += common
        count["of them cached"] += min(cached, common)
        if cached < min(common, len(prompt) - 1):
            self.outcome.fault(self.case, f"{cached} cached of {common} that were there")
        if common < len(self.prompt) - HEADER:
            self.outcome.fault(self.case, f"only {common} of {len(self.prompt)} come again")

    def _judge_calls(self, choice: dict[str, Any]) -> None:
        finish, calls = choice["finish_reason"], choice["message"].get("tool_calls") or []
        self.outcome.counts[f"forced: {finish}"] += 1
        if finish == "tool_calls" and not calls:
            self.outcome.fault(self.case, "a forced call is missing")
        if finish == "stop":
            self.outcome.fault(self.case, f"a forced answer ended without a call: {choice}")
        schemas = {t["function"]["name"]: t["function"]["parameters"] for t in self.case.tools}
        for number, call in enumerate(calls):
            if finish != "tool_calls" and number == len(calls) - 1:
                continue  # the limit cut it off
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            try:
                jsonschema.validate(json.loads(arguments), schemas[name])
                self.outcome.counts["calls that parse"] += 1
            except (KeyError, ValueError, jsonschema.ValidationError) as error:
                self.outcome.fault(self.case, f"{name}({arguments}): {str(error)[:200]}")

    async def run(self) -> None:
        for turn in self.case.turns:
            self.messages += turn
            if (message := await self.ask("required", FORCED)) is None:
                return
            whole = [call for call in message.get("tool_calls") or [] if _object(call)]
            spoken = {"role": "assistant", "content": message.get("content") or ""}
            self.messages.append(spoken | ({"tool_calls": whole} if whole else {}))
            for call in whole:
                result = json.dumps({"status": "done", "by": call["function"]["name"]})
                result_of = {"role": "tool", "tool_call_id": call["id"], "content": result}
                self.messages.append(result_of)
            if not whole:
                self.messages.append({"role": "user", "content": "Go on."})
            if (message := await self.ask("auto", FREE)) is None:
                return
            self.messages.append({"role": "assistant", "content": message.get("content") or ""})
        self.outcome.counts["cases"] += 1


def _object(call: dict[str, Any]) -> bool:
    """Whether a call's arguments are whole: a history holds no others."""
    try:
        return isinstance(json.loads(call["function"]["arguments"]), dict)
    except ValueError:
        return False


async def play(url: str, cases: list[Case], clients: int, outcome: Outcome) -> None:
    """All cases, `clients` side by side."""
    left, began = iter(cases), time.monotonic()

    async def one_client() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=None, trust_env=False) as client:
            for case in left:
                await Talk(client, case, outcome).run()
                done = outcome.counts["cases"]
                if done % 50 == 0:
                    spent = time.monotonic() - began
                    print(f"  {done} cases, {spent:.0f} s", file=sys.stderr, flush=True)

    await asyncio.gather(*[one_client() for _ in range(clients)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="take each n-th case")
    parser.add_argument("--offset", type=int, default=0, help="of the first of them")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--url", help="a server that runs; else one of its own")
    parser.add_argument("flags", nargs="*", help="flags of strata serve, after --")
    options = parser.parse_args()
    suite, outcome = Suite(), Outcome()
    cases = [*suite.single(), *suite.multi()][options.offset :: options.every]
    process, url = (None, options.url) if options.url else start(options.flags)
    try:
        asyncio.run(play(url, cases, options.clients, outcome))
    finally:
        if process is not None:
            process.terminate()
            process.wait(60)
    for problem in outcome.wrong[:20]:
        print(f"PROBLEM {problem}")
    for name, count in sorted(outcome.counts.items()):
        print(f"{count:9} {name}")
    verdict = "FAILED" if outcome.wrong else "passed"
    print(f"bfcl_traffic: {verdict} ({len(cases)} cases, {len(outcome.wrong)} problems)")
    sys.exit(bool(outcome.wrong))


if __name__ == "__main__":
    main()
