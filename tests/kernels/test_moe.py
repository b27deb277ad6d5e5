"""The native mixture of experts against the plain torch specification, and its equal bits."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from moe_toy import Layer, Mixture, mixture

from strata.kernels import choose
from strata.kernels.quant import FILE_FORMATS, Format, QTensor
from strata.types import Backend

_cpu = pytest.importorskip("strata.kernels._cpu", reason="the native kernels were not built")
ISAS = _cpu.isas()

F = Format
SHAPES = {
    "one expert": Mixture(experts=1, top_k=1),
    "every expert": Mixture(experts=4, top_k=4, normalise=False),
    "3 of 5": Mixture(experts=5, top_k=3, hidden=100, ffn=52),
    "shared": Mixture(experts=9, top_k=2, shared_ffn=72, hidden=96, ffn=33),
    "shared and gated": Mixture(
        experts=40, top_k=6, shared_ffn=224, gated=True, hidden=160, ffn=96,
        formats=(F.Q8_0, F.Q4_0, F.Q5_0), normalise=False,
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


def stream(shape: Mixture, n: int) -> torch.Tensor:
    return 0.1 * torch.randn(n, shape.hidden, generator=torch.Generator().manual_seed(n))


def native(shape: Mixture, x: torch.Tensor, isa: str = ISAS[0], threads: int = 2) -> Layer:
    return Layer(shape, choose(Backend.NATIVE, "cpu", threads, isa), x)


@cache
def expected(shape: Mixture, n: int) -> torch.Tensor:
    x = stream(shape, n)
    return Layer(shape, choose(Backend.REFERENCE, "cpu", 2), x).run(list(range(n)))


def close(shape: Mixture, n: int, isa: str) -> None:
    x = stream(shape, n)
    got = native(shape, x, isa).run(list(range(n)))
    want = expected(shape, n)
    # Rounding only: a choice among equals would show as an error near 1.
    assert (got - want).abs().max() <= 2e-4 * want.abs().max()
    other = expected(replace(shape, seed=1), n)
    assert (want - other).pow(2).mean() > 0.1  # the bound is not idle


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n", [1, 2, 3, 130])
@pytest.mark.parametrize("name", SHAPES)
def test_against_the_reference(name: str, n: int, isa: str) -> None:
    close(SHAPES[name], n, isa)


@pytest.mark.parametrize("kind", FILE_FORMATS)
def test_every_format(kind: Format) -> None:
    close(Mixture(experts=3, top_k=2, hidden=256, ffn=256, formats=(kind,) * 3), 37, ISAS[0])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", SHAPES)
def test_company_and_threads_change_no_bit(name: str, isa: str) -> None:
    """The expectation is each token alone, by one thread."""
    shape, n = SHAPES[name], 40
    x = stream(shape, n)
    alone, together = native(shape, x, isa, 1), native(shape, x, isa, 2)
    want = torch.cat([alone.run([t]) for t in range(n)])
    assert want.isfinite().all()
    assert torch.equal(together.run(list(range(n))), want)
    for tokens in ([5], [9, 3], [3] * 4, list(range(n - 1, 0, -3)), [t % n for t in range(600)]):
        assert torch.equal(together.run(tokens), want[tokens]), tokens


def test_equal_logits_take_the_first_experts() -> None:
    """All logits alike: experts 0 and 1, whatever torch would take."""
    shape = Mixture(experts=20, top_k=2)
    x, w = stream(shape, 5), mixture(shape)

    def alike(count: int) -> QTensor:
        data = torch.zeros(count * w.router.row_bytes, dtype=torch.uint8)
        return replace(w.router, held=data, rows=count)

    native, reference = choose(Backend.NATIVE, "cpu", 2), choose(Backend.REFERENCE, "cpu", 2)
    got = Layer(shape, native, x, router=alike(20)).run(list(range(5)))
    two = Layer(shape, reference, x, router=alike(2), experts=w.experts[:2])
    want = two.run(list(range(5)))
    assert (got - want).abs().max() <= 2e-4 * want.abs().max()


def test_a_broken_token_stays_alone() -> None:
    shape = SHAPES["shared and gated"]
    x = stream(shape, 20)
    want = native(shape, x).run(list(range(20)))
    x[7, 3] = float("nan")
    got = native(shape, x).run(list(range(20)))
    rest = [t for t in range(20) if t != 7]
    assert not got[7].isfinite().any()
    assert torch.equal(got[rest], want[rest])
