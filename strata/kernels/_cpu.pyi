"""The native extension (cpu/linear_module, ops_module, moe_module). Addresses are integers."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]

def isas() -> list[str]: ...
def active_isa() -> str: ...
def use_isa(name: str) -> None: ...
def tile_rows() -> int: ...
def set_grid(format: int, coordinates: bytes) -> None: ...
def packed_bytes(format: int, n: int, k: int) -> int: ...
def pack(format: int, gguf_rows: int, n: int, k: int, tiles: int, threads: int) -> None: ...
def matmul(linear: Linear, x: int, rows: int, y: int, threads: int) -> None: ...
def dequantise_rows(format: int, gguf_rows: int, rows: int, k: int, out: int) -> None: ...
def quantised_row(kind: int, x: int, k: int) -> bytes: ...

class Linear:
    def __init__(
        self, format: int, n: int, k: int, tiles: int, bias: int, owner: object
    ) -> None: ...
    @property
    def format(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...

class ExpertForm:
    def __init__(
        self, formats: Sequence[int], ffn: int, hidden: int, offsets: Sequence[int]
    ) -> None: ...

class MixtureWeights:
    def __init__(
        self,
        port: Port,
        router: Linear,
        top_k: int,
        normalise: bool,
        form: ExpertForm,
        shared: ExpertForm | None,
        shared_place: int,
        shared_gate: Linear | None,
    ) -> None: ...

class Indexer:
    def __init__(
        self,
        q: Linear,
        k: Linear,
        q_norm: int,
        k_norm: int,
        eps: float,
        sizes: Sequence[int],
        fields: Sequence[int],
        strides: Sequence[int],
        block: int,
    ) -> None: ...

class Op: ...

class Ngram(Op):
    def rows(self, tokens: Ints, row_starts: Ints, state_slots: Ints, rows: int) -> None: ...
    def set_scale(self, scale: float) -> None: ...
    def set_slots(self, slots: int) -> None: ...

class Port:
    def __init__(self, norm: int, eps: float, hidden: int, streams: int) -> None: ...

class Rope:
    def __init__(self, frequencies: Sequence[float], magnitude: float) -> None: ...

class Program:
    def run(
        self,
        tokens: Ints,
        positions: Ints,
        row_starts: Ints,
        page_table: Ints,
        write_slots: Ints,
        state_slots: Ints,
        captures: Ints,
        sample: Ints,
        logits: int,
    ) -> int:
        """captures int32 [c, 3]: row, offset, slot. Returns the number of the op that the step
        stopped at, or that of all ops.
        """

    def resume(self) -> int: ...
    def written(self) -> Sequence[bool]:
        """For each capture, whether every op wrote it."""

class TieredMoe(Op):
    def keep(self, chosen: int, guess: int) -> None: ...
    def feed(
        self, program: Program, arena: int, stride: int, experts: Ints, slots: Ints
    ) -> None: ...
    def whole(self) -> bool: ...

def embed(format: int, table: int, rows: int, hidden: int, streams: int) -> Op: ...
def attention(
    port: Port,
    eps: float,
    qkvo: Sequence[Linear],
    q_norm: int,
    k_norm: int,
    whole: bool,
    gated: bool,
    heads: Sequence[int],
    scale: float,
    rope: Rope,
    pages: Sequence[int],
    page_bytes: Sequence[int],
    block: int,
    type: int,
    indexer: Indexer | None,
) -> Op: ...
def delta(
    port: Port,
    linears: Sequence[Linear],
    vectors: Sequence[int],
    eps: float,
    sizes: Sequence[int],
    tiled: bool,
    sigmoid_gate: bool,
    fields: Sequence[int],
    slot_floats: Sequence[int],
) -> Op: ...
def mixer(port: Port, down: Linear, up: Linear, inject: Sequence[Linear]) -> Op: ...
def mlp(port: Port, gate: Linear, up: Linear, down: Linear) -> Op: ...
def ngram(
    formats: Sequence[int],
    parts: Sequence[int],
    firsts: Sequence[int],
    fetched: int,
    columns: int,
    multipliers: Sequence[int],
    sizes: Sequence[int],
    offsets: Sequence[int],
    eos: int,
    streams: int,
    key: Linear,
    value: Linear,
    vectors: Sequence[int],
    eps: float,
    kernel: int,
    dilation: int,
    fields: Sequence[int],
    slot_elements: Sequence[int],
) -> Ngram: ...
def moe(weights: MixtureWeights, places: Sequence[int]) -> Op: ...
def tiered_moe(
    weights: MixtureWeights, places: int, ahead: Linear | None, ahead_places: int
) -> TieredMoe: ...
def head(port: Port, weight: Linear) -> Op: ...
def program(ops: Sequence[Op], threads: int) -> Program: ...
