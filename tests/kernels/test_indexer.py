"""Attention that sees chosen blocks: against the specification, and its equal bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_attention import close, models
from toy import STRANGE, Shape, Toy, Weights, random_tokens

from strata.kernels import choose
from strata.kernels.quant import Format
from strata.types import Backend

_cpu = pytest.importorskip("strata.kernels._cpu", reason="the native kernels were not built")
ISAS = _cpu.isas()

SHAPES = {
    "blocks of 4": Shape(budget=32, gated=True, head_norms=True),
    "more than a segment": Shape(
        budget=264, ratio=8, layers="a", heads=4, head_dim=64, block=32, index_dim=72
    ),
    "one block": Shape(budget=5, ratio=5, block=15, kv_heads=3, index_heads=9, index_dim=32),
    "many scores of 0": Shape(budget=48, index_heads=1, layers="a"),
    "every token": Shape(budget=16, ratio=1, index_heads=17, rope_dims=16, layers="a"),
}


def length(shape: Shape) -> int:
    return shape.budget + 60


def toy(shape: Shape, isa: str = ISAS[0], threads: int = 2, kv_type: str = "f16") -> Toy:
    return Toy(Weights(shape), choose(Backend.NATIVE, "cpu", threads, isa, kv_type), pages=160)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", SHAPES)
def test_against_the_reference(name: str, isa: str) -> None:
    shape = SHAPES[name]
    tokens = random_tokens(length(shape))
    native, reference = models(shape, isa)
    first, second = native.sequence(tokens), reference.sequence(tokens)
    got, want = native.read(first, 50), reference.read(second, 1000)
    close(got, want)
    close(native.memory(first).float(), reference.memory(second).float())
    dense = toy(replace(shape, budget=4096 * shape.ratio), isa)
    far = dense.read(dense.sequence(tokens), 1000) - want
    last = shape.budget + shape.ratio - 1  # the first position that sees less than everything
    assert far[last:].pow(2).mean() > 1e-3 * want.pow(2).mean()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", SHAPES)
def test_below_the_budget_it_is_dense_attention_to_the_bit(name: str, isa: str) -> None:
    shape = SHAPES[name]
    tokens = random_tokens(length(shape))
    sparse = toy(shape, isa)
    weights = Weights(shape)
    weights.layers = [(replace(a, indexer=None), m) for a, m in weights.layers]
    dense = Toy(weights, choose(Backend.NATIVE, "cpu", 2, isa), pages=160)
    got = sparse.read(sparse.sequence(tokens), 1000)
    want = dense.read(dense.sequence(tokens), 1000)
    last = shape.budget + shape.ratio - 1
    assert torch.equal(got[:last], want[:last])
    assert not torch.equal(got[last], want[last])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", SHAPES)
def test_chunks_threads_and_pages_change_no_bit(name: str, isa: str) -> None:
    formats = (Format.Q8_0, Format.F32, Format.F16, Format.F32, Format.F32, Format.Q4_0)
    shape = replace(SHAPES[name], formats=formats)
    tokens = random_tokens(length(shape))
    cold = toy(shape, isa, 1)
    want = cold.read(cold.sequence(tokens), 1000)
    assert want.isfinite().all()
    for threads, chunk in ((2, 1), (1, 7), (2, 64), (2, 1000)):
        other = toy(shape, isa, threads)
        s = other.sequence(tokens, order=np.random.default_rng(chunk))
        assert torch.equal(other.read(s, chunk), want), (threads, chunk)


def test_company_changes_no_bit() -> None:
    """Rows on both sides of the budget, and across it, in one step."""
    shape = SHAPES["blocks of 4"]
    model, alone = toy(shape), toy(shape, threads=1)
    texts = [random_tokens(n, seed=n) for n in (20, 36, 45, 90, 121)]
    rows = [model.sequence(text) for text in texts]
    model.step([(s, min(len(s.tokens), 33)) for s in rows])
    model.step([(s, min(len(s.tokens) - s.done, 30)) for s in rows if s.done < len(s.tokens)])
    while left := [(s, 1) for s in rows if s.done < len(s.tokens)]:
        model.step(left)
    for text, s in zip(texts, rows, strict=True):
        assert torch.equal(torch.cat(s.logits), alone.read(alone.sequence(text), 200))


@pytest.mark.parametrize("kv_type", ["f16", "q8"])
@pytest.mark.parametrize("at", [1, 2, 3, 34, 47, 77])
def test_a_page_copied_in_the_middle_of_a_block_goes_on(at: int, kv_type: str) -> None:
    shape = SHAPES["blocks of 4"]
    tokens = random_tokens(100)
    model = toy(shape, kv_type=kv_type)
    want = model.read(model.sequence(tokens), 1000)
    first = model.sequence(tokens)
    model.step([(first, at)])
    second = model.sequence(tokens)
    for source, target in zip(first.pages, second.pages, strict=True):
        model.copy_page(source, target)
    for held in (model.record, *model.index):
        held.view(torch.uint8)[first.pages] = STRANGE
    second.done = at
    assert torch.equal(model.read(second, 9), want[at:])


@pytest.mark.parametrize("kv_type", ["f16", "q8"])
@pytest.mark.parametrize("isa", ISAS)
def test_equal_scores_take_the_first_blocks_and_nothing_else_is_read(
    isa: str, kv_type: str
) -> None:
    """Index queries of 0: every score is 0. What is not chosen is then made no number."""
    shape = replace(SHAPES["blocks of 4"], layers="a")
    weights = Weights(shape)
    ((attention, mlp),) = weights.layers
    assert attention.indexer is not None
    q = replace(attention.indexer.q, held=torch.zeros_like(attention.indexer.q.data))
    index = replace(attention.indexer, q=q)
    weights.layers = [(replace(attention, indexer=index), mlp)]
    model = Toy(weights, choose(Backend.NATIVE, "cpu", 2, isa, kv_type))
    strange = STRANGE if kv_type == "q8" else torch.nan
    tokens = random_tokens(111)
    want = model.read(model.sequence(tokens), 1000)[-1]
    s = model.sequence(tokens)
    model.step([(s, 110)])
    # Position 110 sees blocks 0..7, tokens 0..31, and tokens 108..110.
    for page in s.pages[2:6]:
        model.record[page] = strange
    keys, values = (field[s.pages[6]] for field in model.fields)
    keys.flatten(1).unflatten(1, (4, -1))[:, :3] = strange
    values[:, :12] = strange
    model.step([(s, 1)])
    assert torch.equal(s.logits[-1][0], want)
    for field in model.fields:
        field[s.pages[1]] = strange  # tokens 16..31 are chosen
    s.done = 110
    model.step([(s, 1)])
    assert not s.logits[-1].isfinite().any()
