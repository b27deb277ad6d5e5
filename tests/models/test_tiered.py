"""A whole model whose every mixture is fed in waves has the logits of the plain one, bit by bit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import families
import pytest
import torch
from families import CASES

from strata.kernels.moe import MoeWeights, NextMixture
from strata.types import Capture

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
from shelf import Shelf, Split, one_wave, shuffled, singly

native = pytest.importorskip("strata.kernels.native", reason="the native kernels were not built")
PLAIN = native.NativeKernels.moe


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the matrices are tiny
    yield
    torch.set_num_threads(threads)


def tiers(split: Split, every: int) -> Callable[..., Any]:
    """`NativeKernels.moe` over a source in whose memory only every n-th expert stays."""

    def moe(kernels: Any, weights: MoeWeights) -> Any:
        resident = range(0, len(weights.experts), every)
        source = Shelf(kernels, weights.experts, split, resident)
        return kernels.tiered_moe(weights, source, NextMixture(weights.router, source))

    return moe


@pytest.mark.parametrize("case", ["qwen3moe-dense-layers", "qwen35moe", "flash-odd-heads"])
def test_logits_and_states_are_the_same_bits(
    case: str, tmp_path: Path, load: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    families.make(CASES[case], tmp_path)
    tokens = families.tokens(1, 90)

    def read(moe: Callable[..., Any], threads: int) -> list[torch.Tensor]:
        monkeypatch.setattr(native.NativeKernels, "moe", moe)
        bench = load(tmp_path, "native", threads=threads)
        bench.forget()
        bench.states.data.zero_()
        captures = (Capture(0, 40, 40, 0),) if bench.states.nbytes else ()
        logits = [bench.step(tokens[:64], 0, range(64), captures)]
        logits += [bench.step([t], 64 + i, [0]) for i, t in enumerate(tokens[64:])]
        return [*logits, bench.states.data.clone()]

    want = read(PLAIN, 1)
    for split, every, threads in ((one_wave, 1, 1), (shuffled, 2, 2), (singly, 9, 1)):
        for got, expected in zip(read(tiers(split, every), threads), want, strict=True):
            assert torch.equal(got, expected)
