"""The native delta rule against the plain torch specification, and against itself.

Weights are float32, so only the order of sums and the exponential differ from the reference.
Against itself, read in another way, every bit must be the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from toy import Shape, Toy, Weights, random_tokens

from strata.kernels import choose
from strata.kernels.quant import Format
from strata.types import Backend, Capture, ModelError

_cpu = pytest.importorskip("strata.kernels._cpu", reason="the native kernels were not built")
ISAS = _cpu.isas()

D = Shape(hidden=40, ffn=24, layers="d", formats=(Format.F32,))
# Key heads, value heads, dim: whole panels and registers, parts of both, the largest.
SIZES = [(2, 4, 32), (1, 1, 8), (1, 3, 40), (3, 3, 16), (2, 6, 24), (1, 2, 56), (1, 2, 256)]
# Beside each other in one step: single tokens, shorter than the window, beyond a block of 256.
LENGTHS = [1, 2, 3, 5, 40, 270]
MIXED = Shape(hidden=64, ffn=64, layers="dad", gated=True, formats=(Format.Q8_0, Format.F32))


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def native(shape: Shape, isa: str, threads: int = 2) -> Toy:
    return Toy(Weights(shape), choose(Backend.NATIVE, "cpu", threads, isa))


def capture(model: Toy, row: int, offset: int) -> Capture:
    return Capture(row=row, offset=offset, position=offset, slot=model.slot())


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.isfinite().all() and want.isfinite().all()
    assert (got - want).abs().max() <= 1e-5 * want.abs().max()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("tiled", [False, True], ids=["grouped", "tiled"])
def test_sizes_gates_and_rows(size: tuple[int, int, int], tiled: bool, isa: str) -> None:
    k_heads, v_heads, dim = size
    kernel = 2 + (dim // 8) % 3
    shape = replace(D, k_heads=k_heads, v_heads=v_heads, dim=dim, kernel=kernel)
    shape = replace(shape, tiled=tiled, sigmoid_gate=tiled)
    lengths = LENGTHS if dim < 100 else LENGTHS[:-1]
    reference = Toy(Weights(shape), choose(Backend.REFERENCE, "cpu", 2))
    models = (native(shape, isa), reference)
    for model in models:
        model.rows = [model.sequence(random_tokens(n + 2, seed=n)) for n in lengths]
        model.step([(s, len(s.tokens) - 2) for s in model.rows])
        model.step([(s, 2 - i % 2) for i, s in enumerate(model.rows)])
    for a, b in zip(models[0].rows, models[1].rows, strict=True):
        close(torch.cat(a.logits), torch.cat(b.logits))
        close(models[0].state(a.slot), models[1].state(b.slot))


def test_chunks_threads_and_company_change_no_bit(isa: str) -> None:
    text = random_tokens(290)
    cold = native(MIXED, isa, 1)
    whole = cold.sequence(text)
    logits, state = cold.read(whole, 290), cold.state(whole.slot)
    for threads, chunk in ((1, 1), (2, 1), (2, 7), (1, 64), (2, 290)):
        other = native(MIXED, isa, threads)
        beside = [other.sequence(random_tokens(40, seed=i)) for i in range(chunk % 3)]
        s = other.sequence(text)
        if beside:
            other.step([(beside[0], 33), (s, chunk), *((b, 1) for b in beside[1:])])
        assert torch.equal(other.read(s, chunk), logits), (threads, chunk)
        assert torch.equal(other.state(s.slot), state), (threads, chunk)


@pytest.mark.parametrize("sizes", [(7, 12), (1, 1), (3, 270)], ids=str)
def test_a_capture_is_the_state_of_a_shorter_read(sizes: tuple[int, int], isa: str) -> None:
    """At every offset of two rows; the sequences themselves are none the wiser."""
    texts = [random_tokens(n + 4, seed=i) for i, n in enumerate(sizes)]
    model, plain = native(MIXED, isa), native(MIXED, isa)
    rows, others = ([m.sequence(text) for text in texts] for m in (model, plain))
    for m, own in ((model, rows), (plain, others)):
        m.step([(s, 4) for s in own])
    offsets = [(row, n) for row, count in enumerate(sizes) for n in range(1, count + 1)]
    if len(offsets) > 20:
        offsets = [(0, 1), (0, 3), (1, 1), (1, 2), (1, 252), (1, 253), (1, 254), (1, 270)]
    captures = [capture(model, row, offset) for row, offset in offsets]
    model.step(list(zip(rows, sizes, strict=True)), captures)
    plain.step(list(zip(others, sizes, strict=True)))
    for s, other in zip(rows, others, strict=True):
        assert torch.equal(s.logits[-1], other.logits[-1])
        assert torch.equal(model.state(s.slot), plain.state(other.slot))
    for taken in captures:
        short = native(MIXED, isa)
        s = short.sequence(texts[taken.row][: 4 + taken.offset])
        short.read(s, 300)
        assert torch.equal(model.state(taken.slot), short.state(s.slot)), taken


def test_a_capture_that_was_not_reached_is_not_reported() -> None:
    model = native(MIXED, ISAS[0])
    s = model.sequence(random_tokens(9))
    wanted = (
        capture(model, 0, 9),
        capture(model, 0, 0),
        capture(model, 0, 10),
    )
    assert model.program.run(model.plan([(s, 9)], wanted)).captured == wanted[:1]
    assert model.state(wanted[2].slot).isnan().all()


def test_two_captures_of_one_place() -> None:
    model = native(MIXED, ISAS[0])
    s = model.sequence(random_tokens(9))
    a, b = (capture(model, 0, 9) for _ in range(2))
    model.step([(s, 9)], [a, b])
    assert torch.equal(model.state(a.slot), model.state(b.slot))
    assert torch.equal(model.state(a.slot), model.state(s.slot))


def test_what_cannot_run_is_refused() -> None:
    with pytest.raises(ModelError, match="multiple of 8"):
        native(replace(D, dim=12), ISAS[0])
    model = native(D, ISAS[0])
    s = model.sequence(np.array([1, 2]))
    s.slot = -1
    with pytest.raises(ValueError, match="no state slot"):
        model.step([(s, 2)])
    s = model.sequence(np.array([1, 2]))
    with pytest.raises(ValueError, match="a row that the plan does not have"):
        model.step([(s, 2)], [capture(model, 1, 1)])
