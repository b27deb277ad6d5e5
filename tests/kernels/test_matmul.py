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
from raw import HALVES, Bytes, random_matrix
from torch import Tensor

from strata.kernels.quant import FILE_FORMATS, Format, QTensor, dequantise

_cpu = pytest.importorskip("strata.kernels.native_pack")._cpu  # with the grids
Doubles = npt.NDArray[np.float64]


@pytest.fixture(params=_cpu.isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    _cpu.use_isa(request.param)
    yield request.param
    _cpu.use_isa(_cpu.isas()[0])


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
    _cpu.pack(int(q.format), q.data.data_ptr(), q.rows, q.cols, tiles.data_ptr(), 2)
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
    if kind.block == 1:
        return x.double().numpy(), np.zeros(x.shape)
    blocks = x.numpy().reshape(x.shape[0], -1, 256 if kind.block == 256 else 32)
    most = np.abs(blocks).max(axis=2, keepdims=True)
    inverse = np.where(most > 0, np.float32(32512) / np.maximum(most, 1e-30), np.float32(0))
    q = np.rint(blocks * inverse).astype(np.int64)
    raised = q % 256 == 128  # a low byte of -128 is not used
    d = (most / np.float32(32512)).astype(np.float64)
    error = d * (0.51 + raised)  # half a step, and what float32 adds to 16 bits
    return ((q + raised) * d).reshape(x.shape), error.reshape(x.shape)


def set_scales(kind: Format, blocks: Bytes, half: Bytes) -> None:
    """Gives uint8 [rows, blocks, bytes] the scales [rows, 1, 2], or what comes near."""
    for at in HALVES.get(kind, (0,)):
        blocks[:, :, at : at + 2] = half
    low, high = half[..., 0], half[..., 1]
    if kind is Format.IQ1_M:  # an f16 in four nibbles
        for at, nibble in ((49, low), (51, low >> 4), (53, high), (55, high >> 4)):
            blocks[:, :, at] = blocks[:, :, at] & 15 | nibble << 4
    if kind is Format.MXFP4:  # 2^-128 to 2^102: no zero
        blocks[:, :, 0] = np.linspace(0, 230, len(blocks))[:, None]
        blocks[0] = 0
    if kind is Format.NVFP4:
        blocks[:, :, :4] = np.resize(np.array([0, 1, 0x7E, 7, 8, 0x40], np.uint8), (18, 1, 1))


def same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


SHAPES = [(1, 1), (7, 3), (8, 2), (9, 1), (17, 5), (100, 4)]


@pytest.mark.parametrize("kind", FILE_FORMATS)
@pytest.mark.parametrize(("n", "blocks"), SHAPES)
def test_against_float64(isa: str, kind: Format, n: int, blocks: int) -> None:
    k = blocks * kind.block if kind.block > 1 else 37 * blocks
    q, x = random_matrix(kind, n, k), inputs(6, k)
    w = dequantise(q).double().numpy()
    seen, error = quantised(x, kind)
    got = product(packed(q), q, x).double().numpy()
    # The same activations: only float32 rounding is left.
    scale = np.abs(seen) @ np.abs(w).T
    assert np.all(np.abs(got - seen @ w.T) <= 3e-6 * scale + 1e-30)
    # The true activations: each is wrong by half a step, few by one and a half.
    assert np.all(np.abs(got - x.double().numpy() @ w.T) <= error @ np.abs(w).T + 3e-6 * scale)


@pytest.mark.parametrize("kind", FILE_FORMATS)
def test_rows_and_threads_do_not_matter(isa: str, kind: Format) -> None:
    q = random_matrix(kind, 83, 512)
    tiles, x = packed(q), inputs(131, 512)
    whole = product(tiles, q, x)
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 64, 131):
        for threads in (1, 2):
            assert same_bits(product(tiles, q, x[:rows], threads), whole[:rows])
            assert same_bits(product(tiles, q, x[-rows:], threads), whole[-rows:])


@pytest.mark.parametrize("kind", FILE_FORMATS)
def test_the_other_outputs_do_not_matter(isa: str, kind: Format) -> None:
    q, x = random_matrix(kind, 77, 256), inputs(5, 256)
    whole = product(packed(q), q, x)
    for n in (1, 8, 16, 33):
        part = QTensor(q.data[: n * q.row_bytes], kind, n, 256)
        assert same_bits(product(packed(part), part, x), whole[:, :n].contiguous())


@pytest.mark.parametrize("kind", FILE_FORMATS)
def test_instruction_sets_agree(kind: Format) -> None:
    q, x = random_matrix(kind, 41, 768), inputs(11, 768)
    results = []
    for name in _cpu.isas():
        _cpu.use_isa(name)
        results.append(product(packed(q), q, x))
    _cpu.use_isa(_cpu.isas()[0])
    assert all(same_bits(results[0], r) for r in results[1:])


