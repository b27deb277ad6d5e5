"""1,000 JSON Schemas of a public suite's tools, each as a response format and as a forced call.

Every answer that its limit did not cut off must be JSON that the schema admits (jsonschema). See
README.md.

    python bench/schemas.py [--count 1000] [--clients 4] [--url URL] [-- flags of strata serve]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from typing import Any

import httpx
import jsonschema
from bfcl import MORE, SINGLE, Suite
from soak import start

LIMIT = 192  # tokens of an answer


def functions(count: int) -> list[dict[str, Any]]:
    """`count` functions with different schemas, evenly from all there are. What is no JSON
    Schema even after the suite's types were translated (5 of 2,859) is left out.
    """
    found: dict[str, dict[str, Any]] = {}
    for case in Suite().single(*SINGLE, *MORE):
        for tool in case.tools:
            schema = tool["function"]["parameters"]
            found.setdefault(json.dumps(schema, sort_keys=True), tool["function"])
    good = []
    for one in found.values():
        try:
            jsonschema.Draft202012Validator.check_schema(one["parameters"])
        except jsonschema.SchemaError:
            continue
        good.append(one)
    return [good[i * len(good) // count] for i in range(min(count, len(good)))]


def bodies(function: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The same schema asked for in two ways."""
    told = f"{function['description']} Make up an example call of {function['name']}, short."
    base = {"messages": [{"role": "user", "content": told}], "max_tokens": LIMIT}
    form = {"name": function["name"], "schema": function["parameters"]}
    tool = {"type": "function", "function": function}
    return {
        "format": base | {"response_format": {"type": "json_schema", "json_schema": form}},
        "call": base | {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False},
    }


def judge(function: dict[str, Any], kind: str, choice: dict[str, Any]) -> str | None:
    """What is wrong with a whole answer."""
    message = choice["message"]
    texts = [message["content"]]
    if kind == "call":
        texts = [call["function"]["arguments"] for call in message.get("tool_calls") or []]
    try:
        assert texts, "there is no call"
        for text in texts:
            jsonschema.validate(json.loads(text), function["parameters"])
    except (AssertionError, TypeError, ValueError, jsonschema.ValidationError) as error:
        return f"{function['name']} as a {kind}: {texts!r:.300}: {str(error)[:200]}"
    return None


async def play(
    url: str, asked: list[dict[str, Any]], clients: int
) -> tuple[Counter[str], list[str]]:
    """All of them, `clients` side by side: what came, and what was wrong."""
    counts, wrong, left = Counter[str](), list[str](), iter(asked)

    async def one_client() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=None, trust_env=False) as client:
            for function in left:
                for kind, body in bodies(function).items():
                    answer = await client.post("/v1/chat/completions", json=body)
                    if answer.status_code != 200:
                        counts[f"{kind}: status {answer.status_code}"] += 1
                        wrong.append(f"{function['name']}: {answer.text[:300]}")
                        continue
                    (choice,) = answer.json()["choices"]
                    finish = choice["finish_reason"]
                    counts[f"{kind}: {finish}"] += 1
                    whole = finish in ("stop", "tool_calls")
                    if whole and (fault := judge(function, kind, choice)):
                        wrong.append(fault)

    await asyncio.gather(*[one_client() for _ in range(clients)])
    return counts, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--url", help="a server that runs; else one of its own")
    parser.add_argument("flags", nargs="*", help="flags of strata serve, after --")
    options = parser.parse_args()
    asked = functions(options.count)
    process, url = (None, options.url) if options.url else start(options.flags)
    try:
        counts, wrong = asyncio.run(play(url, asked, options.clients))
    finally:
        if process is not None:
            process.terminate()
            process.wait(60)
    for problem in wrong[:20]:
        print(f"PROBLEM {problem}")
    for name, count in sorted(counts.items()):
        print(f"{count:9} {name}")
    print(
        f"schemas: {'FAILED' if wrong else 'passed'} ({len(asked)} schemas, {len(wrong)} problems)"
    )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
