"""The native matrix product against float64, and its promise of equal bits.

Expectations are computed here from the formats' definitions: the weights through
`dequantise` (itself tested against gguf), the activations by numpy.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from strata.kernels.quant import Format, QTensor, dequantise

_cpu = pytest.importorskip("strata.kernels._cpu")

HALVES = {  # byte offsets of the f16 values of a block
    Format.Q8_0: (0,),
    Format.Q4_0: (0,),
    Format.Q4_1: (0, 2),
    Format.Q5_0: (0,),
    Format.Q5_1: (0, 2),
    Format.Q4_K: (0, 2),
    Format.Q5_K: (0, 2),
    Format.Q6_K: (208,),
}
PRODUCTS = [*HALVES, Format.F32, Format.F16, Format.BF16, Format.F8, Format.I4]
Doubles = npt.NDArray[np.float64]


@pytest.fixture(params=_cpu.isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    _cpu.use_isa(request.param)
    yield request.param
    _cpu.use_isa(_cpu.isas()[0])


def weights(kind: Format, n: int, k: int, seed: int = 0, fill: int | None = None) -> QTensor:
    """Random bytes (or all `fill`) with sane scales."""
    rng = np.random.default_rng(seed)
    if kind.block == 1:
        values = torch.from_numpy(rng.standard_normal((n, k)).astype(np.float32))
        dtype = {1: torch.float16, 30: torch.bfloat16}.get(int(kind), torch.float32)
        return QTensor(values.to(dtype).view(torch.uint8).reshape(-1), kind, n, k)
    blocks = rng.integers(0, 256, (n * k // kind.block, kind.block_bytes), dtype=np.uint8)
    if fill is not None:
        blocks[:] = fill
    if kind in (Format.F8, Format.I4):
        scale = rng.uniform(0.5, 1.5, (len(blocks), 1)).astype(np.float16).astype(np.float32)
        zero = np.uint32(kind is Format.I4) * rng.integers(0, 17, scale.shape, np.uint32)
        blocks[:, :4] = (scale.view(np.uint32) | zero).view(np.uint8)
        blocks[:, 4:] -= (kind is Format.F8) & (blocks[:, 4:] & 127 == 127)  # no NaN
    for at in HALVES.get(kind, ()):
        scale = rng.uniform(0.5, 1.5, len(blocks)).astype(np.float16)
        blocks[:, at : at + 2] = scale[:, None].view(np.uint8)
    return QTensor(torch.from_numpy(blocks.reshape(-1)), kind, n, k)


def inputs(rows: int, k: int, seed: int = 1) -> Tensor:
    """Normal values; one loud column and one loud row, as language models have them."""
    x = torch.randn(rows, k, generator=torch.Generator().manual_seed(seed))
    x[:, k // 3] *= 30
    x[rows // 2] *= 10
    return x


def packed(q: QTensor) -> Tensor:
    nbytes = _cpu.packed_bytes(int(q.format), q.rows, q.cols)
    memory = torch.zeros(nbytes + 64, dtype=torch.uint8)
    start = -memory.data_ptr() % 64
    tiles = memory[start : start + nbytes]
    _cpu.pack(int(q.format), q.data.data_ptr(), q.rows, q.cols, tiles.data_ptr())
    return tiles


def product(tiles: Tensor, q: QTensor, x: Tensor, threads: int = 1, bias: Tensor | None = None):
    address = 0 if bias is None else bias.data_ptr()
    linear = _cpu.Linear(int(q.format), q.rows, q.cols, tiles.data_ptr(), address, tiles)
    x = x.contiguous()
    y = torch.full((x.shape[0], q.rows), float("nan"))
    _cpu.matmul(linear, x.data_ptr(), x.shape[0], y.data_ptr(), threads)
    return y


def quantised(x: Tensor, kind: Format) -> tuple[Doubles, Doubles]:
    """(What the kernel multiplies, the largest error of each value)."""
    if kind.block == 1 or kind is Format.F8:
        return x.double().numpy(), np.zeros(x.shape)
    blocks = x.numpy().reshape(x.shape[0], -1, kind.block)
    most = np.abs(blocks).max(axis=2, keepdims=True)
    inverse = np.where(most > 0, np.float32(32512) / np.maximum(most, 1e-30), np.float32(0))
    q = np.rint(blocks * inverse).astype(np.int64)
    raised = q % 256 == 128  # a low byte of -128 is not used
    d = (most / np.float32(32512)).astype(np.float64)
    error = d * (0.51 + raised)  # half a step, and what float32 adds to 16 bits
    return ((q + raised) * d).reshape(x.shape), error.reshape(x.shape)


def same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


SHAPES = [(1, 1), (7, 3), (8, 2), (9, 1), (17, 5), (100, 4)]


@pytest.mark.parametrize("kind", PRODUCTS)
@pytest.mark.parametrize(("n", "blocks"), SHAPES)
def test_against_float64(isa: str, kind: Format, n: int, blocks: int) -> None:
    k = blocks * kind.block if kind.block > 1 else 37 * blocks
    q, x = weights(kind, n, k), inputs(6, k)
    w = dequantise(q).double().numpy()
    seen, error = quantised(x, kind)
    got = product(packed(q), q, x).double().numpy()
    # The same activations: only float32 rounding is left.
    scale = np.abs(seen) @ np.abs(w).T
    assert np.all(np.abs(got - seen @ w.T) <= 3e-6 * scale + 1e-30)
    # The true activations: each is wrong by half a step, few by one and a half.
    assert np.all(np.abs(got - x.double().numpy() @ w.T) <= error @ np.abs(w).T + 3e-6 * scale)


@pytest.mark.parametrize("kind", PRODUCTS)
def test_rows_and_threads_do_not_matter(isa: str, kind: Format) -> None:
    q = weights(kind, 83, 512)
    tiles, x = packed(q), inputs(131, 512)
    whole = product(tiles, q, x)
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 64, 131):
        for threads in (1, 2):
            assert same_bits(product(tiles, q, x[:rows], threads), whole[:rows])
            assert same_bits(product(tiles, q, x[-rows:], threads), whole[-rows:])


@pytest.mark.parametrize("kind", PRODUCTS)
def test_the_other_outputs_do_not_matter(isa: str, kind: Format) -> None:
    q, x = weights(kind, 77, 256), inputs(5, 256)
    whole = product(packed(q), q, x)
    for n in (1, 8, 16, 33):
        part = QTensor(q.data[: n * q.row_bytes], kind, n, 256)
        assert same_bits(product(packed(part), part, x), whole[:, :n].contiguous())


@pytest.mark.parametrize("kind", PRODUCTS)
def test_instruction_sets_agree(kind: Format) -> None:
    q, x = weights(kind, 41, 768), inputs(11, 768)
    results = []
    for name in _cpu.isas():
        _cpu.use_isa(name)
        results.append(product(packed(q), q, x))
    _cpu.use_isa(_cpu.isas()[0])
    assert all(same_bits(results[0], r) for r in results[1:])


@pytest.mark.parametrize("fill", [0x00, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("kind", [k for k in PRODUCTS if k.block > 1])
def test_nothing_saturates(isa: str, kind: Format, fill: int) -> None:
    q = weights(kind, 16, 512, fill=fill)
    x = torch.ones(4, 512)
    x[1] = -1
    x[2, ::2] = -1
    x[3] = 0
    seen, _ = quantised(x, kind)
    w = dequantise(q).double().numpy()
    got = product(packed(q), q, x).double().numpy()
    assert np.all(np.abs(got - seen @ w.T) <= 3e-6 * (np.abs(seen) @ np.abs(w).T) + 1e-30)


@pytest.mark.parametrize("kind", PRODUCTS)
def test_bias(isa: str, kind: Format) -> None:
    q, x = weights(kind, 21, 256), inputs(3, 256)
    tiles, bias = packed(q), torch.randn(21)
    assert same_bits(product(tiles, q, x, bias=bias), product(tiles, q, x) + bias)


def test_a_broken_row_stays_alone(isa: str) -> None:
    q, x = weights(Format.Q4_1, 20, 256), inputs(9, 256)
    tiles = packed(q)
    clean = product(tiles, q, x)
    x[4, 10], x[5, 3] = float("nan"), float("inf")
    got = product(tiles, q, x)
    assert not torch.isfinite(got[4]).any() and not torch.isfinite(got[5]).any()
    rest = [0, 1, 2, 3, 6, 7, 8]
    assert same_bits(got[rest], clean[rest])


@pytest.mark.parametrize("kind", [Format.F16, Format.F32, Format.Q4_0, Format.Q4_1, Format.Q5_0])
def test_packing_only_moves_bytes(isa: str, kind: Format) -> None:
    q = weights(kind, 32, 128)
    if kind is Format.Q5_0:  # its fifth bits change places within bytes
        assert packed(q).numel() == q.nbytes
        return
    assert torch.equal(packed(q).sort().values, q.data.sort().values)


def test_tiny_activations_count_as_zero(isa: str) -> None:
    q = weights(Format.Q8_0, 4, 32)
    assert torch.equal(product(packed(q), q, torch.full((1, 32), 1e-38)), torch.zeros(1, 4))


@pytest.mark.parametrize("kind", PRODUCTS)
def test_native_dequantisation(kind: Format) -> None:
    q = weights(kind, 5, 256)
    got = torch.empty(5, 256)
    _cpu.dequantise_rows(int(kind), q.data.data_ptr(), 5, 256, got.data_ptr())
    assert same_bits(got, dequantise(q))


def test_f16_edge_values_dequantise_exactly() -> None:
    data = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.uint8)
    got = torch.empty(65536)
    _cpu.dequantise_rows(int(Format.F16), data.data_ptr(), 1, 65536, got.data_ptr())
    want = data.view(torch.float16).float()
    nan = want.isnan()
    assert torch.equal(got.isnan(), nan)
    assert same_bits(got[~nan], want[~nan])


def test_mistakes_are_refused() -> None:
    with pytest.raises(ValueError, match="unsupported weight format"):
        _cpu.packed_bytes(16, 8, 256)
    with pytest.raises(ValueError, match="impossible shape"):
        _cpu.packed_bytes(int(Format.Q4_K), 8, 32)
    with pytest.raises(ValueError, match="aligned"):
        _cpu.Linear(int(Format.Q8_0), 8, 32, 8, 0, None)
    with pytest.raises(ValueError, match="no sse9 kernels"):
        _cpu.use_isa("sse9")
