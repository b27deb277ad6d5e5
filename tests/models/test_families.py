"""Logits of tiny random checkpoints of the sparse and hybrid families against transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import families
import numpy as np
import pytest
import torch
from families import CASES, LENGTH
from torch import Tensor

from strata.types import Capture, ForwardPlan

BLOCK, LIVE = 16, 1  # of Bench
CHUNKS = (LENGTH, 64, 7, 1)
# Every operation, and sizes that fill no register.
NATIVE = (
    "qwen3moe-5-heads-one-kv", "olmoe-3-heads-one-kv", "qwen3next-odd-heads",
    "qwen3next-3-values-a-key", "qwen35-multimodal", "qwen35moe", "flash-within-budget",
    "flash", "flash-small-budget", "flash-two-ngram-layers", "flash-odd-heads",
)  # fmt: skip


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


# ------------------------------------------------------------------ states


@pytest.mark.parametrize("case", ["qwen3next", "qwen35moe", "flash", "flash-odd-heads"])
def test_a_captured_state_continues_as_if_read_alone(
    case: str, tmp_path: Path, load: Callable[..., Any]
) -> None:
    """Captured inside a chunk, or at its end; then pages and state are copied, as a cache does."""
    families.make(CASES[case], tmp_path)
    bench = load(tmp_path, "reference")
    first, other = families.tokens(1, 150), families.tokens(2, 30)
    for at in (65, 77, 128):
        cold = bench.logits(first[:at] + other)[at:]
        bench.forget()
        bench.step(first[:64], 0, [])
        bench.step(first[64:], 64, [], (Capture(0, at - 64, at, 2), Capture(0, 3, 67, 0)))
        used = -(-at // BLOCK)
        spare = bench.order[-used:].copy()
        bench.arena.data[spare] = bench.arena.data[bench.order[:used]]
        bench.order[:used], bench.order[-used:] = spare, bench.order[:used].copy()
        bench.states.data[LIVE] = bench.states.data[2]
        assert (bench.read(other, at, 7) - cold).abs().max() < 1e-4
        bench.states.data[LIVE] = bench.states.data[0]  # a wrong state would be noticed
        assert (bench.read(other, at, 25) - cold).abs().max() > 1e-2


@pytest.mark.parametrize("case", ["olmoe", "qwen3next", "flash"])
def test_sequences_that_share_a_step(case: str, tmp_path: Path, load: Callable[..., Any]) -> None:
    """Two sequences side by side, of unequal parts in each step, the second with rows alone."""
    families.make(CASES[case], tmp_path)
    bench = load(tmp_path, "reference", length=160)
    texts = (families.tokens(1, 40), families.tokens(2, 70))
    alone = [bench.logits(text) for text in texts]
    bench.forget()
    bench.states.data[2].zero_()
    tables = np.stack((bench.order[:5], bench.order[5:10]))
    together: list[list[Tensor]] = [[], []]
    for bounds in (
        ((0, 13), (0, 3)),
        ((13, 14), (3, 40)),
        ((14, 14), (40, 41)),
        ((14, 40), (41, 70)),
    ):
        tokens = [texts[row][start:end] for row, (start, end) in enumerate(bounds)]
        positions = [np.arange(start, end) for start, end in bounds]
        slots = [tables[row][at // BLOCK] * BLOCK + at % BLOCK for row, at in enumerate(positions)]
        count = len(tokens[0])
        plan = ForwardPlan(
            step=0,
            block=BLOCK,
            tokens=np.asarray([*tokens[0], *tokens[1]], dtype=np.int32),
            positions=np.concatenate(positions).astype(np.int32),
            row_starts=np.asarray([0, count, count + len(tokens[1])], dtype=np.int32),
            page_table=tables,
            write_slots=np.concatenate(slots).astype(np.int32),
            state_slots=np.asarray([LIVE, 2] if bench.states.nbytes else [-1, -1], dtype=np.int32),
            sample=np.arange(count + len(tokens[1]), dtype=np.int32),
        )
        logits = bench.model.forward(plan).logits.clone()
        together[0].append(logits[:count])
        together[1].append(logits[count:])
    for expected, parts in zip(alone, together, strict=True):
        assert (torch.cat(parts) - expected).abs().max() < 1e-4


@pytest.mark.parametrize("kv_dtype", ["float16", "uint8"])
@pytest.mark.parametrize("case", NATIVE)
def test_native_logits(
    case: str,
    kv_dtype: str,
    tmp_path: Path,
    load: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against the reference on the same types of pages; and the same bits in every chunk."""
    families.make(CASES[case], tmp_path)
    # An indexer's scores are often equal: all heads' are cut off at zero. Native kernels take
    # the earlier block, torch any.
    monkeypatch.setattr(torch.Tensor, "topk", _first_of_equals)
    text = families.tokens(CASES[case].seed)
    expected = load(tmp_path, "reference", kv_dtype=kv_dtype).logits(text)
    native = load(tmp_path, "native", threads=2, kv_dtype=kv_dtype)
    logits = native.logits(text)
    # A number of a key may round the other way.
    apart = 2e-3 if kv_dtype == "float16" else 1e-2
    assert (logits - expected).abs().max() < apart * expected.abs().max()
    for chunk in (64, 7, 1):
        assert torch.equal(native.logits(text, chunk), logits), chunk


def _first_of_equals(x: torch.Tensor, k: int, dim: int = -1) -> torch.return_types.topk:
    values, indices = x.sort(dim=dim, descending=True, stable=True)
    return torch.return_types.topk((values.narrow(dim, 0, k), indices.narrow(dim, 0, k)))
