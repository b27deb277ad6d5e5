"""A token's logits and memory are the same bits however its sequence was read.

The expectation is one cold step of the whole sequence, alone, by one thread.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from toy import Shape, Toy, Weights, random_tokens

from strata.kernels import choose
from strata.kernels.quant import Format
from strata.types import Backend, ConfigError, ModelError

_cpu = pytest.importorskip("strata.kernels._cpu", reason="the native kernels were not built")
ISAS = _cpu.isas()

MIXED = (Format.Q8_0, Format.Q5_0, Format.Q4_1, Format.F32, Format.F16)
SHAPES = {
    "grouped": Shape(formats=MIXED),
    "one key head, odd group": Shape(heads=7, kv_heads=1, head_dim=64, formats=(Format.Q4_0,)),
    "key head each, narrow": Shape(heads=3, kv_heads=3, head_dim=40, formats=(Format.F32,)),
    "head norms, biases, blocks of 8": Shape(
        heads=8, kv_heads=2, block=8, head_norms=True, biases=True, formats=(Format.Q8_0,)
    ),
    "blocks of 12": Shape(heads=4, kv_heads=2, block=12, formats=(Format.Q4_1, Format.Q8_0)),
}
LENGTH = 300  # beyond one segment of 256 keys, ending inside a block


def toy(shape: Shape, isa: str, threads: int) -> Toy:
    return Toy(Weights(shape), choose(Backend.NATIVE, "cpu", threads, isa), pages=160)


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("name", SHAPES)
def test_chunks_threads_and_pages_change_no_bit(name: str, isa: str) -> None:
    tokens = random_tokens(LENGTH)
    cold = toy(SHAPES[name], isa, 1)
    whole = cold.sequence(tokens)
    logits, memory = cold.read(whole, LENGTH), cold.memory(whole)
    assert logits.isfinite().all() and memory.isfinite().all()
    for threads, chunk in ((1, 1), (2, 1), (1, 7), (2, 64), (2, LENGTH)):
        other = toy(SHAPES[name], isa, threads)
        s = other.sequence(tokens, order=np.random.default_rng(chunk))
        assert torch.equal(other.read(s, chunk), logits), (threads, chunk)
        assert torch.equal(other.memory(s), memory), (threads, chunk)


@pytest.mark.parametrize("seed", range(4))
def test_company_changes_no_bit(seed: int, isa: str) -> None:
    """Random steps: sequences begin, read chunks or single tokens and end beside each other."""
    rng = np.random.default_rng(seed)
    shape = SHAPES["grouped"]
    texts = [random_tokens(int(rng.integers(1, 320)), seed=100 + i) for i in range(6)]
    together = toy(shape, isa, 2)
    running = [together.sequence(text, order=rng) for text in texts]
    while left := [s for s in running if s.done < len(s.tokens)]:
        rng.shuffle(left)
        batch = []
        for s in left[: int(rng.integers(1, 5))]:
            most = len(s.tokens) - s.done
            batch.append((s, min(most, int(rng.choice([1, 1, 2, 17, 90])))))
        together.step(batch)
    for text, s in zip(texts, running, strict=True):
        alone = toy(shape, isa, 1)
        expected = alone.sequence(text)
        assert torch.equal(torch.cat(s.logits), alone.read(expected, len(text)))
        assert torch.equal(together.memory(s), alone.memory(expected))


def test_many_rows_of_single_tokens_change_no_bit(isa: str) -> None:
    """Decoding, 9 rows at different depths: more rows than a matrix tile takes at once."""
    shape = SHAPES["grouped"]
    model = toy(shape, isa, 2)
    rows = [model.sequence(random_tokens(20 + 29 * i, seed=i)) for i in range(9)]
    model.step([(s, len(s.tokens) - 5) for s in rows])
    for _ in range(5):
        model.step([(s, 1) for s in rows])
    for i, s in enumerate(rows):
        alone = toy(shape, isa, 1)
        expected = alone.read(alone.sequence(random_tokens(20 + 29 * i, seed=i)), 400)
        assert torch.equal(torch.cat(s.logits), expected), i


def test_shared_pages_are_read_and_not_written(isa: str) -> None:
    """A second sequence on the sealed pages of a first: the same bits, its rows untouched."""
    model = toy(SHAPES["grouped"], isa, 2)
    text = random_tokens(100)
    first = model.sequence(text)
    logits, memory = model.read(first, 40), model.memory(first).clone()
    second = model.sequence(text)
    shared = 6  # whole blocks
    second.pages[:shared] = first.pages[:shared]
    second.writable_from = shared * model.shape.block
    second.done = 50  # reads 46 tokens whose keys are there already, then 4 of its own
    assert torch.equal(model.read(second, 33), logits[50:])
    assert torch.equal(model.memory(first), memory)
    assert torch.equal(model.memory(second), memory)

    # Other tokens at sealed positions leave the page alone: they see what it holds.
    liar = model.sequence(random_tokens(100, seed=9))
    liar.pages[:shared], liar.writable_from, liar.done = first.pages[:shared], 96, 90
    model.step([(liar, 6)])
    assert torch.equal(model.memory(first), memory)


def test_instruction_sets_live_side_by_side() -> None:
    tokens = random_tokens(30)
    kernels = [choose(Backend.NATIVE, "cpu", 2, isa) for isa in ISAS]
    models = [Toy(Weights(SHAPES["grouped"]), k) for k in kernels]
    once = [model.read(model.sequence(tokens), 30) for model in models]
    again = [model.read(model.sequence(tokens), 30) for model in models]
    for a, b in zip(once, again, strict=True):
        assert torch.equal(a, b)
        assert (a - once[0]).abs().max() < 0.2 * once[0].abs().max()


def test_an_empty_sample_and_a_part_of_one() -> None:
    model = toy(SHAPES["grouped"], ISAS[0], 2)
    s = model.sequence(random_tokens(20))
    plan = model.plan([(s, 20)])
    every = model.program.run(plan).logits.clone()
    some = [3, 19, 7]
    for wanted in ([], some):
        object.__setattr__(plan, "sample", np.asarray(wanted, np.int32))
        assert torch.equal(model.program.run(plan).logits, every[wanted])


def test_a_token_outside_the_vocabulary_is_refused() -> None:
    model = toy(SHAPES["grouped"], ISAS[0], 1)
    s = model.sequence(np.array([1, model.shape.vocab]))
    with pytest.raises(IndexError, match="not in the vocabulary"):
        model.read(s, 2)


def test_what_cannot_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="--device cpu"):
        choose(Backend.AUTO, "cuda", 1)
    with pytest.raises(ConfigError, match="available"):
        choose(Backend.NATIVE, "cpu", 1, "sse9")
    with pytest.raises(ModelError, match="multiple of 8"):
        toy(Shape(head_dim=36), ISAS[0], 1)
