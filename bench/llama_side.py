"""llama.cpp's side of the comparison. Runs in its own venv, which holds `xllamacpp` alone.

Starts llama.cpp's server inside this process and answers measurements asked for as JSON lines on
standard input, one JSON line each on standard output (see `compare_llama.py`). Times are
llama.cpp's own, taken inside its server loop, so that HTTP costs it nothing.

    python llama_side.py MODEL THREADS ROWS CONTEXT [mapped]

`mapped` computes from the mapped file alone: no copy of the weights in another layout, no cache
of prompts, so that memory below the file's size is enough.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from importlib.metadata import version
from typing import Any

import xllamacpp


def start(model: str, threads: int, rows: int, context: int, mapped: bool) -> Any:
    """A running llama.cpp server with `rows` slots of `context` tokens each."""
    params = xllamacpp.CommonParams()
    if mapped:
        params.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_MMAP
        params.no_extra_bufts = True
        params.cache_ram_mib = 0
        params.warmup = False
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

    def _timings(self, prompts: list[list[int]], length: int) -> list[dict[str, float]]:
        """llama.cpp's timings of greedy answers to cold prompts, all sent at once."""
        body = {
            "prompt": prompts if len(prompts) > 1 else prompts[0],
            "n_predict": length,
            "cache_prompt": False,
            "ignore_eos": True,
            "temperature": 0.0,
            "samplers": ["top_k"],
            "top_k": 1,
        }
        request = urllib.request.Request(
            f"{self.url}/completion",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=3600) as answer:
            answers = json.load(answer)
        return [one["timings"] for one in (answers if isinstance(answers, list) else [answers])]

    def prompt(self, tokens: list[int]) -> float:
        """Tokens a second of reading a cold prompt."""
        (timings,) = self._timings([tokens], 1)
        if timings["prompt_n"] != len(tokens):
            raise SystemExit(f"llama.cpp read {timings['prompt_n']} of {len(tokens)} tokens")
        return timings["prompt_per_second"]

    def decode(self, prompts: list[list[int]], length: int) -> float:
        """Total tokens a second of decoding `len(prompts)` rows side by side.

        A row's clock starts when its first token is there, so that one is not counted.
        """
        timings = self._timings(prompts, length)
        if any(one["predicted_n"] != length for one in timings):
            raise SystemExit("llama.cpp stopped a row early")
        return (length - 1) * len(timings) / max(t["predicted_ms"] for t in timings) * 1000


def main() -> None:
    # llama.cpp writes to standard output when it likes: keep a private one for the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    model, threads, rows, context = sys.argv[1], *map(int, sys.argv[2:5])
    server = start(model, threads, rows, context, "mapped" in sys.argv[5:])
    facts = {
        "program": f"llama.cpp in xllamacpp {version('xllamacpp')}",
        "system": xllamacpp.get_system_info().strip(" |\n"),
        "url": server.listening_address,
    }
    print(json.dumps(facts), file=answers)
    side = Side(server.listening_address)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(getattr(side, order.pop("op"))(**order)), file=answers)


if __name__ == "__main__":
    main()
