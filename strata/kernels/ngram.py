"""Hashed n-gram embeddings that are injected into the residual streams.

Qwen3.8-Flash-Next's PLE: each token looks up rows of a very large table by hashes of the
last tokens, projects them to a value and one key per stream, and adds the value gated by the
match of key and stream, plus a dilated causal convolution of it. Weights and the plain torch
specification. Knows the state slots of a step's rows. The native implementation is cpu/ngram.h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import silu

from strata.kernels.norm import rms_norm
from strata.kernels.quant import QTensor, dequantise_rows
from strata.kernels.state import StateStep
from strata.types import IntArray

_LEAST = 1e-6


class RowSource(Protocol):
    """A table's rows, some of which lie in `table` uint8 [slots, row bytes], which does not move.
    Used by the engine thread.
    """

    table: Tensor

    def fetch(self, rows: npt.NDArray[np.int64]) -> IntArray:
        """The slots of `rows` [n], good until the next call. Raises StrataError when they cannot
        be had.
        """


@dataclass(frozen=True, slots=True, eq=False)
class NgramWeights:
    """`table`: matrices whose rows follow each other, read where they lie, never whole; or not at
    all when a `source` has the rows, for which they are of one format.

    Head i of the hash (heads_per_ngram for 2 tokens, as many for 3, ...) has the prime
    `sizes[i]` and begins at row `offsets[i]`; its hash is the XOR of token j back times
    multipliers[j], modulo its prime. A token that is missing, or lies behind an `eos`, counts as
    `eos`. Rows of the table are multiplied by `scale`. key [width, embed]; value [hidden, embed];
    the norms float32 [width]; conv float32 [width, kernel], the newest token last, `dilation`
    tokens between its taps.
    """

    table: Sequence[QTensor]
    multipliers: tuple[int, ...]
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    eos: int
    streams: int
    key: QTensor
    value: QTensor
    norm_key: Tensor
    norm_query: Tensor
    norm_conv: Tensor
    eps: float
    conv: Tensor
    dilation: int
    source: RowSource | None = None
    scale: float = 1.0

    def __post_init__(self) -> None:
        assert self.value.rows * self.streams == self.width
        assert self.key.cols == self.value.cols == len(self.sizes) * self.table[0].cols
        assert len(self.sizes) == len(self.offsets)
        assert len(self.sizes) % self.history == 0
        assert self.source is None or len({part.format for part in self.table}) == 1

    @property
    def width(self) -> int:
        """Floats of a token in the residual stream."""
        return self.key.rows

    @property
    def history(self) -> int:
        """Earlier tokens that a hash sees."""
        return len(self.multipliers) - 1

    @property
    def window(self) -> int:
        """Earlier tokens that the convolution sees."""
        return (self.conv.shape[1] - 1) * self.dilation


def hashes(tokens: list[int], w: NgramWeights) -> list[int]:
    """Rows of the table for the last of `tokens`; [history + 1] of them, -1 where none is."""
    seen, ended = [], False
    for back, token in enumerate(reversed(tokens)):
        ended = ended or token < 0
        seen.append(w.eos if ended else token)
        ended = ended or (back > 0 and token == w.eos)
    rows, mixed = [], seen[0] * w.multipliers[0]
    heads = len(w.sizes) // w.history
    for back in range(1, w.history + 1):
        mixed ^= seen[back] * w.multipliers[back]
        first = (back - 1) * heads
        rows += [w.offsets[i] + mixed % w.sizes[i] for i in range(first, first + heads)]
    return rows


def lookup(w: NgramWeights, rows: Tensor) -> Tensor:
    """Rows (int64, any shape) of the table: float32 [..., cols]."""
    flat, out, first = rows.reshape(-1), torch.empty(rows.numel(), w.table[0].cols), 0
    if w.source is not None:
        slots, held = torch.from_numpy(w.source.fetch(flat.numpy())), w.source.table
        whole = QTensor(held.view(-1), w.table[0].format, len(held), w.table[0].cols)
        return dequantise_rows(whole, slots.long()).view(*rows.shape, -1)
    for part in w.table:
        own = (flat >= first) & (flat < first + part.rows)
        if own.any():
            out[own] = dequantise_rows(part, flat[own] - first)
        first += part.rows
    return out.view(*rows.shape, -1)


def ngram(
    x: Tensor,
    tokens: Tensor,
    w: NgramWeights,
    matrices: tuple[Tensor, Tensor],
    history: Tensor,
    conv: Tensor,
    step: StateStep,
) -> Tensor:
    """What is added to the streams x [n, width] of tokens int64 [n].

    `matrices`: key and value, dequantised. Reads and writes history int32 [slots, history], each
    token plus one, 0 where none is, and conv float32 [slots, window, width]; both oldest first.
    """
    ids = torch.empty(len(tokens), len(w.sizes), dtype=torch.int64)
    for row in step.rows():
        past = torch.cat((history[row.slot].long() - 1, tokens[row.first : row.end]))
        for i in range(row.end - row.first):
            ids[row.first + i] = torch.tensor(hashes(past[i : i + w.history + 1].tolist(), w))
            for slot in row.captures_after(i + 1):
                history[slot] = past[i + 1 : i + 1 + w.history] + 1
        history[row.slot] = past[len(past) - w.history :] + 1
    embedded = lookup(w, ids).flatten(1) * w.scale
    value = _gated(x, embedded, w, matrices)
    normed = _normed(value.flatten(1), w.norm_conv, w).flatten(1)
    mixed = torch.empty_like(normed)
    for row in step.rows():
        past = torch.cat((conv[row.slot], normed[row.first : row.end]))
        taps = past.unfold(0, w.window + 1, 1)[..., :: w.dilation]
        mixed[row.first : row.end] = silu((taps * w.conv).sum(-1))
        for capture in row.captures:
            conv[capture.slot] = past[capture.offset : capture.offset + w.window]
        conv[row.slot] = past[len(past) - w.window :]
    return value.flatten(1) + mixed


def _gated(x: Tensor, embedded: Tensor, w: NgramWeights, matrices: tuple[Tensor, Tensor]) -> Tensor:
    """The value of each stream: [n, streams, hidden]."""
    key, value = matrices
    keys, queries = _normed(embedded @ key.T, w.norm_key, w), _normed(x, w.norm_query, w)
    match = (keys * queries).sum(-1, keepdim=True) / math.sqrt(w.value.rows)
    match = match.abs().clamp_min(_LEAST).sqrt() * match.sign()
    return torch.sigmoid(match) * (embedded @ value.T)[:, None]


def _normed(x: Tensor, weight: Tensor, w: NgramWeights) -> Tensor:
    """Each stream's norm: [n, streams, hidden]."""
    return rms_norm(x.view(len(x), w.streams, -1), weight.view(w.streams, -1), w.eps)
