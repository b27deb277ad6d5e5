"""The native layers against the plain torch specification, over odd sizes.

Weights are float32 and both sides keep float16 pages, so only the order of sums and
the exponential differ.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from toy import Shape, Toy, Weights, random_tokens

from strata.kernels import choose
from strata.kernels.quant import Format
from strata.kernels.residual import PreNorm
from strata.types import Backend

_cpu = pytest.importorskip("strata.kernels._cpu", reason="the native kernels were not built")
ISAS = _cpu.isas()

# heads, key heads, head_dim, block: groups of 1, 3, 4, 7, 8 and 12, blocks that are
# no whole register, head dims that are none.
SIZES = [
    (3, 3, 64, 16), (9, 3, 64, 16), (8, 2, 128, 16), (7, 1, 96, 16), (8, 1, 32, 16),
    (12, 1, 40, 32), (6, 2, 72, 5), (4, 1, 256, 16), (4, 4, 8, 8), (14, 2, 64, 64),
]  # fmt: skip
# Tails of a block, the borders of a key tile (64) and of a segment (256).
LENGTHS = [1, 2, 15, 16, 17, 63, 64, 65, 127, 129, 255, 256, 257, 321, 513]


def models(shape: Shape, isa: str, pages: int = 200) -> tuple[Toy, Toy]:
    weights = Weights(shape)
    native = Toy(weights, choose(Backend.NATIVE, "cpu", 2, isa), pages)
    reference = choose(Backend.REFERENCE, "cpu", 2)
    return native, Toy(weights, reference, pages, dtype=torch.float16)


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.isfinite().all() and want.isfinite().all()
    # Halves of keys may round the other way, by one unit in 2048.
    assert (got - want).abs().max() <= 4e-3 * want.abs().max()
    assert (got - want).pow(2).mean().sqrt() <= 4e-4 * want.pow(2).mean().sqrt()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_lengths_and_heads(size: tuple[int, int, int, int], isa: str) -> None:
    heads, kv_heads, head_dim, block = size
    shape = Shape(heads=heads, kv_heads=kv_heads, head_dim=head_dim, block=block)
    slow = isa == "portable" or head_dim > 128
    lengths = LENGTHS[:-2] if slow else LENGTHS
    pages = sum(-(-n // block) for n in lengths)
    native, reference = models(shape, isa, pages)
    for model in (native, reference):
        model.rows = [model.sequence(random_tokens(n, seed=n)) for n in lengths]
        # All but the last token of each, then that one: both ways of attending.
        for count in (lambda s: len(s.tokens) - 1, lambda s: 1):
            model.step([(s, count(s)) for s in model.rows if count(s)])
    for a, b in zip(native.rows, reference.rows, strict=True):
        close(torch.cat(a.logits), torch.cat(b.logits))
        close(native.memory(a).float(), reference.memory(b).float())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(head_norms=True, biases=True),
        Shape(rope_dims=16),
        Shape(rope_dims=16, head_norms=True, gated=True),
        Shape(whole_norms=True, heads=4, kv_heads=2),
        Shape(hidden=100, ffn=52, vocab=71, heads=5, kv_heads=1, head_dim=24),
    ],
    ids=["norms and biases", "part of a head turns", "gated", "whole norms", "no whole registers"],
)
def test_variants(shape: Shape, isa: str) -> None:
    tokens = random_tokens(90, vocab=shape.vocab)
    native, reference = models(shape, isa)
    close(native.read(native.sequence(tokens), 41), reference.read(reference.sequence(tokens), 90))


@pytest.mark.parametrize("isa", ISAS)
def test_quantised_weights_cost_only_the_activations_rounding(isa: str) -> None:
    shape = Shape(hidden=256, ffn=512, formats=(Format.Q8_0, Format.Q4_1, Format.Q5_0))
    tokens = random_tokens(60)
    native, reference = models(shape, isa)
    got = native.read(native.sequence(tokens), 60)
    want = reference.read(reference.sequence(tokens), 60)
    assert (got - want).pow(2).mean().sqrt() < 0.1 * want.pow(2).mean().sqrt()
    # Other weights are further away than that: the bound is not idle.
    other = Toy(Weights(replace(shape, seed=1)), choose(Backend.NATIVE, "cpu", 1, isa))
    far = other.read(other.sequence(tokens), 60)
    assert (far - want).pow(2).mean().sqrt() > 0.5 * want.pow(2).mean().sqrt()


@pytest.mark.parametrize("isa", ISAS)
def test_huge_values_of_later_tokens_do_not_reach_earlier_ones(isa: str) -> None:
    """A value that no half can hold, right behind a token in the same tile of queries."""
    weights = Weights(Shape(layers="a"))
    kernels = choose(Backend.NATIVE, "cpu", 1, isa)
    table = weights.table.data.view(torch.float32).view(80, -1)
    attention, mlp = weights.layers[0]
    big = replace(attention, residual=PreNorm(attention.residual.norm * 1e6, 1e-5))
    weights.layers[0] = (big, mlp)
    table[7] *= 10
    model = Toy(weights, kernels)
    tokens = random_tokens(30)
    tokens[20] = 7
    logits = model.read(model.sequence(tokens), 30)
    assert logits.isfinite().all()
    assert torch.equal(logits[:20], model.read(model.sequence(tokens[:20]), 20))