@pytest.mark.parametrize("fill", [None, 0x00, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("kind", [k for k in FILE_FORMATS if k.block > 1])
def test_nothing_saturates(isa: str, kind: Format, fill: int | None) -> None:
    q = random_matrix(kind, 16, 512, fill=fill)
    x = torch.ones(4, 512)
    x[1] = -1
    x[2, ::2] = -1
    x[3] = 0
    seen, _ = quantised(x, kind)
    w = dequantise(q).double().numpy()
    got = product(packed(q), q, x).double().numpy()
    assert np.all(np.abs(got - seen @ w.T) <= 3e-6 * (np.abs(seen) @ np.abs(w).T) + 1e-30)


@pytest.mark.parametrize("kind", [k for k in FILE_FORMATS if k.block > 1])
def test_extreme_scales(isa: str, kind: Format) -> None:
    q = random_matrix(kind, 18, 512)
    blocks = q.data.numpy().reshape(18, -1, kind.block_bytes)
    scales = np.array([0, -1.5, 65504, -65504, 2**-24, -(2**-14)] * 3, np.float16)
    set_scales(kind, blocks, scales[:, None].view(np.uint8).reshape(18, 1, 2))
    w, x = dequantise(q).double().numpy(), inputs(5, 512)
    assert np.isfinite(w).all() and not w[0].any() and w[1:6].any(axis=1).all()
    seen, _ = quantised(x, kind)
    got = product(packed(q), q, x).double().numpy()
    assert np.all(np.abs(got - seen @ w.T) <= 3e-6 * (np.abs(seen) @ np.abs(w).T) + 1e-44)


@pytest.mark.parametrize("kind", FILE_FORMATS)
def test_bias(isa: str, kind: Format) -> None:
    q, x = random_matrix(kind, 21, 256), inputs(3, 256)
    tiles, bias = packed(q), torch.randn(21)
    assert same_bits(product(tiles, q, x, bias=bias), product(tiles, q, x) + bias)


def test_a_broken_row_stays_alone(isa: str) -> None:
    q, x = random_matrix(Format.Q4_1, 20, 256), inputs(9, 256)
    tiles = packed(q)
    clean = product(tiles, q, x)
    x[4, 10], x[5, 3] = float("nan"), float("inf")
    got = product(tiles, q, x)
    assert not torch.isfinite(got[4]).any() and not torch.isfinite(got[5]).any()
    rest = [0, 1, 2, 3, 6, 7, 8]
    assert same_bits(got[rest], clean[rest])


@pytest.mark.parametrize("kind", [Format.F16, Format.F32, Format.Q4_0, Format.Q4_1, Format.Q5_0])
def test_packing_only_moves_bytes(isa: str, kind: Format) -> None:
    q = random_matrix(kind, 32, 128)
    if kind is Format.Q5_0:  # its fifth bits change places within bytes
        assert packed(q).numel() == q.nbytes
        return
    assert torch.equal(packed(q).sort().values, q.data.sort().values)


# Bytes of a row's 256 weights in a tile.
PACKED = {
    Format.TQ1_0: 68, Format.TQ2_0: 68, Format.IQ1_S: 76, Format.Q2_K: 84, Format.IQ2_XXS: 104,
    Format.IQ1_M: 108, Format.IQ2_XS: 108, Format.IQ2_S: 108, Format.Q3_K: 116,
    Format.IQ3_XXS: 136, Format.IQ3_S: 136, Format.IQ4_XS: 140, Format.IQ4_NL: 144,
    Format.MXFP4: 144, Format.Q4_K: 148, Format.NVFP4: 160,
}  # fmt: skip


def test_packed_sizes(isa: str) -> None:
    for kind, nbytes in PACKED.items():
        assert _cpu.packed_bytes(int(kind), 32, 512) == 32 * 2 * nbytes, kind


def test_tiny_activations_count_as_zero(isa: str) -> None:
    q = random_matrix(Format.Q8_0, 4, 32)
    assert torch.equal(product(packed(q), q, torch.full((1, 32), 1e-38)), torch.zeros(1, 4))


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
        _cpu.packed_bytes(15, 8, 256)
    with pytest.raises(ValueError, match="impossible shape"):
        _cpu.packed_bytes(int(Format.Q4_K), 8, 32)
    with pytest.raises(ValueError, match="aligned"):
        _cpu.Linear(int(Format.Q8_0), 8, 32, 8, 0, None)
    with pytest.raises(ValueError, match="no sse9 kernels"):
        _cpu.use_isa("sse9")
