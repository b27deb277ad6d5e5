"""Greedy text and logits of Strata and of llama.cpp on the same GGUF files.

For any files, or for the cases of `tests/data/llama_text.json`: each names the arguments with which
`strata synth` makes its file, and keeps a prompt and llama.cpp's answer, which a test compares
without llama.cpp. `--update` asks llama.cpp anew and writes them. Printed are the tokens that are
the same; the lead of llama.cpp's choice over its second best where the answers part, or the
smallest; and how far the logits are apart along llama.cpp's answer, which has its keys and values
in float16 there, as it does by default.

    python bench/compare_text.py MODEL.gguf ... --peer /path/to/venv/bin/python
    python bench/compare_text.py --peer /path/to/venv/bin/python [--update]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from kl import Strata

from strata.cli import main as strata
from strata.types import Backend

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT / "tests/data/llama_text.json"
PROMPT, LENGTH = 48, 24


def llama(peer: str, model: Path, prompts: list[list[int]]) -> list[dict[str, Any]]:
    """llama.cpp's answers: tokens and leads."""
    done = subprocess.run(
        [peer, str(ROOT / "bench/llama_text.py"), str(model), str(LENGTH)],
        input=json.dumps(prompts),
        capture_output=True,
        text=True,
    )
    if done.returncode or not done.stdout:
        raise SystemExit(f"llama.cpp did not run {model}:\n{done.stderr[-2000:]}")
    return list(json.loads(done.stdout))


def random_prompt(vocab: int, seed: int) -> list[int]:
    """Any tokens, special ones among them."""
    random = np.random.default_rng(seed)
    tokens = random.integers(0, vocab, PROMPT)
    tokens[random.integers(0, PROMPT, 3)] = vocab - 3  # the end of a text
    return [int(token) for token in tokens]


def logits(peer: str, model: Path, tokens: list[int]) -> np.ndarray:
    """llama.cpp's logits after each token."""
    with tempfile.TemporaryDirectory() as folder:
        given, got = Path(folder) / "tokens.npy", Path(folder) / "logits.npy"
        np.save(given, np.array([tokens], np.int32))
        script = str(ROOT / "bench/kl_llama.py")
        subprocess.run([peer, script, model, "1", given, got], check=True, capture_output=True)
        return np.asarray(np.load(got)[0])


def row(name: str, ours: list[int], theirs: dict[str, Any], apart: np.ndarray) -> str:
    """A line of the table; `apart`: the largest difference of logits after each token."""
    equal = [a == b for a, b in zip(ours, theirs["tokens"], strict=True)]
    same = equal.index(False) if False in equal else len(equal)
    lead = min(theirs["leads"]) if same == len(equal) else theirs["leads"][same]
    middle, most = np.quantile(apart, (0.5, 1))
    return f"| {name} | {same} of {len(equal)} | {lead:.3f} | {middle:.1e} | {most:.1e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--peer", required=True, help="a Python that has xllamacpp")
    parser.add_argument("--kernels", default="reference", choices=[b.value for b in Backend])
    parser.add_argument("--update", action="store_true", help="keep llama.cpp's answers")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cases = json.loads(CASES.read_text()) if not chosen.models else []
        for number, case in enumerate(cases):
            path = Path(folder) / f"{number}.gguf"
            with redirect_stdout(None):
                if strata(["synth", *case["make"].split(), "--out", str(path)]):
                    raise SystemExit(1)
        files = chosen.models or [Path(folder) / f"{i}.gguf" for i in range(len(cases))]
        print("| model | same tokens | lead | logits apart, median | most |\n|---|---|---|---|---|")
        for number, path in enumerate(files):
            model = Strata(path, Backend(chosen.kernels), 1, PROMPT + LENGTH)
            prompt = random_prompt(model.model.vocab_size, number)
            (theirs,) = llama(chosen.peer, path, [prompt])
            name = cases[number]["make"].split()[0] if cases else path.name
            text = prompt + theirs["tokens"]
            apart = abs(logits(chosen.peer, path, text) - model.logits(text).numpy()).max(-1)
            print(row(name, model.greedy(prompt, LENGTH), theirs, apart), flush=True)
            if cases:
                cases[number] |= {"prompt": prompt, **theirs}
    if chosen.update:
        lines = ",\n".join(json.dumps(case) for case in cases)
        CASES.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
