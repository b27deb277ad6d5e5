"""A mixture whose experts come in waves gives the bits of one that has them all in memory.

The expectation is `moe` of the same kernels; that is tested against transformers and torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from moe_toy import Layer, Mixture, Stack, mixture
from shelf import SPLITS, Shelf, Split, backwards, one_wave, shuffled, singly

from strata.kernels import Kernels, choose
from strata.kernels.moe import Expert, ExpertWave, NextMixture, unpacked
from strata.kernels.norm import rms_norm
from strata.kernels.quant import Format, dequantise
from strata.types import Backend, IntArray

_cpu = pytest.importorskip("strata.kernels._cpu", reason="the native kernels were not built")
ISAS = _cpu.isas()

F = Format
SHAPES = {
    "one expert": Mixture(experts=1, top_k=1, hidden=96, ffn=40),
    "odd": Mixture(experts=9, top_k=3, hidden=96, ffn=40),
    "shared": Mixture(experts=9, top_k=2, shared_ffn=72, hidden=96, ffn=33, normalise=False),
    "shared and gated": Mixture(
        experts=40, top_k=6, shared_ffn=224, gated=True, hidden=160, ffn=96,
        formats=(F.Q8_0, F.Q4_0, F.Q5_0),
    ),
    "streams": Mixture(experts=7, top_k=3, hidden=64, ffn=48, shared_ffn=48, streams=4),
    "super-blocks": Mixture(
        experts=6, top_k=2, hidden=256, ffn=256, shared_ffn=256, gated=True,
        formats=(F.Q4_K, F.Q6_K, F.Q5_K),
    ),
    "codes": Mixture(
        experts=9, top_k=3, hidden=256, ffn=256, shared_ffn=256,
        formats=(F.IQ2_XS, F.Q3_K, F.IQ4_XS),
    ),
}  # fmt: skip


def native(threads: int = 2, isa: str = ISAS[0]) -> Kernels:
    return choose(Backend.NATIVE, "cpu", threads, isa)


def stream(shape: Mixture, n: int) -> torch.Tensor:
    return 0.1 * torch.randn(n, shape.hidden, generator=torch.Generator().manual_seed(n))


def shelf(kernels: Kernels, shape: Mixture, split: Split = one_wave, **changes: object) -> Shelf:
    return Shelf(kernels, mixture(shape).experts, split, **changes)


def tiered(kernels: Kernels, shape: Mixture, x: torch.Tensor, source: Shelf) -> Stack:
    return Stack(shape, kernels, x, [kernels.tiered_moe(mixture(shape), source)])


# ------------------------------------------------------------------ bits


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", SHAPES)
def test_waves_change_no_bit(name: str, isa: str) -> None:
    shape, n = SHAPES[name], 70
    x = stream(shape, n)
    want = Layer(shape, native(2, isa), x).run(list(range(n)))
    most = [(1, split) for split in SPLITS] + [(2, singly), (2, shuffled), (3, one_wave)]
    for threads, split in most if isa == ISAS[0] else [(1, shuffled)]:
        kernels = native(threads, isa)
        for resident in ((), range(0, shape.experts, 2)):
            source = shelf(kernels, shape, split, resident=resident)
            layer = tiered(kernels, shape, x, source)
            for tokens in ([5], [9, 3], [4, 4, 60], list(range(n))):
                assert torch.equal(layer.run(tokens), want[tokens]), (threads, split, tokens)
            if not resident:
                assert [call for call, _, _ in source.log] == ["waves"] * 4


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("name", SHAPES)
def test_experts_in_their_places_need_no_waves(name: str, threads: int) -> None:
    shape, n = SHAPES[name], 70
    x, kernels = stream(shape, n), native(threads)
    want = Layer(shape, kernels, x).run(list(range(n)))
    source = shelf(kernels, shape, resident=range(shape.experts))
    layer = tiered(kernels, shape, x, source)
    for tokens in ([5], [9, 3], list(range(n))):
        assert torch.equal(layer.run(tokens), want[tokens])
    assert [(call, chosen.shape) for call, chosen, _ in source.log] == [
        ("served", (n, shape.top_k)) for n in (1, 2, 70)
    ]


@pytest.mark.parametrize("name", SHAPES)
def test_the_reference_in_waves(name: str) -> None:
    shape, kernels = SHAPES[name], choose(Backend.REFERENCE, "cpu", 1)
    x, tokens = stream(shape, 10), list(range(10))
    want = Layer(shape, kernels, x).run(tokens)
    for split in SPLITS:
        got = tiered(kernels, shape, x, shelf(kernels, shape, split)).run(tokens)
        assert (got - want).abs().max() < 1e-5


def test_a_long_step_asks_for_each_expert_once() -> None:
    shape, n = SHAPES["shared and gated"], 1500
    x, kernels = stream(shape, 70), native()
    tokens = [t * 7 % 70 for t in range(n)]
    source = shelf(kernels, shape, shuffled)
    got = tiered(kernels, shape, x, source).run(tokens)
    assert torch.equal(got, Layer(shape, kernels, x).run(tokens))
    (_, chosen, guess), *more = source.log
    assert chosen.shape == (n, shape.top_k) and guess is None and not more


def test_a_step_without_tokens() -> None:
    shape, kernels = SHAPES["shared"], native()
    layer = tiered(kernels, shape, stream(shape, 3), shelf(kernels, shape))
    assert layer.run([]).shape == (0, shape.hidden)


# ------------------------------------------------------------------ choice and guess


def guessed(shape: Mixture, x: torch.Tensor, router: torch.Tensor) -> list[list[int]]:
    """Independent of the kernels: the first layer's input through a router."""
    residual = mixture(shape).residual
    logits = rms_norm(x, residual.norm, residual.eps) @ router.T
    return logits.argsort(dim=-1, descending=True)[:, : shape.top_k].tolist()


