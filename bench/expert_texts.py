"""Ten different texts for a server that records its experts: questions, code, prose, a licence.

`strata trace record MODEL --out FILE --port 8080`, then this with `--at-once 1` or 4.
"""

from __future__ import annotations

import argparse
import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUESTIONS = (
    "Write a short story about a lighthouse keeper who finds a letter in a bottle."
    " Describe the sea.",
    "Erkläre auf Deutsch, wie eine Dampfmaschine funktioniert und warum sie wichtig war.",
    "A train leaves at 9:40 and runs 180 km at 72 km/h; another leaves the other end at 10:05 at"
    " 90 km/h. When do they meet? Show every step.",
    "Give me a recipe for a vegetable lasagne for six, with quantities and a shopping list.",
    "Compare the Roman Republic with the Roman Empire: institutions, army, economy, and"
    " why each fell.",
)
FILES = (
    ("Summarise this", "LICENSE", 1000),
    ("What does this Python code do?", "strata/cache/trie.py", 300),
    ("Explain this C++ code", "strata/kernels/cpu/moe.h", 500),
    ("Rewrite this for beginners", "docs/scheduling.md", 200),
    ("Turn this into JSON", "pyproject.toml", 0),
)


def texts() -> list[str]:
    """The ten."""
    parts = [
        f"{task}:\n{(ROOT / path).read_text(encoding='utf-8')[start : start + 900]}"
        for task, path, start in FILES
    ]
    return [*QUESTIONS, *parts]


def ask(url: str, number: int, text: str, tokens: int) -> None:
    """One chat of one turn; its answer is not looked at."""
    body = {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0.7,
        "seed": number,
        "ignore_eos": True,
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        answer.read()


def main() -> None:
    """Sends all, some at once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=128)
    chosen = parser.parse_args()
    with ThreadPoolExecutor(chosen.at_once) as pool:
        for done in [
            pool.submit(ask, chosen.url, number, text, chosen.tokens)
            for number, text in enumerate(texts())
        ]:
            done.result()


if __name__ == "__main__":
    main()
