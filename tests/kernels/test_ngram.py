"""Native n-gram embeddings against the plain torch specification, and against themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from toy import Shape, Toy, Weights, random_tokens

from strata.kernels import choose
from strata.kernels.ngram import NgramWeights
from strata.kernels.quant import Format, QTensor
from strata.types import Backend, Capture

_cpu = pytest.importorskip("strata.kernels._cpu", reason="the native kernels were not built")
ISAS = _cpu.isas()

# A small vocabulary: the end token (5) is often among the last ones.
N = Shape(hidden=64, ffn=32, vocab=12, layers="n", streams=4, rank=8)
SHAPES = {
    "four streams": N,
    "pairs, one stream, no whole registers": replace(
        N, hidden=36, ffn=20, streams=1, grams=1, dilation=1, kernel=2
    ),
    "wide, quantised": replace(
        N, hidden=416, dilation=2, kernel=3, table_format=Format.Q8_0, formats=(Format.F32,)
    ),
}


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def native(shape: Shape, isa: str, threads: int = 2) -> Toy:
    return Toy(Weights(shape), choose(Backend.NATIVE, "cpu", threads, isa))


def text(n: int, seed: int = 0) -> np.ndarray:
    return random_tokens(n, seed, vocab=12)


@pytest.mark.parametrize("name", SHAPES)
def test_reference(name: str, isa: str) -> None:
    shape = SHAPES[name]
    models = (native(shape, isa), Toy(Weights(shape), choose(Backend.REFERENCE, "cpu", 2)))
    for model in models:
        model.rows = [model.sequence(text(n + 2, seed=n)) for n in (1, 2, 7, 60, 270)]
        model.step([(s, len(s.tokens) - 2) for s in model.rows])
        model.step([(s, 2 - i % 2) for i, s in enumerate(model.rows)])
    for a, b in zip(models[0].rows, models[1].rows, strict=True):
        for got, want in (
            (torch.cat(a.logits), torch.cat(b.logits)),
            # The history's whole numbers are too small to be seen beside the window.
            (models[0].state(a.slot), models[1].state(b.slot)),
        ):
            assert got.isfinite().all() and want.isfinite().all()
            assert (got - want).abs().max() <= 1e-5 * want.abs().max()
        past = shape.grams
        assert torch.equal(models[0].state(a.slot)[:past], models[1].state(b.slot)[:past])
        assert torch.equal(
            models[0].state(a.slot)[:past].view(torch.int32),
            torch.from_numpy(a.tokens[a.done - past : a.done]).int() + 1,
        )


def test_chunks_threads_company_and_captures_change_no_bit(isa: str) -> None:
    shape = replace(N, layers="nd", formats=(Format.Q8_0, Format.F32))
    tokens = text(280)
    cold = native(shape, isa, 1)
    logits = cold.read(cold.sequence(tokens), 280)
    for threads, chunk in ((2, 1), (1, 5), (2, 254), (2, 255)):
        model = native(shape, isa, threads)
        beside, s = model.sequence(text(300, seed=1)), model.sequence(tokens)
        # Once the sequence begins with the last token of a block of 256.
        model.step([(beside, 255 if chunk == 5 else 3), (s, chunk)])
        assert torch.equal(model.read(s, chunk), logits), chunk

    for offsets in (range(1, 13), (253, 254, 255, 256, 257, 278)):
        model = native(shape, isa)
        beside, s = model.sequence(text(300, seed=1)), model.sequence(tokens)
        model.step([(beside, 1), (s, 2)])
        captures = [Capture(1, n, n + 2, model.slot()) for n in offsets]
        model.step([(beside, 2), (s, max(offsets))], captures)
        for capture in captures:
            short = native(shape, isa)
            other = short.sequence(tokens[: capture.position])
            short.read(other, 300)
            assert torch.equal(_bits(model, capture.slot), _bits(short, other.slot)), capture


class Elsewhere:
    """Has the rows of a table in slots that differ from step to step, and strange bytes beside."""

    def __init__(self, table: list[QTensor]) -> None:
        rows = torch.cat([part.data.view(part.rows, -1) for part in table])
        self.rows, self.rng = rows.numpy(), np.random.default_rng(0)
        self.table = torch.empty(3 * len(rows), rows.shape[1], dtype=torch.uint8)

    def fetch(self, rows: np.ndarray) -> np.ndarray:
        order = self.rng.permutation(len(self.table))[: len(self.rows)].astype(np.int32)
        self.table.fill_(0x7F)
        self.table[torch.from_numpy(order[rows]).long()] = torch.from_numpy(self.rows[rows])
        return order[rows]


def elsewhere(w: NgramWeights) -> NgramWeights:
    """With a source, and nothing in the table itself."""
    empty = [replace(part, held=torch.zeros_like(part.data)) for part in w.table]
    return replace(w, table=empty, source=Elsewhere(w.table))


@pytest.mark.parametrize("kind", ["reference", *ISAS])
@pytest.mark.parametrize("form", [Format.F32, Format.Q4_0])
def test_rows_that_are_fetched_change_no_bit(kind: str, form: Format) -> None:
    shape = replace(N, layers="nnd", formats=(Format.Q8_0, Format.F32), table_format=form)

    def model(fetched: bool, threads: int = 2) -> Toy:
        weights = Weights(shape)
        if fetched:
            weights.layers = [
                (elsewhere(w) if isinstance(w, NgramWeights) else w, mlp)
                for w, mlp in weights.layers
            ]
        if kind == "reference":
            return Toy(weights, choose(Backend.REFERENCE, "cpu", 1))
        return Toy(weights, choose(Backend.NATIVE, "cpu", threads, kind))

    found = []
    for toy in (model(False), model(True), model(True, 1)):
        a, b, c = (toy.sequence(text(n, seed=n)) for n in (300, 40, 9))
        captures = [Capture(0, 2, 2, toy.slot()), Capture(0, 259, 259, toy.slot())]
        captures.append(Capture(1, 5, 5, toy.slot()))
        toy.step([(a, 260), (b, 7)], captures)
        toy.step([(b, 1), (a, 1), (c, 4)])
        toy.step([(c, 5), (b, 30), (a, 39)])
        slots = [*(capture.slot for capture in captures), a.slot, b.slot, c.slot]
        logits = [torch.cat(s.logits).view(torch.int32) for s in (a, b, c)]
        found.append([*logits, *(_bits(toy, slot) for slot in slots)])
    for got in found[1:]:
        assert all(map(torch.equal, got, found[0]))


def _bits(model: Toy, slot: int) -> torch.Tensor:
    return model.state(slot).view(torch.int32)
