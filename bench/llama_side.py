"""llama.cpp's side of the comparison. Runs in its own venv, which holds `xllamacpp` alone.

Starts llama.cpp's server inside this process and answers measurements asked for as JSON lines on
standard input, one JSON line each on standard output (see `compare_llama.py` for the
operations). All times are llama.cpp's own, taken inside its server loop, so that HTTP costs it
nothing; only `first_token` is wall clock, because that is what a client feels.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from typing import Any

import xllamacpp


def start(model: str, threads: int, rows: int, context: int) -> Any:
    """A running llama.cpp server with `rows` slots of `context` tokens each."""
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.n_parallel = rows
    params.n_ctx = rows * context
    params.port = 0
    params.verbosity = 1
    return xllamacpp.Server(params)


class Side:
    """Measurements on one running server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def _complete(self, prompt: Any, length: int, *, cached: bool, stream: bool = False) -> Any:
        body = {
            "prompt": prompt,
            "n_predict": length,
            "cache_prompt": cached,
            "ignore_eos": True,
            "temperature": 0.0,
            "samplers": ["top_k"],
            "top_k": 1,
            "stream": stream,
        }
        request = urllib.request.Request(
            f"{self.url}/completion",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        return urllib.request.urlopen(request, timeout=600)

    def prompt(self, tokens: list[int]) -> float:
        """Tokens a second of reading a cold prompt."""
        with self._complete(tokens, 1, cached=False) as answer:
            timings = json.load(answer)["timings"]
        if timings["prompt_n"] != len(tokens):
            raise SystemExit(f"llama.cpp read {timings['prompt_n']} of {len(tokens)} tokens")
        return float(timings["prompt_per_second"])

    def decode(self, prompts: list[list[int]], length: int) -> float:
        """Total tokens a second of decoding `len(prompts)` rows side by side.

        llama.cpp's clock starts when a row's first token is there, so the first one is not counted.
        """
        with self._complete(prompts if len(prompts) > 1 else prompts[0], length, cached=False) as a:
            answers = json.load(a)
        if isinstance(answers, dict):
            answers = [answers]
        timings = [one["timings"] for one in answers]
        if any(one["predicted_n"] != length for one in timings):
            raise SystemExit("llama.cpp stopped a row early")
        return (length - 1) * len(timings) / max(t["predicted_ms"] for t in timings) * 1000

    def first_token(self, tokens: list[int], cached: bool) -> float:
        """Seconds from the request to its first streamed token."""
        began = time.perf_counter()
        with self._complete(tokens, 1, cached=cached, stream=True) as answer:
            for line in answer:
                if line.startswith(b"data:"):
                    return time.perf_counter() - began
        raise SystemExit("llama.cpp streamed nothing")


def main() -> None:
    # llama.cpp writes to standard output when it likes: keep a private one for the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    model, threads, rows, context = sys.argv[1], *map(int, sys.argv[2:5])
    server = start(model, threads, rows, context)
    facts = {
        "program": "llama.cpp in xllamacpp " + getattr(xllamacpp, "__version__", "?"),
        "system": xllamacpp.get_system_info().strip(),
    }
    print(json.dumps(facts), file=answers)
    side = Side(server.listening_address)
    for line in sys.stdin:
        order = json.loads(line)
        result = getattr(side, order.pop("op"))(**order)
        print(json.dumps(result), file=answers)


if __name__ == "__main__":
    main()
