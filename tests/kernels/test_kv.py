"""The types of keys and values in pages: what is stored, what is computed from it, equal bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from toy import Shape, Toy, Weights, random_tokens

from strata.kernels import choose, kv
from strata.kernels.quant import Format
from strata.types import Backend, ConfigError

_cpu = pytest.importorskip("strata.kernels._cpu", reason="the native kernels were not built")
ISAS = _cpu.isas()

SHAPES = {
    "straight from the pages": Shape(heads=6, kv_heads=2, head_dim=64),
    "a scale of few": Shape(heads=3, kv_heads=1, head_dim=48, block=32),
    "no whole registers": Shape(heads=3, kv_heads=3, head_dim=40, block=12),
    "wide": Shape(heads=4, kv_heads=1, head_dim=256, layers="a"),
    "chosen blocks": Shape(budget=32, gated=True, head_norms=True, head_dim=64, rope_dims=32),
    "chosen blocks of 5": Shape(budget=5, ratio=5, block=15, kv_heads=3, index_heads=9),
}
DENSE = [name for name, shape in SHAPES.items() if not shape.budget]


def native(shape: Shape, kv_type: str, isa: str = ISAS[0], threads: int = 2) -> Toy:
    return Toy(Weights(shape), choose(Backend.NATIVE, "cpu", threads, isa, kv_type), pages=80)


def rounded(x: np.ndarray, kv_type: str) -> np.ndarray:
    """x [..., head_dim] as a page keeps it, in float64."""
    if kv_type == "f16":
        return x.astype(np.float16).astype(np.float64)
    if kv_type == "bf16":
        return bf16(x)
    parts = []
    for first in range(0, x.shape[-1], 32):
        part = x[..., first : first + 32].astype(np.float64)
        step = bf16((np.abs(part).max(-1, keepdims=True) / 127).astype(np.float32))
        parts.append(np.clip(np.rint(part / np.where(step, step, 1)), -127, 127) * step)
    return np.concatenate(parts, -1)


def bf16(x: np.ndarray) -> np.ndarray:
    """The nearest numbers of 8 bits, of two the even one."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    return np.ldexp(np.rint(mantissa * 256) / 256, exponent)