@pytest.mark.parametrize("backend", [Backend.NATIVE, Backend.REFERENCE])
@pytest.mark.parametrize("n", [1, 2, 70])
def test_what_a_source_is_told(backend: Backend, n: int) -> None:
    """The choice and the guess, against torch; the guess changes no output."""
    shape, kernels = SHAPES["odd"], choose(backend, "cpu", 2)
    x = stream(shape, n)
    after = mixture(replace(shape, experts=12, seed=3))
    later = Shelf(kernels, after.experts)
    source = shelf(kernels, shape)
    op = kernels.tiered_moe(mixture(shape), source, NextMixture(after.router, later))
    got = Stack(shape, kernels, x, [op]).run(list(range(n)))
    want = Layer(shape, kernels, x).run(list(range(n)))
    assert torch.allclose(got, want, atol=1e-5)
    ((_, chosen, guess),) = source.log
    assert chosen.dtype == np.int32 and guess is not None and guess.dtype == np.int32
    assert chosen.tolist() == guessed(shape, x, dequantise(mixture(shape).router))
    assert guess.tolist() == guessed(shape, x, dequantise(after.router))


def test_a_guess_that_is_absent_asks_the_source() -> None:
    """All chosen experts are at hand: only the guess decides whether the step stops."""
    shape, kernels = SHAPES["odd"], native()
    x = stream(shape, 1)
    after = mixture(replace(shape, seed=3))
    later = Shelf(kernels, after.experts)
    source = shelf(kernels, shape, resident=range(9))
    op = kernels.tiered_moe(mixture(shape), source, NextMixture(after.router, later))
    layer = Stack(shape, kernels, x, [op])
    want = Layer(shape, kernels, x).run([0])
    (guess,) = guessed(shape, x, dequantise(after.router))
    for expert in guess:
        assert torch.equal(layer.run([0]), want)
        assert source.log.pop()[0] == "waves"
        later.settle(expert)
    assert torch.equal(layer.run([0]), want)
    assert source.log.pop()[0] == "served"


