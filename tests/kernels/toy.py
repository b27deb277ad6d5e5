"""Small random models on any kernels, and sequences that are run through them step by step.

`Toy.run` takes steps as lists of (sequence, tokens to read) and returns the logits of
every token; `Toy.memory` shows what the pages hold, in a layout of its own, and `Toy.state`
what a state slot holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import gguf
import numpy as np
import torch

from strata.kernels import Kernels, kv
from strata.kernels.attention import AttentionWeights
from strata.kernels.delta import DeltaWeights
from strata.kernels.head import HeadWeights
from strata.kernels.indexer import IndexerWeights
from strata.kernels.mlp import MlpWeights
from strata.kernels.ngram import NgramWeights
from strata.kernels.quant import Format, QTensor
from strata.kernels.residual import GatedStreams, PreNorm, Residual
from strata.kernels.rope import RopeSpec
from strata.types import Capture, ForwardPlan

STRANGE = 0xFF  # each byte of what was never written: not a number, in any type


@dataclass(frozen=True)
class Shape:
    hidden: int = 96
    ffn: int = 160
    vocab: int = 80
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 32
    layers: str = "aa"  # of each layer what comes before its mlp: attention, delta or ngram
    block: int = 16
    rope_dims: int = 0  # 0: head_dim
    head_norms: bool = False
    whole_norms: bool = False  # of all heads together
    gated: bool = False
    biases: bool = False
    budget: int = 0  # of an indexer; 0: none
    ratio: int = 4
    index_heads: int = 10  # few: many scores are 0, and torch takes any of them
    index_dim: int = 40
    k_heads: int = 2  # of delta
    v_heads: int = 4
    dim: int = 32
    kernel: int = 4
    tiled: bool = False
    dilation: int = 3  # of ngram
    grams: int = 2  # earlier tokens that a hash sees
    table_format: Format = Format.F32
    sigmoid_gate: bool = False
    streams: int = 1  # residual streams; 1: a plain norm
    rank: int = 12  # of their gates
    formats: tuple[Format, ...] = (Format.F32,)  # of q, k, v, o, gate, up, down, in turn
    seed: int = 0


@dataclass
class Sequence_:
    tokens: np.ndarray
    pages: list[int]
    slot: int = -1
    done: int = 0
    writable_from: int = 0
    logits: list[torch.Tensor] = field(default_factory=list)


class Weights:
    """Random weights of a shape, the same for every implementation."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._rng = np.random.default_rng(shape.seed)
        self._turn = 0
        s = shape
        dims = s.rope_dims or s.head_dim
        frequencies = torch.from_numpy((1e4 ** (-np.arange(0, dims, 2) / dims)).astype(np.float32))
        rope = RopeSpec(dims, frequencies, magnitude=1.1)
        self.table = self.matrix(s.vocab, s.hidden, Format.F32)
        kinds = {"a": lambda: self.attention(rope), "d": self.delta, "n": self.ngram}
        self.layers = [(kinds[kind](), self.mlp()) for kind in s.layers]
        self.head = HeadWeights(self.residual(inject=False), self.matrix(s.vocab, s.hidden))

    def vector(self, n: int, around: float = 1.0) -> torch.Tensor:
        return torch.from_numpy((around + 0.2 * self._rng.standard_normal(n)).astype(np.float32))

    def matrix(self, rows: int, cols: int, kind: Format | None = None) -> QTensor:
        if kind is None:
            kind = self.shape.formats[self._turn % len(self.shape.formats)]
            self._turn += 1
        values = (self._rng.standard_normal((rows, cols)) * 2 / cols**0.5).astype(np.float32)
        if kind is Format.F32:
            data = values
        else:
            data = gguf.quants.quantize(values, gguf.GGMLQuantizationType(int(kind)))
        return QTensor(torch.from_numpy(data.view(np.uint8).reshape(-1)), kind, rows, cols)

    def residual(self, inject: bool = True) -> Residual:
        s, width = self.shape, self.shape.streams * self.shape.hidden
        if s.streams == 1:
            return PreNorm(self.vector(s.hidden), 1e-5)
        return GatedStreams(
            self.vector(width), 1e-5, s.streams, self.matrix(s.rank, width, Format.F32),
            self.matrix(width, s.rank, Format.F32),
            self.matrix(s.streams, width, Format.F32) if inject else None,
        )  # fmt: skip

    def attention(self, rope: RopeSpec) -> AttentionWeights:
        s = self.shape
        inner, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
        plain = AttentionWeights(
            residual=self.residual(), eps=1e-5,
            q=self.matrix(inner * (1 + s.gated), s.hidden), k=self.matrix(kv, s.hidden),
            v=self.matrix(kv, s.hidden), o=self.matrix(s.hidden, inner),
            heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim,
            rope=rope, scale=s.head_dim**-0.5, gated=s.gated,
        )  # fmt: skip
        if s.head_norms:
            plain = replace(
                plain, q_norm=self.vector(s.head_dim, 2.0), k_norm=self.vector(s.head_dim, 2.0)
            )
        if s.whole_norms:
            plain = replace(plain, q_norm=self.vector(inner, 2.0), k_norm=self.vector(kv, 2.0))
        if s.biases:
            q, k, v = self.vector(inner, 0), self.vector(kv, 0), self.vector(kv, 0)
            plain = replace(plain, q_bias=q, k_bias=k, v_bias=v)
        return replace(plain, indexer=self.indexer()) if s.budget else plain

    def indexer(self) -> IndexerWeights:
        s, dim = self.shape, self.shape.index_dim
        return IndexerWeights(
            q=self.matrix(s.index_heads * dim, s.hidden), k=self.matrix(dim, s.hidden),
            q_norm=self.vector(dim), k_norm=self.vector(dim), eps=1e-5,
            heads=s.index_heads, dim=dim, budget=s.budget, ratio=s.ratio,
        )  # fmt: skip

    def delta(self) -> DeltaWeights:
        s = self.shape
        inner, channels = s.v_heads * s.dim, (2 * s.k_heads + s.v_heads) * s.dim
        return DeltaWeights(
            residual=self.residual(),
            qkv=self.matrix(channels, s.hidden), z=self.matrix(inner, s.hidden),
            beta=self.matrix(s.v_heads, s.hidden), alpha=self.matrix(s.v_heads, s.hidden),
            conv=2 * self.vector(channels * s.kernel, 0.1).view(channels, s.kernel),
            decay=-0.1 * self.vector(s.v_heads).abs(), dt_bias=self.vector(s.v_heads, 0),
            norm=self.vector(s.dim), eps=1e-5, out=self.matrix(s.hidden, inner),
            k_heads=s.k_heads, v_heads=s.v_heads, dim=s.dim, tiled=s.tiled,
            sigmoid_gate=s.sigmoid_gate,
        )  # fmt: skip

    def ngram(self) -> NgramWeights:
        s, sizes, cols = self.shape, (11, 13, 17, 19, 23, 29), 32
        width, embed = s.streams * s.hidden, len(sizes) * cols
        return NgramWeights(
            # Parts of different lengths; heads begin and end inside them.
            table=[self.matrix(rows, cols, s.table_format) for rows in (30, 1, 20, 70)],
            multipliers=((1 << 54) - 1, 987654321987, 77777777777771)[: 1 + s.grams],
            sizes=sizes, offsets=tuple(int(x) for x in np.cumsum((3, *sizes[:-1]))),
            eos=5, streams=s.streams, key=self.matrix(width, embed),
            value=self.matrix(s.hidden, embed), norm_key=self.vector(width),
            norm_query=self.vector(width), norm_conv=self.vector(width), eps=1e-5,
            conv=self.vector(width * s.kernel, 0.1).view(width, s.kernel), dilation=s.dilation,
        )  # fmt: skip

    def mlp(self) -> MlpWeights:
        s = self.shape
        return MlpWeights(
            self.residual(), self.matrix(s.ffn, s.hidden),
            self.matrix(s.ffn, s.hidden), self.matrix(s.hidden, s.ffn),
        )  # fmt: skip


