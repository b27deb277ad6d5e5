"""What native ops are made of: packed weights, vectors, ports, and the op itself.

Owns the packed copies of the weights, in huge pages. Native objects hold raw addresses; a
NativeOp keeps alive what it holds. Knows no layer.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from gguf import quants
from torch import Tensor

import strata.kernels._cpu as _cpu  # after torch, whose OpenMP runtime it shares
from strata.kernels.quant import Format, QTensor
from strata.kernels.residual import PreNorm, Residual
from strata.kernels.rope import RopeSpec
from strata.types import ForwardPlan, ModelError

_HUGE = 2 << 20
_CHUNK = 32 << 20
MAX_HEAD_DIM = 256


def _give_grids() -> None:
    """Hands the grids of the IQ formats to the native kernels: of each coordinate, the number of
    its magnitude.
    """
    for kind in Format:
        family = getattr(quants, kind.name, None)
        if family is not None and family.grid_map:
            family.init_grid()
            coordinates = np.searchsorted(family.grid_map, family.grid).astype(np.uint8)
            _cpu.set_grid(int(kind), coordinates.tobytes())


_give_grids()


class PackedMemory:
    """Hands out 64-byte aligned pieces of huge-page memory that are never returned."""

    def __init__(self) -> None:
        self._chunk = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def take(self, nbytes: int) -> Tensor:
        """uint8 [nbytes]; keeps its chunk alive."""
        nbytes = -(-nbytes // 64) * 64
        if self._used + nbytes > self._chunk.numel():
            self._chunk, self._used = _mapped(max(nbytes, _CHUNK)), 0
        piece = self._chunk[self._used : self._used + nbytes]
        self._used += nbytes
        return piece


def _mapped(nbytes: int) -> Tensor:
    area = mmap.mmap(-1, nbytes + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages: slower, nothing else
            area.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(area, dtype=torch.uint8)
    start = -whole.data_ptr() % _HUGE
    return whole[start : start + nbytes]


@dataclass(frozen=True, slots=True, eq=False)
class NativeOp:
    """Native ops that run one after the other, and the tensors whose addresses they hold. `before`
    is called with each step's plan before any op of it runs.
    """

    ops: tuple[_cpu.Op, ...]
    width: int
    owned: tuple[object, ...]
    vocab: int = 0  # of a head
    before: Callable[[ForwardPlan], None] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class NativePort:
    """How an op reads the residual stream, and the ops that must run before it."""

    port: _cpu.Port
    before: tuple[_cpu.Op, ...]
    width: int
    owned: tuple[object, ...]

    def op(self, op: _cpu.Op, *owned: object) -> NativeOp:
        """The op behind this port; `owned` is what it holds."""
        return NativeOp((*self.before, op), self.width, (self.owned, owned))


class Packer:
    """Packs weights for one instruction set."""

    def __init__(self, isa: str) -> None:
        self._isa = isa
        self._memory = PackedMemory()
        self._early: tuple[QTensor, _cpu.Linear] | None = None
        self._ropes: dict[tuple[bytes, float], _cpu.Rope] = {}

    def take(self, nbytes: int) -> Tensor:
        """uint8 [nbytes], 64-byte aligned, to be packed for this instruction set."""
        _cpu.use_isa(self._isa)
        return self._memory.take(nbytes)

    @property
    def layout(self) -> str:
        """Names how matrices are packed. The number changes whenever cpu/pack.cpp's result does."""
        return f"native {self._isa} 1"

    def nbytes(self, q: QTensor) -> int:
        """Of the packed matrix, a multiple of 64."""
        _cpu.use_isa(self._isa)
        return _cpu.packed_bytes(int(q.format), q.rows, q.cols)

    def write(self, q: QTensor, place: int) -> None:
        """Packs a matrix into the memory at this address, a multiple of 64."""
        _cpu.use_isa(self._isa)
        assert place % 64 == 0
        data = q.data.contiguous()
        _cpu.pack(int(q.format), data.data_ptr(), q.rows, q.cols, place)

    def linear(self, q: QTensor, bias: Tensor | None = None) -> _cpu.Linear:
        """Packs a matrix; the result keeps its bytes alive."""
        if self._early is not None and self._early[0] is q and bias is None:
            (_, linear), self._early = self._early, None
            return linear
        tiles = self.take(self.nbytes(q))
        self.write(q, tiles.data_ptr())
        own = vector(bias)
        return _cpu.Linear(
            int(q.format), q.rows, q.cols, tiles.data_ptr(), address(own), (tiles, own)
        )

    def early(self, q: QTensor) -> _cpu.Linear:
        """Packs a matrix that is soon asked for again, which then gets the same."""
        linear = self.linear(q)
        self._early = (q, linear)
        return linear

    def rope(self, spec: RopeSpec) -> _cpu.Rope:
        """The table of positions, one for all layers that turn alike."""
        key = (spec.frequencies.numpy().tobytes(), spec.magnitude)
        if key not in self._ropes:
            self._ropes[key] = _cpu.Rope(spec.frequencies.tolist(), spec.magnitude)
        return self._ropes[key]

    def port(self, residual: Residual, head: bool = False) -> NativePort:
        """The port of a sublayer, or of the head, which adds nothing to the stream."""
        r, norm = residual, vector(residual.norm)
        if isinstance(r, PreNorm):
            return NativePort(_cpu.Port(address(norm), r.eps, r.hidden, 0), (), r.width, (norm,))
        port = _cpu.Port(address(norm), r.eps, r.hidden, r.streams)
        down, up = self.linear(r.down), self.linear(r.up)
        assert head or r.inject is not None
        inject = [] if head or r.inject is None else [self.linear(r.inject)]
        mixer = _cpu.mixer(port, down, up, inject)
        return NativePort(port, (mixer,), r.width, (norm, down, up, inject))


def vector(x: Tensor | None) -> Tensor | None:
    """float32, without gaps."""
    return None if x is None else x.to(torch.float32).contiguous()


def address(x: Tensor | None) -> int:
    """Of the first element; 0 for None."""
    return 0 if x is None else x.data_ptr()


def check_heads(what: str, dim: int) -> None:
    """ModelError for heads of a size that the native kernels do not have."""
    if dim % 8 or not 0 < dim <= MAX_HEAD_DIM:
        raise ModelError(
            f"{what} of {dim} dimensions are not supported by the native kernels "
            f"(a multiple of 8 up to {MAX_HEAD_DIM}); use --kernels reference"
        )