def test_sources_are_told_in_the_order_of_the_layers() -> None:
    """Four mixtures, the third one's experts absent, the fourth's unusable until then."""
    shape, kernels = SHAPES["odd"], native()
    x, log = stream(shape, 20), []
    shapes = [replace(shape, seed=seed) for seed in range(4)]
    sources = [
        Shelf(kernels, mixture(s).experts, backwards, () if i == 2 else range(9), str(i), log)
        for i, s in enumerate(shapes)
    ]
    ops = [kernels.tiered_moe(mixture(s), w) for s, w in zip(shapes, sources, strict=True)]
    plain = [kernels.moe(mixture(s)) for s in shapes]
    tokens = list(range(20))
    want = Stack(shape, kernels, x, plain).run(tokens)
    layers = Stack(shape, kernels, x, ops)
    for _ in range(2):
        assert torch.equal(layers.run(tokens), want)
        assert [call for call, _, _ in log] == ["served 0", "served 1", "waves 2", "served 3"]
        log.clear()


# ------------------------------------------------------------------ failures


@pytest.mark.parametrize("at", [0, 1])
def test_a_failed_wave_harms_no_later_step(at: int) -> None:
    shape, kernels = SHAPES["shared and gated"], native()
    x, tokens = stream(shape, 30), list(range(30))
    want = Layer(shape, kernels, x).run(tokens)
    source = shelf(kernels, shape, singly)
    layer = tiered(kernels, shape, x, source)
    source.fail_at = at
    with pytest.raises(OSError, match="cannot be had"):
        layer.run(tokens[::-1])
    source.fail_at = None
    assert torch.equal(layer.run(tokens), want)


class Wrong(Shelf):
    """Brings every expert twice, or another one's number, or not the last."""

    def __init__(self, kernels: Kernels, shape: Mixture, how: str) -> None:
        super().__init__(kernels, mixture(shape).experts, singly)
        self.how = how

    def waves(self, chosen: IntArray, ahead: IntArray | None) -> Iterator[ExpertWave]:
        *waves, last = list(super().waves(chosen, ahead))
        if self.how == "stranger":
            absent = np.setdiff1d(np.arange(len(self.places)), chosen)[:1]
            waves.append(ExpertWave(last.arena, absent.astype(np.int32), last.slots))
        yield from waves
        if self.how != "forgotten":
            yield last
        if self.how == "twice":
            yield last


@pytest.mark.parametrize("how", ["twice", "stranger", "forgotten"])
def test_wrong_waves_are_noticed(how: str) -> None:
    shape, kernels = SHAPES["odd"], native()
    layer = tiered(kernels, shape, stream(shape, 1), Wrong(kernels, shape, how))
    with pytest.raises((ValueError, AssertionError)):
        layer.run([0])


# ------------------------------------------------------------------ records


def test_a_plain_record_is_the_expert() -> None:
    kernels = choose(Backend.REFERENCE, "cpu", 2)
    for shape in SHAPES.values():
        expert = mixture(shape).experts[-1]
        form = kernels.expert_form(expert)
        record = torch.full((form.nbytes,), 7, dtype=torch.uint8)
        kernels.pack_expert(expert, record)
        for got, want in zip(unpacked(record, form).matrices, expert.matrices, strict=True):
            assert torch.equal(got.data, want.data)
            assert (got.format, got.rows, got.cols) == (want.format, want.rows, want.cols)


def test_packed_records() -> None:
    """Matrices begin at multiples of 64; a record does not depend on what was in its memory."""
    names = {choose(Backend.REFERENCE, "cpu", 2).packing}
    for isa in ISAS:
        kernels = native(2, isa)
        names.add(kernels.packing)
        for shape in SHAPES.values():
            expert: Expert = mixture(shape).experts[0]
            form = kernels.expert_form(expert)
            assert all(at % 64 == 0 for at in (*form.offsets, form.nbytes))
            assert (form.ffn, form.hidden) == (shape.ffn, shape.hidden)
            assert form.formats == tuple(int(kind) for kind in shape.formats)
            records = [torch.full((form.nbytes,), fill, dtype=torch.uint8) for fill in (0, 255)]
            for record in records:
                kernels.pack_expert(expert, record)
            assert torch.equal(*records)
    assert len(names) == 1 + len(ISAS)
