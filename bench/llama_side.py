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
        params.warmup = False
    params.cache_ram_mib = 0  # no second copy of what slots hold
    params.checkpoint_min_step = 0  # of states too at the end of a prompt, for `deep`
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
        self._prefix: list[int] = []

    def _timings(
        self, prompts: list[list[int]], length: int, **what: Any
    ) -> list[dict[str, float]]:
        """llama.cpp's timings of greedy answers, all sent at once; `what` goes to the request."""
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
            json.dumps(body | what).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=3600) as answer:
            answers = json.load(answer)
        return [one["timings"] for one in (answers if isinstance(answers, list) else [answers])]

    def prompt(self, tokens: list[int]) -> float:
        """Tokens a second of reading a cold prompt."""
        return self._reading(tokens, self._timings([tokens], 1)[0])

    def decode(self, prompts: list[list[int]], length: int) -> float:
        """Total tokens a second of decoding `len(prompts)` rows side by side."""
        return self._decoding(self._timings(prompts, length), length)

    def fill(self, tokens: list[int], rows: int) -> float:
        """Tokens a second of reading a cold prompt, which a slot keeps: the prefix of `deep`."""
        del rows  # that many slots get it when they are asked for
        self._prefix = tokens
        return self.prompt(tokens)

    def deep(self, prompts: list[list[int]], length: int) -> float:
        """As `decode`, each row behind the prefix, with keys of its own.

        Asked for several answers to one prompt, llama.cpp copies keys and states from the slot
        that has it to the streams of the others, then decodes them side by side. They draw from 16
        tokens, lest all rows say the same and take the same experts.
        """
        what = {"n_cmpl": len(prompts), "cache_prompt": True, "temperature": 1.0, "top_k": 16}
        timings = self._timings([self._prefix + prompts[0]], length, **what)
        if any(one["prompt_n"] > len(prompts[0]) + 8 for one in timings):
            raise SystemExit(f"llama.cpp read a prefix again that it had: {timings}")
        return self._decoding(timings, length)

    def _reading(self, tokens: list[int], timings: dict[str, float]) -> float:
        if timings["prompt_n"] != len(tokens):
            raise SystemExit(f"llama.cpp read {timings['prompt_n']} of {len(tokens)} tokens")
        return timings["prompt_per_second"]

    def _decoding(self, timings: list[dict[str, float]], length: int) -> float:
        """A row's clock starts when its first token is there, so that one is not counted."""
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
