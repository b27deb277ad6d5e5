"""Logits of tiny random checkpoints of the sparse and hybrid families against transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import families
import pytest
import torch
from families import CASES, LENGTH

CHUNKS = (LENGTH, 64, 7, 1)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the matrices are tiny
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("case", CASES)
def test_reference_logits(case: str, tmp_path: Path, load: Callable[..., Any]) -> None:
    expected = families.make(CASES[case], tmp_path)
    assert expected.std() > 0.2  # a comparison of almost equal logits would show nothing
    bench = load(tmp_path, "reference")
    for chunk in CHUNKS:
        got = bench.logits(families.tokens(CASES[case].seed), chunk)
        worst = (got - expected).abs().max()
        assert worst < 1e-4, f"chunks of {chunk}: {worst}"