class Toy:
    """A model of random weights with pages of its own, all of whose bytes begin strange."""

    def __init__(
        self,
        weights: Weights,
        kernels: Kernels,
        pages: int = 64,
        dtype: torch.dtype | None = None,
        slots: int = 24,
    ) -> None:
        s = self.shape = weights.shape
        dtype = dtype or getattr(torch, kernels.kv_dtype)
        self.native = kernels.name != "reference"
        self.width = kv.width(str(dtype).removeprefix("torch."), s.head_dim)
        size, layers = s.kv_heads * s.block * self.width, s.layers.count("a")
        # One record a page, k and v of every layer in it, as in the engine's arena.
        nbytes = layers * 2 * size * dtype.itemsize
        self.record = torch.empty((pages, nbytes // dtype.itemsize), dtype=dtype)
        self.record.untyped_storage().fill_(STRANGE)
        fields = self.record.view(pages, layers * 2, s.kv_heads, s.block, self.width)
        self.fields = [fields[:, i] for i in range(layers * 2)]
        # One record a slot, not a number where no sequence is.
        shapes = [shape for w, _ in weights.layers for shape in _state_shapes(w)]
        self.states = torch.full((slots, sum(map(_numel, shapes))), torch.nan)
        held = self.states.split([_numel(shape) for shape in shapes], dim=1)
        state_fields = iter(part.unflatten(1, shape) for part, shape in zip(held, shapes))  # noqa: B905
        page_fields = iter(self.fields)
        self.index: list[torch.Tensor] = []  # raw keys and keys of each layer
        ops = [kernels.embed(weights.table, s.streams)]
        for first, mlp in weights.layers:
            if isinstance(first, AttentionWeights):
                page = {"k": next(page_fields), "v": next(page_fields), **self._index(first, pages)}
                ops.append(kernels.attention(first, page, s.block))
            elif isinstance(first, DeltaWeights):
                state = {"conv": next(state_fields), "state": next(state_fields)}
                ops.append(kernels.delta(first, state))
            else:
                history = next(state_fields).view(torch.int32)
                ops.append(kernels.ngram(first, {"history": history, "conv": next(state_fields)}))
            ops.append(kernels.mlp(mlp))
        ops.append(kernels.head(weights.head))
        self.program = kernels.program(ops)
        self._unused = list(range(pages))
        self._free_slots = list(range(slots))

    def _index(self, w: AttentionWeights, pages: int) -> dict[str, torch.Tensor]:
        if w.indexer is None:
            return {}
        block, dim = self.shape.block, w.indexer.dim
        kind = torch.float32 if self.record.dtype == torch.float32 else torch.float16
        raw = torch.full((pages, block, dim), torch.nan, dtype=kind)
        keys = torch.full((pages, block // w.indexer.ratio, dim), torch.nan)
        self.index += [raw, keys]
        return {"index_raw": raw, "index_keys": keys}

    def copy_page(self, source: int, target: int) -> None:
        """All that a page holds."""
        for held in (self.record, *self.index):
            held[target] = held[source]

    def slot(self) -> int:
        """A state slot that nothing else uses."""
        return self._free_slots.pop()

    def sequence(self, tokens: np.ndarray, order: np.random.Generator | None = None) -> Sequence_:
        """A new sequence with pages for all of its tokens, in random order when asked."""
        if order is not None:
            order.shuffle(self._unused)
        count = -(-len(tokens) // self.shape.block)
        pages, self._unused = self._unused[:count], self._unused[count:]
        assert len(pages) == count
        slot = self.slot() if self.states.shape[1] else -1
        if slot >= 0:
            self.states[slot] = 0
        return Sequence_(tokens, pages, slot)

    def plan(
        self, batch: Iterable[tuple[Sequence_, int]], captures: Sequence[Capture] = ()
    ) -> ForwardPlan:
        batch, block = list(batch), self.shape.block
        tokens, positions, slots, starts = [], [], [], [0]
        table = np.full((len(batch), max(len(s.pages) for s, _ in batch) + 1), -1, np.int32)
        for row, (s, count) in enumerate(batch):
            where = range(s.done, s.done + count)
            tokens += s.tokens[s.done : s.done + count].tolist()
            positions += where
            slots += [
                s.pages[p // block] * block + p % block if p >= s.writable_from else -1
                for p in where
            ]
            starts.append(len(tokens))
            # Pages beyond the last token are not shown: reading there would be seen.
            used = (s.done + count - 1) // block + 1
            table[row, :used] = s.pages[:used]

        def ints(values: Sequence[int]) -> np.ndarray:
            return np.asarray(values, np.int32)

        return ForwardPlan(
            step=0, block=block, tokens=ints(tokens), positions=ints(positions),
            row_starts=ints(starts), page_table=table, write_slots=ints(slots),
            state_slots=ints([s.slot for s, _ in batch]), sample=ints(range(len(tokens))),
            captures=tuple(captures),
        )  # fmt: skip

    def step(
        self, batch: Iterable[tuple[Sequence_, int]], captures: Sequence[Capture] = ()
    ) -> None:
        """Reads some tokens of some sequences in one step."""
        batch = list(batch)
        result = self.program.run(self.plan(batch, captures))
        assert set(result.captured) == set(captures)
        logits = result.logits.clone()
        for s, count in batch:
            mine, logits = logits[:count], logits[count:]
            s.logits.append(mine)
            s.done += count

    def read(self, s: Sequence_, chunk: int) -> torch.Tensor:
        """Reads the rest of a sequence alone, in chunks; logits of all its tokens."""
        while s.done < len(s.tokens):
            self.step([(s, min(chunk, len(s.tokens) - s.done))])
        return torch.cat(s.logits)

    def memory(self, s: Sequence_) -> torch.Tensor:
        """Keys and values of a sequence's tokens: [2 layers, tokens, kv_heads, head_dim]."""
        shown = []
        for i, pages in enumerate(self.fields):
            held = pages[torch.tensor(s.pages)]
            held = self._units(held, i % 2 == 0) if self.native else self._rows(held)
            shown.append(held.transpose(1, 2).flatten(0, 1)[: s.done])
        return torch.stack(shown) if shown else torch.empty(0)

    def _rows(self, held: torch.Tensor) -> torch.Tensor:
        """Of the reference's pages [n, kv_heads, block, width]: [..., head_dim]."""
        numbers, scales = held.split([self.shape.head_dim, self.width - self.shape.head_dim], -1)
        return _scaled(numbers, scales)

    def _units(self, held: torch.Tensor, keys: bool) -> torch.Tensor:
        """Of native pages: each unit's numbers, transposed where they are keys, then its scales."""
        shape, each = self.shape, self.width - self.shape.head_dim
        together = shape.ratio if shape.budget else shape.block
        units = held.flatten(2).unflatten(2, (-1, together * self.width))
        numbers, scales = units.split([together * shape.head_dim, together * each], -1)
        scales = scales.contiguous().view(torch.bfloat16) if each else scales
        scales = scales.unflatten(-1, (-(-each // 2), together)).transpose(-1, -2)
        if keys:
            numbers = numbers.unflatten(-1, (shape.head_dim, together)).transpose(-1, -2)
        else:
            numbers = numbers.unflatten(-1, (together, shape.head_dim))
        return _scaled(numbers, scales).flatten(2, 3)

    def state(self, slot: int) -> torch.Tensor:
        """All that a state slot holds."""
        return self.states[slot].clone()


def _state_shapes(w: AttentionWeights | DeltaWeights | NgramWeights) -> list[tuple[int, ...]]:
    if isinstance(w, DeltaWeights):
        return [(w.window, w.channels), (w.v_heads, w.dim, w.dim)]
    if isinstance(w, NgramWeights):
        return [(w.history,), (w.window, w.width)]
    return []


def _scaled(numbers: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Numbers of 8 bits times the scale of each 32 of them; others as they are."""
    if numbers.dtype != torch.uint8:
        return numbers
    if scales.dtype == torch.uint8:
        scales = scales.contiguous().view(torch.bfloat16)
    each = scales.float().repeat_interleave(32, -1)[..., : numbers.shape[-1]]
    return numbers.contiguous().view(torch.int8).float() * each


def _numel(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape))


def random_tokens(n: int, seed: int = 0, vocab: int = 80) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, vocab, n)
