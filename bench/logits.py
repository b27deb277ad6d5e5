"""How far Strata's logits are from transformers' on tiny random checkpoints of every family.

Prints a table in Markdown: for each checkpoint of `tests/models/families.py` the largest
difference over 200 teacher-forced tokens, read at once and in chunks.

    python bench/logits.py [--seeds 3] [--backend reference] [--only flash]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models"))

import families
from conftest import Bench

CHUNKS = (families.LENGTH, 64, 7, 1)


def differences(case: families.Case, backend: str) -> list[float]:
    """The largest absolute difference for each size of chunk."""
    with tempfile.TemporaryDirectory() as folder:
        expected = families.make(case, Path(folder))
        bench = Bench(Path(folder), backend)
        tokens = families.tokens(case.seed)
        return [float((bench.logits(tokens, c) - expected).abs().max()) for c in CHUNKS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="checkpoints for each line")
    parser.add_argument("--backend", default="reference", help="reference or native")
    parser.add_argument("--only", default="", help="lines whose names begin so")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the matrices are tiny
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    print("| checkpoint |", " | ".join(f"chunks of {chunk}" for chunk in CHUNKS), "|")
    print("| --- |", " | ".join("---" for _ in CHUNKS), "|")
    for name, case in families.CASES.items():
        if name.startswith(options.only):
            seeds = range(case.seed, case.seed + options.seeds)
            found = [differences(replace(case, seed=seed), options.backend) for seed in seeds]
            worst = (f"{max(column):.1e}" for column in zip(*found, strict=True))
            print(f"| {name} |", " | ".join(worst), "|", flush=True)


if __name__ == "__main__":
    main()
