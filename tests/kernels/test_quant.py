"""Dequantisation against the gguf package, bit for bit; our own formats against torch, numpy."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from strata.kernels.quant import (
    FILE_FORMATS,
    Format,
    QTensor,
    dequantise,
    dequantise_rows,
    matmul_reference,
    quantised,
)
from strata.types import ModelError

HALVES = {  # byte offsets of the f16 values of a block
    Format.Q8_0: (0,),
    Format.Q4_0: (0,),
    Format.Q4_1: (0, 2),
    Format.Q5_0: (0,),
    Format.Q5_1: (0, 2),
    Format.Q4_K: (0, 2),
    Format.Q5_K: (0, 2),
    Format.Q6_K: (208,),
    Format.MXFP4: (),
}


def random_rows(kind: Format, rows: int, cols: int, seed: int = 0) -> np.ndarray:
    """Random bytes, with finite scales: uint8 [rows, row bytes]."""
    rng = np.random.default_rng(seed)
    if kind.block == 1:
        values = torch.from_numpy(rng.standard_normal((rows, cols)).astype(np.float32))
        dtype = {1: torch.float16, 30: torch.bfloat16}.get(int(kind), torch.float32)
        return values.to(dtype).view(torch.uint8).numpy().reshape(rows, -1)
    blocks = rng.integers(0, 256, (rows, cols // kind.block, kind.block_bytes), dtype=np.uint8)
    for at in HALVES[kind]:
        scale = rng.standard_normal(blocks.shape[:2]).astype(np.float16)
        blocks[:, :, at : at + 2] = scale[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


def tensor(kind: Format, data: np.ndarray, cols: int) -> QTensor:
    return QTensor(torch.from_numpy(data.reshape(-1).copy()), kind, data.shape[0], cols)


def bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.int32)


@pytest.mark.parametrize("kind", FILE_FORMATS)
def test_random_bytes(kind: Format) -> None:
    data = random_rows(kind, 5, 512)
    want = gguf.dequantize(data, gguf.GGMLQuantizationType(int(kind)))
    got = dequantise(tensor(kind, data, 512)).numpy()
    assert np.array_equal(bits(got), bits(want.reshape(5, 512)))


@pytest.mark.parametrize("kind", [k for k in FILE_FORMATS if k.block <= 32 and k < 39])
def test_quantised_values(kind: Format) -> None:
    values = np.random.default_rng(1).standard_normal((3, 96)).astype(np.float32)
    number = gguf.GGMLQuantizationType(int(kind))
    data = gguf.quantize(values, number).view(np.uint8)
    got = dequantise(tensor(kind, data, 96)).numpy()
    assert np.array_equal(bits(got), bits(gguf.dequantize(data, number)))
    assert np.abs(got - values).max() < 0.4


@pytest.mark.parametrize("kind", FILE_FORMATS)
def test_block_sizes(kind: Format) -> None:
    number = gguf.GGMLQuantizationType(int(kind))
    assert (kind.block, kind.block_bytes) == gguf.GGML_QUANT_SIZES[number]


def test_blocks_of_e4m3() -> None:
    bytes_ = np.setdiff1d(np.arange(256), [0x7F, 0xFF]).astype(np.uint8)  # all but NaN
    q = np.concatenate((bytes_, bytes_[:2])).reshape(2, 128)
    d = np.array([[0.0123], [-7.7]], np.float32)
    data = np.concatenate((d.view(np.uint8), q), axis=1)
    want = torch.from_numpy(q).view(torch.float8_e4m3fn).float().numpy() * d
    assert np.array_equal(bits(dequantise(tensor(Format.F8, data, 128)).numpy()), bits(want))


def test_blocks_with_a_zero() -> None:
    rng = np.random.default_rng(2)
    q, z = rng.integers(0, 16, (9, 32), dtype=np.uint8), rng.integers(0, 17, (9, 1), np.uint32)
    d = rng.standard_normal((9, 1)).astype(np.float16).astype(np.float32)
    d[:3] = [[3e-8], [60000], [2**-100]]  # the last one only bf16 holds
    d[0] = np.float16(3e-8)
    head = (d.view(np.uint32) | z).view(np.uint8)
    data = np.concatenate((head, q[:, :16] | q[:, 16:] << 4), axis=1)
    want = d * (q.astype(np.float32) - z.astype(np.float32))
    assert np.array_equal(bits(dequantise(tensor(Format.I4, data, 32)).numpy()), bits(want))


@pytest.mark.parametrize("kind", FILE_FORMATS)
def test_rows_are_the_rows_of_the_whole(kind: Format) -> None:
    q = tensor(kind, random_rows(kind, 9, 256), 256)
    rows = torch.tensor([8, 0, 3, 3])
    assert torch.equal(dequantise_rows(q, rows), dequantise(q)[rows])


def test_matmul_reference() -> None:
    q = tensor(Format.Q4_1, random_rows(Format.Q4_1, 7, 64), 64)
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    want = np.einsum("mk,nk->mn", x.double().numpy(), dequantise(q).double().numpy())
    assert np.allclose(matmul_reference(x, q).numpy(), want, rtol=1e-4, atol=1e-3)


def test_made_rows_are_those_of_the_matrix() -> None:
    data = random_rows(Format.Q8_0, 9, 64)
    whole = tensor(Format.Q8_0, data, 64)
    asked: list[list[int]] = []

    def make(rows: torch.Tensor) -> torch.Tensor:
        asked.append(rows.tolist())
        return torch.from_numpy(data[rows.numpy()]).flatten()

    made = QTensor(make, Format.Q8_0, 9, 64)
    assert (made.nbytes, asked) == (whole.nbytes, [])
    assert torch.equal(made.data, whole.data)
    some = torch.tensor([7, 2, 3])
    for q, m in (
        (whole, made),
        (whole.cut(2, 5), made.cut(2, 5)),
        (whole.pick(some), made.pick(some)),
    ):
        assert torch.equal(m.data, q.data) and (m.rows, m.cols) == (q.rows, q.cols)
        part = torch.tensor([2, 0])
        assert torch.equal(m.pick(part).data, q.pick(part).data)
        assert torch.equal(m.cut(1, 2).cut(1, 1).data, q.cut(2, 1).data)
    assert asked[-1] == [3]  # and no other row is made


def test_mistakes_are_named() -> None:
    with pytest.raises(ModelError, match="whole number of Q4_K blocks"):
        QTensor(torch.zeros(144, dtype=torch.uint8), Format.Q4_K, 1, 100)
    with pytest.raises(ModelError, match="takes 34 bytes, got 33"):
        QTensor(torch.zeros(33, dtype=torch.uint8), Format.Q8_0, 1, 32)
    with pytest.raises(ModelError, match="type 16 are not supported"):
        quantised(torch.zeros(0, dtype=torch.uint8), 16, 0, 256)
