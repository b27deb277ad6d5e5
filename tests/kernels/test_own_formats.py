"""Blocks that are in no file: FP8 and int4 with zeros, against torch and numpy; matrices that are
made when they are asked for.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from raw import random_matrix
from test_matmul import _cpu, inputs, packed, product, quantised, same_bits

from strata.kernels.quant import Format, QTensor, dequantise

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 64, 131)


def fp8(n: int, k: int) -> tuple[QTensor, torch.Tensor]:
    """Every byte but NaN, scales of both signs; and the weights that they are."""
    rng = np.random.default_rng(n)
    some = np.setdiff1d(np.arange(256), [0x7F, 0xFF]).astype(np.uint8)
    q = rng.permutation(np.resize(some, n * k)).reshape(-1, 128)
    d = rng.uniform(-1.5, 1.5, (len(q), 1)).astype(np.float32)
    want = torch.from_numpy(q).view(torch.float8_e4m3fn).float() * torch.from_numpy(d)
    data = torch.from_numpy(np.concatenate((d.view(np.uint8), q), axis=1).flatten())
    return QTensor(data, Format.F8, n, k), want.view(n, k)


def int4(n: int, k: int) -> tuple[QTensor, torch.Tensor]:
    rng = np.random.default_rng(n)
    q = rng.integers(0, 16, (n * k // 32, 32), dtype=np.uint8)
    z = rng.integers(0, 17, (len(q), 1), dtype=np.uint32)
    d = rng.uniform(0.5, 1.5, z.shape).astype(np.float16).astype(np.float32)
    d[::7] = np.float32(1 + 2**-15)  # all 16 bits
    want = d * (q.astype(np.float32) - z.astype(np.float32))
    head = (d.view(np.uint32) | z).view(np.uint8)
    data = np.concatenate((head, q[:, :16] | q[:, 16:] << 4), axis=1).flatten()
    return QTensor(torch.from_numpy(data), Format.I4, n, k), torch.from_numpy(want).view(n, k)


BOTH = [fp8, int4]


@pytest.mark.parametrize("make", BOTH)
def test_weights(make) -> None:
    q, want = make(9, 512)
    got = torch.empty(9, 512)
    _cpu.dequantise_rows(int(q.format), q.data.data_ptr(), 9, 512, got.data_ptr())
    assert same_bits(dequantise(q), want) and same_bits(got, want)


@pytest.mark.parametrize("isa", _cpu.isas())
@pytest.mark.parametrize("make", BOTH)
def test_products(make, isa: str) -> None:
    (q, w), x = make(83, 512), inputs(131, 512)
    _cpu.use_isa("portable")
    usual = product(packed(q), q, x)
    _cpu.use_isa(isa)
    tiles = packed(q)
    whole = product(tiles, q, x)
    assert same_bits(whole, usual)
    seen = x.double().numpy() if make is fp8 else quantised(x, q.format)[0]
    w64 = w.double().numpy()
    apart = np.abs(whole.double().numpy() - seen @ w64.T)
    assert np.all(apart <= 6e-6 * (np.abs(seen) @ np.abs(w64).T))
    for rows in ROWS:
        for threads in (1, 2):
            assert same_bits(product(tiles, q, x[-rows:], threads), whole[-rows:])
    _cpu.use_isa(_cpu.isas()[0])


def test_made_rows_are_those_of_the_matrix() -> None:
    whole = random_matrix(Format.Q8_0, 9, 64)
    data = whole.data.view(9, -1)
    asked: list[list[int]] = []

    def make(rows: torch.Tensor) -> torch.Tensor:
        asked.append(rows.tolist())
        return data[rows].flatten()

    made = QTensor(make, Format.Q8_0, 9, 64)
    assert (made.nbytes, asked) == (whole.nbytes, [])
    assert torch.equal(made.data, whole.data)
    some = torch.tensor([7, 2, 3])
    pairs = [(q, q.cut(2, 5), q.pick(some)) for q in (whole, made)]
    for q, m in zip(*pairs, strict=True):
        assert torch.equal(m.data, q.data) and (m.rows, m.cols) == (q.rows, q.cols)
        part = torch.tensor([2, 0])
        assert torch.equal(m.pick(part).data, q.pick(part).data)
        assert torch.equal(m.cut(1, 2).cut(1, 1).data, q.cut(2, 1).data)
    assert asked[-1] == [3]  # and no other row is made
