"""Native layers between several residual streams, against the reference and bit for bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from toy import Shape, Toy, Weights, random_tokens

from strata.kernels import choose
from strata.kernels.quant import Format
from strata.types import Backend

_cpu = pytest.importorskip("strata.kernels._cpu", reason="the native kernels were not built")
ISAS = _cpu.isas()

SHAPES = {
    "four": Shape(hidden=64, ffn=48, layers="ad", streams=4, rank=16),
    "three, no whole registers": Shape(hidden=44, ffn=20, layers="da", streams=3, rank=5),
}


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("name", SHAPES)
def test_reference(name: str, isa: str) -> None:
    weights = Weights(SHAPES[name])
    native = Toy(weights, choose(Backend.NATIVE, "cpu", 2, isa))
    reference = Toy(weights, choose(Backend.REFERENCE, "cpu", 2), dtype=torch.float16)
    for model in (native, reference):
        model.rows = [model.sequence(random_tokens(n, seed=n)) for n in (1, 30, 280)]
        model.step([(s, len(s.tokens) - 1) for s in model.rows[1:]])
        model.step([(s, 1) for s in model.rows])
    for a, b in zip(native.rows, reference.rows, strict=True):
        got, want = torch.cat(a.logits), torch.cat(b.logits)
        assert (got - want).abs().max() <= 4e-3 * want.abs().max()
        assert (got - want).pow(2).mean().sqrt() <= 4e-4 * want.pow(2).mean().sqrt()


def test_only_sampled_tokens_and_the_same_bits(isa: str) -> None:
    shape = replace(SHAPES["four"], ffn=64, formats=(Format.Q8_0, Format.F32))
    weights, text = Weights(shape), random_tokens(270)
    cold = Toy(weights, choose(Backend.NATIVE, "cpu", 1, isa))
    logits = cold.read(cold.sequence(text), 270)
    assert logits.isfinite().all()
    for chunk in (1, 5, 100):
        model = Toy(weights, choose(Backend.NATIVE, "cpu", 2, isa))
        assert torch.equal(model.read(model.sequence(text), chunk), logits), chunk
    model = Toy(weights, choose(Backend.NATIVE, "cpu", 2, isa))
    plan = model.plan([(model.sequence(text), 270)])
    some = [265, 3, 19]
    object.__setattr__(plan, "sample", plan.sample[some])
    assert torch.equal(model.program.run(plan).logits, logits[some])
