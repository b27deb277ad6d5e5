"""Greedy text of Strata against llama.cpp's, on random GGUF files of every architecture.

llama.cpp's answers are kept in the data file, with the arguments that make each model; both come
from `bench/compare_text.py --update`, which compares live. Where the texts part, llama.cpp's
choice must have been close.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strata.cli import main

CASES = json.loads((Path(__file__).parents[1] / "data/llama_text.json").read_text())
CLOSE = 0.01  # logits; llama.cpp and Strata add in different orders


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["make"].split()[0])
@pytest.mark.parametrize("backend", ["reference", "native"])
def test_greedy_text(
    case: dict[str, Any], backend: str, tmp_path: Path, load: Callable[..., Any]
) -> None:
    path = tmp_path / "m.gguf"
    assert main(["synth", *case["make"].split(), "--out", str(path)]) == 0
    theirs = case["tokens"]
    assert len(set(theirs)) > len(theirs) / 3, "text that goes round in circles shows little"
    ours, _ = load(path, backend, 128).greedy(case["prompt"], len(theirs))
    equal = [a == b for a, b in zip(ours, theirs, strict=True)]
    same = equal.index(False) if False in equal else len(equal)
    assert same >= 16
    assert same == len(ours) or case["leads"][same] < CLOSE
