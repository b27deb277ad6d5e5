"""Dequantisation, in Python and natively, against the gguf package, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from raw import Bytes, random_matrix

from strata.files import WEIGHTS
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

Floats = npt.NDArray[np.float32]


def of_gguf(kind: Format, data: Bytes) -> Floats:
    """uint8 [rows, row bytes] -> float32 [rows, cols]."""
    with np.errstate(all="ignore"):
        return gguf.dequantize(data, gguf.GGMLQuantizationType(int(kind)))


def native(kind: Format, data: Bytes) -> Floats:
    """The same by the native kernels, with a guard behind the result."""
    pytest.importorskip("strata.kernels._cpu")
    from strata.kernels.native_pack import _cpu  # it brings the grids

    rows, cols = len(data), data.shape[1] // kind.block_bytes * kind.block
    out = np.full(rows * cols + 64, 7, np.float32)
    _cpu.dequantise_rows(int(kind), data.ctypes.data, rows, cols, out.ctypes.data)
    assert (out[rows * cols :] == 7).all()
    return out[: rows * cols].reshape(rows, cols)


def same(a: Floats, b: Floats) -> bool:
    """Bit for bit, but for what a NaN holds."""
    nan = np.isnan(a)
    return bool((nan == np.isnan(b)).all() and (nan | (a.view("i4") == b.view("i4"))).all())


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("kind", FILE_FORMATS)
def test_random_bytes(kind: Format, blocks: int) -> None:
    cols = blocks * max(kind.block, 32)
    q = random_matrix(kind, 37, cols)
    data = q.data.numpy().reshape(37, -1)
    want = of_gguf(kind, data)
    assert want.shape == (37, cols) and np.isfinite(want).all()
    assert same(dequantise(q).numpy(), want)
    assert same(native(kind, data), want)


@pytest.mark.parametrize("kind", FILE_FORMATS)
@settings(max_examples=25, deadline=None, database=None)
@given(data=st.data())
def test_any_bytes(kind: Format, data: st.DataObject) -> None:
    """Scales that are no numbers among them."""
    n = kind.block_bytes
    row = data.draw(st.binary(min_size=n, max_size=n))
    many = np.frombuffer(row + bytes(n) + b"\xff" * n, np.uint8).reshape(3, n)
    assert same(native(kind, many), of_gguf(kind, many))


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "TQ1_0", "TQ2_0", "BF16"])
def test_quantised_values(name: str) -> None:
    kind, number = Format[name], gguf.GGMLQuantizationType[name]
    ternary = name.startswith("TQ")
    values = np.random.default_rng(1).standard_normal((3, 512)).astype(np.float32)
    if ternary:
        values = np.sign(values) * (abs(values) > 0.5)
    data = gguf.quantize(values, number).view(np.uint8)
    q = QTensor(torch.from_numpy(data.reshape(-1)), kind, 3, 512)
    assert np.abs(dequantise(q).numpy() - values).max() < (1e-6 if ternary else 0.4)


def test_formats_are_ggmls() -> None:
    for kind in FILE_FORMATS:
        number = gguf.GGMLQuantizationType(int(kind))
        assert number.name == kind.name
        assert (kind.block, kind.block_bytes) == gguf.GGML_QUANT_SIZES[number]
    assert sorted(WEIGHTS) == sorted(kind.name for kind in FILE_FORMATS)


@pytest.mark.parametrize("kind", FILE_FORMATS)
def test_rows_are_the_rows_of_the_whole(kind: Format) -> None:
    q = random_matrix(kind, 9, 256)
    rows = torch.tensor([8, 0, 3, 3])
    assert torch.equal(dequantise_rows(q, rows), dequantise(q)[rows])


def test_a_dequantised_matrix_is_not_the_file() -> None:
    q = random_matrix(Format.F32, 2, 4)
    before = q.data.clone()
    dequantise(q).zero_()
    assert torch.equal(q.data, before)


def test_matmul_reference() -> None:
    q = random_matrix(Format.Q4_1, 7, 64)
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    want = np.einsum("mk,nk->mn", x.double().numpy(), dequantise(q).double().numpy())
    assert np.allclose(matmul_reference(x, q).numpy(), want, rtol=1e-4, atol=1e-3)


def test_mistakes_are_named() -> None:
    with pytest.raises(ModelError, match="whole number of Q4_K blocks"):
        QTensor(torch.zeros(144, dtype=torch.uint8), Format.Q4_K, 1, 100)
    with pytest.raises(ModelError, match="takes 34 bytes, got 33"):
        QTensor(torch.zeros(33, dtype=torch.uint8), Format.Q8_0, 1, 32)
    nothing = torch.zeros(0, dtype=torch.uint8)
    with pytest.raises(ModelError, match=r"type Q8_K are not supported; supported are .*NVFP4"):
        quantised(nothing, 15, 0, 256)
    with pytest.raises(ModelError, match="type 77 are not supported"):
        quantised(nothing, 77, 0, 256)


def test_a_grid_of_another_size_is_refused() -> None:
    cpu = pytest.importorskip("strata.kernels._cpu")
    for kind, size in ((Format.IQ2_XS, 4095), (Format.IQ4_XS, 0), (Format.Q2_K, 1)):
        with pytest.raises(ValueError, match="no grid"):
            cpu.set_grid(int(kind), bytes(size))
