"""llama.cpp's greedy answers, for `compare_text.py`. Runs in a venv that holds `xllamacpp` alone.

Keys and values are kept in float32, so that nothing but the order of sums differs.
Reads a JSON list of prompts (lists of tokens) on standard input; writes one JSON line: of each
answer the tokens, and the lead of each over the second best in logits.

    python llama_text.py MODEL.gguf LENGTH
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from typing import Any

import xllamacpp


def start(model: str, context: int) -> Any:
    """A running server with one slot."""
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_parallel = 1
    params.n_ctx = context
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.port = 0
    params.verbosity = 1
    return xllamacpp.Server(params)


def answer(url: str, prompt: list[int], length: int) -> dict[str, list[Any]]:
    body = {
        "prompt": prompt,
        "n_predict": length,
        "cache_prompt": False,
        "ignore_eos": True,
        "temperature": 0.0,
        "n_probs": 2,
    }
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as got:
        steps = json.load(got)["completion_probabilities"]
    tops = [step["top_logprobs"] for step in steps]
    return {
        "tokens": [step["id"] for step in steps],
        "leads": [round(top[0]["logprob"] - top[1]["logprob"], 4) for top in tops],
    }


def main() -> None:
    # llama.cpp writes to standard output when it likes: keep a private one for the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    model, length = sys.argv[1], int(sys.argv[2])
    prompts: list[list[int]] = json.load(sys.stdin)
    server = start(model, max(map(len, prompts)) + length + 8)
    url = server.listening_address
    print(json.dumps([answer(url, prompt, length) for prompt in prompts]), file=answers)
    answers.flush()
    os._exit(0)  # the server's threads need no farewell


if __name__ == "__main__":
    main()