class Oracle:
    """One layer of attention and what is around it, in float64."""

    def __init__(self, weights: Weights) -> None:
        self.w, mlp = weights.layers[0]
        self.s, self.last = weights.shape, weights.head
        self.around = [_matrix(q) for q in (mlp.gate, mlp.up, mlp.down)], mlp.residual.norm
        self.table = _matrix(weights.table)

    def keys_and_values(self, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[tokens, kv_heads, head_dim] before they are rounded."""
        h = _norm(self.table[tokens], self.w.residual.norm)
        shape = (len(tokens), self.s.kv_heads, self.s.head_dim)
        keys = (h @ _matrix(self.w.k).T).reshape(shape)
        return self._turned(keys), (h @ _matrix(self.w.v).T).reshape(shape)

    def logits(self, tokens: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        x, s = self.table[tokens], self.s
        h = _norm(x, self.w.residual.norm)
        q = self._turned((h @ _matrix(self.w.q).T).reshape(len(tokens), s.heads, s.head_dim))
        group = s.heads // s.kv_heads
        keys, values = (np.repeat(x, group, 1).transpose(1, 0, 2) for x in (keys, values))
        scores = q.transpose(1, 0, 2) @ keys.transpose(0, 2, 1) * self.w.scale
        scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
        p = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (p / p.sum(-1, keepdims=True) @ values).transpose(1, 0, 2)
        x = x + mixed.reshape(len(tokens), -1) @ _matrix(self.w.o).T
        (gate, up, down), norm = self.around
        h = _norm(x, norm)
        g = h @ gate.T
        x = x + (g / (1 + np.exp(-g)) * (h @ up.T)) @ down.T
        return _norm(x, self.last.residual.norm) @ _matrix(self.last.weight).T

    def _turned(self, x: np.ndarray) -> np.ndarray:
        frequencies, half = self.w.rope.frequencies.numpy(), self.w.rope.dims // 2
        angles = (np.arange(len(x), dtype=np.float32)[:, None] * frequencies).astype(np.float64)
        c, s = (f(angles)[:, None] * self.w.rope.magnitude for f in (np.cos, np.sin))
        a, b = x[..., :half], x[..., half:]
        return np.concatenate((a * c - b * s, b * c + a * s), -1)


def _matrix(q) -> np.ndarray:
    return q.data.view(torch.float32).view(q.rows, q.cols).double().numpy()


def _norm(x: np.ndarray, weight: torch.Tensor) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight.double().numpy()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_type", kv.TYPES)
@pytest.mark.parametrize("name", DENSE)
def test_against_float64_on_what_the_pages_hold(name: str, kv_type: str, isa: str) -> None:
    shape = replace(SHAPES[name], layers="a")
    tokens = random_tokens(259)
    oracle, model = Oracle(Weights(shape)), native(shape, kv_type, isa)
    s = model.sequence(tokens)
    model.step([(s, 250)])
    while s.done < len(tokens):
        model.step([(s, 1)])
    logits = torch.cat(s.logits).double().numpy()
    kept = model.memory(s).double().numpy()
    for exact, held in zip(oracle.keys_and_values(tokens), kept, strict=True):
        want = rounded(exact.astype(np.float32), kv_type)
        # A number between two may go either way, and with the largest one its scale.
        assert (np.abs(held - want) > 1e-6 * np.abs(want).max()).mean() < 0.01
        assert np.abs(held - want).max() < 0.02 * np.abs(want).max()
    want = oracle.logits(tokens, *kept)
    assert np.abs(logits - want).max() < 3e-5 * np.abs(want).max()
    other = oracle.logits(tokens, *oracle.keys_and_values(tokens))
    assert np.abs(other - want).max() > 1e-4 * np.abs(want).max(), "the rounding shows"


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_type", ["bf16", "q8"])
@pytest.mark.parametrize("name", SHAPES)
def test_against_the_reference(name: str, kv_type: str, isa: str) -> None:
    shape = SHAPES[name]
    tokens = random_tokens(100)
    model = native(shape, kv_type, isa)
    plain = Toy(Weights(shape), choose(Backend.REFERENCE, "cpu", 1, kv_type=kv_type), pages=80)
    mine, theirs = model.sequence(tokens), plain.sequence(tokens)
    got, want = model.read(mine, 30), plain.read(theirs, 100)
    off = (model.memory(mine) - plain.memory(theirs)).float()
    assert (off != 0).float().mean() < 0.01
    assert (got - want).pow(2).mean().sqrt() < 2e-3 * want.pow(2).mean().sqrt()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_type", ["bf16", "q8"])
@pytest.mark.parametrize("name", SHAPES)
def test_chunks_threads_and_company_change_no_bit(name: str, kv_type: str, isa: str) -> None:
    shape = replace(SHAPES[name], formats=(Format.F32, Format.F16))
    long = name == "straight from the pages" and isa != "portable"  # more than one segment
    texts = [random_tokens(270 if long else 60, seed=i) for i in range(3)]
    cold = native(shape, kv_type, isa, 1)
    whole = [cold.sequence(text) for text in texts]
    want = [cold.read(s, 1000) for s in whole]
    assert all(logits.isfinite().all() for logits in want)
    for threads, chunk in ((2, 1), (1, 7), (2, 64), (2, 1000)):
        other = native(shape, kv_type, isa, threads)
        s = other.sequence(texts[0], order=np.random.default_rng(chunk))
        assert torch.equal(other.read(s, chunk), want[0]), (threads, chunk)
        assert torch.equal(other.memory(s), cold.memory(whole[0])), (threads, chunk)
    together = native(shape, kv_type, isa)
    rows = [together.sequence(text) for text in texts]
    for counts in ((41, 3, 20), (1, 41, 1), (1, 1, 30), (1, 1, 1)):
        together.step(list(zip(rows, counts, strict=True)))
    for s, logits in zip(rows, want, strict=True):
        assert torch.equal(torch.cat(s.logits), logits[: s.done])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_type", kv.TYPES)
def test_numbers_beyond_a_type_stay_finite(kv_type: str, isa: str) -> None:
    """Huge, tiny, none at all: what is stored equals what the reference stores."""
    weights = Weights(Shape(layers="a", hidden=32, head_dim=32, heads=2, kv_heads=1))
    table = weights.table.data.view(torch.float32).view(80, -1)
    table[:40] *= torch.logspace(-12, 0, 40)[:, None]  # the norm's epsilon leaves them small
    table[7] = 0
    weights.layers[0][0].v.data.view(torch.float32).mul_(1e38)
    models = [
        Toy(weights, choose(mode, "cpu", 1, isa if mode is Backend.NATIVE else None, kv_type))
        for mode in (Backend.NATIVE, Backend.REFERENCE)
    ]
    kept = []
    for model in models:
        s = model.sequence(np.arange(80))
        model.step([(s, 80)])
        kept.append(model.memory(s).float())
    assert kept[0].isfinite().all() and (kept[0][1].abs().amax(-1) > 6e4).any()
    assert torch.allclose(kept[0], kept[1], rtol=2e-2, atol=1e-30)
    assert (kept[0] != kept[1]).float().mean() < 0.02


def test_a_page_of_8_bits_takes_17_bytes_for_32() -> None:
    sizes = {t: kv.width(kv.dtype_of(t), 128) for t in kv.TYPES}
    assert sizes == {"f16": 128, "bf16": 128, "q8": 136}
    assert kv.width("uint8", 40) == 44


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="'q4'; use --kv-type f16, bf16, q8"):
        choose(Backend.REFERENCE, "cpu", 1, kv_type="q4")
