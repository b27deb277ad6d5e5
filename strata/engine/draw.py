"""What is made of one row of logits: log-probabilities, truncation (top_k, top_p, min_p), the draw.

Pure functions of one row, so a row's result cannot depend on its batch. Rows are float32 [vocab],
contiguous. Wherever two tokens are equally likely the lower id comes first. Log-probabilities are
natural logarithms of the softmax of the raw row: before temperature, penalties, bias and
truncation, so that a figure means the same whatever the sampling is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from strata.types import Logprob

Row = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

_SPAN = 1024  # Tokens summed together when a draw searches the whole vocabulary.
# Weights, relative to the largest, down to which a nucleus is looked for in turn.
_FLOORS = (0.05, 1e-3)
_FEW = 2048  # So many tokens are sorted without a second thought.
_COARSE = 18  # Bits dropped from a weight to sort it into a bin: 32 bins for each power of two.
# Factor by which a sum must pass a goal to pass it in whatever order it is made.
_SURELY = 1.000001
# Natural logarithm of how much less likely than the first a token may be and still count: e^-30 of
# a million tokens together is lost in the rounding of a float32 sum anyway.
_REACH = 30.0
_SPARSE = 8  # It pays to leave the others out when only one token in so many counts.


class NotFinite(ArithmeticError):
    """A row of logits holds no finite maximum: the model's arithmetic broke down."""


def descending(row: Row, ids: npt.NDArray[Any]) -> Ids:
    """`ids` ordered by (-logit, id): one unstable sort of distinct 64-bit keys."""
    bits = (row[ids] + np.float32(0.0)).view(np.uint32)  # +0.0 turns -0.0 into 0.0
    negative = (bits >> np.uint32(31)).astype(bool)
    falling = np.where(negative, bits, ~(bits | np.uint32(0x80000000)))
    keys = (falling.astype(np.uint64) << np.uint64(32)) | ids.astype(np.uint64)
    keys.sort()
    ordered: Ids = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return ordered


def largest(row: Row, count: int) -> Ids:
    """The `count` most likely ids, in order. All of them when there are fewer."""
    size = row.shape[0]
    if count >= size:
        return descending(row, np.arange(size))
    if count == 1:
        return np.array([row.argmax()], dtype=np.int64)
    spans = size // _SPAN
    if spans >= count:  # the count-th largest of the spans' maxima bounds the answer from below
        tops = row[: spans * _SPAN].reshape(spans, _SPAN).max(axis=1)
        floor = np.partition(tops, spans - count)[spans - count]
    else:
        floor = np.partition(row, size - count)[size - count]
    return descending(row, np.flatnonzero(row >= floor))[:count]


def log_total(row: Row, room: Row) -> float:
    """log(sum(exp(row))) in nats. `room` float32 [vocab] is overwritten. Raises NotFinite."""
    top = float(row.max())
    if not math.isfinite(top):
        raise NotFinite(f"largest logit is {top}")
    np.subtract(row, np.float32(top), out=room)
    np.exp(room, out=room)
    return top + math.log(float(room.sum()))


def logprob(row: Row, token: int, count: int, room: Row) -> Logprob:
    """`token`'s log-probability and those of the `count` most likely tokens, in order."""
    total = log_total(row, room)
    top = largest(row, count) if count > 0 else ()
    return Logprob(
        token=token,
        logprob=float(row[token]) - total,
        top=tuple((int(i), float(row[i]) - total) for i in top),
    )


def _nucleus(row: Row, weights: Row, goal: float) -> Ids:
    """The fewest most likely ids whose weights reach `goal`; all where rounding forbids it.

    A nucleus among a few heavy tokens is found by sorting those: a running sum from
    the top does not depend on what follows it, so the answer equals a full sort's.
    """
    for floor in _FLOORS:
        ids = np.flatnonzero(weights >= np.float32(floor))
        if ids.shape[0] > _FEW:
            few = weights[ids] if ids.shape[0] * _SPARSE <= row.shape[0] else weights
            if few is not weights and float(few.sum(dtype=np.float64)) > goal * _SURELY:
                return ids[_wide_nucleus(row[ids], few, goal)]
            break
        ids = descending(row, ids)
        found = int(np.searchsorted(np.cumsum(weights[ids], dtype=np.float64), goal))
        if found < ids.shape[0]:
            return ids[: found + 1]
    return _wide_nucleus(row, weights, goal)


def _wide_nucleus(row: Row, weights: Row, goal: float) -> Ids:
    """`_nucleus` among many: weights are summed by bins, and only one bin is sorted.

    The bits of positive floats sort like the floats, so equal weights share a bin.
    """
    bins = (np.int32(0x3F800000) - weights.view(np.int32)) >> _COARSE  # bin 0 is the weight 1
    sums = np.cumsum(np.bincount(bins, weights=weights))
    border = int(np.searchsorted(sums, goal))
    before = float(sums[border - 1]) if border else 0.0
    inside = descending(row, np.flatnonzero(bins == border))
    found = int(np.searchsorted(np.cumsum(weights[inside], dtype=np.float64), goal - before))
    return np.concatenate([np.flatnonzero(bins < border), inside[: found + 1]])


def _passing(sums: npt.NDArray[np.float64], goal: float) -> int:
    """The index at which the running `sums` pass `goal`, a part of their total."""
    index = int(np.searchsorted(sums, goal, side="right"))
    # Rounding may carry the goal up to the total: then the last token of any weight.
    return index if index < sums.shape[0] else int(np.searchsorted(sums, sums[-1]))


def _fall(weights: npt.NDArray[Any], unit: float) -> int:
    """The index that `unit` of the total weight falls on."""
    sums = np.cumsum(weights, dtype=np.float64)
    return _passing(sums, unit * float(sums[-1]))


def _fall_anywhere(weights: Row, unit: float) -> int:
    """Like `_fall` over a whole vocabulary, in two levels instead of one long sum."""
    spans = np.add.reduceat(weights, np.arange(0, weights.shape[0], _SPAN))
    sums = np.cumsum(spans, dtype=np.float64)
    goal = unit * float(sums[-1])
    span = _passing(sums, goal)
    start, before = span * _SPAN, float(sums[span - 1]) if span else 0.0
    inside = np.cumsum(weights[start : start + _SPAN], dtype=np.float64)
    return start + _passing(inside, goal - before)


@dataclass(frozen=True, slots=True)
class Cut:
    """Which tokens may be drawn. top_p counts within what top_k left; min_p is relative to
    the most likely token. Off: top_k 0, top_p 1, min_p 0. At least one token remains.
    """

    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def ids(self, row: Row, weights: Row) -> Ids | None:
        """The ids that remain of a row with these weights; None for all."""
        ids: Ids | None = None
        if 0 < self.top_k < row.shape[0]:
            ids = largest(row, self.top_k)
        if self.top_p < 1.0:
            if ids is None:
                ids = _nucleus(row, weights, self.top_p * float(weights.sum()))
            else:
                sums = np.cumsum(weights[ids], dtype=np.float64)
                ids = ids[: int(np.searchsorted(sums, self.top_p * float(sums[-1]))) + 1]
        if self.min_p > 0.0:
            floor = np.float32(min(self.min_p, 1.0))
            ids = np.flatnonzero(weights >= floor) if ids is None else ids[weights[ids] >= floor]
        return ids


def draw(row: Row, unit: float, temperature: float, cut: Cut, room: Row) -> int:
    """The token that `unit` (in [0, 1)) falls on, after temperature and `cut`.

    `room` float32 [vocab] is overwritten. Raises NotFinite.
    """
    top = float(row.max())
    if not np.isfinite(top):
        raise NotFinite(f"largest logit is {top}")
    counts = row >= np.float32(top - _REACH * temperature)
    if np.count_nonzero(counts) * _SPARSE > row.shape[0]:
        return _draw(row, top, unit, temperature, cut, room)
    near = np.flatnonzero(counts)
    token = _draw(row[near], top, unit, temperature, cut, room[: near.shape[0]])
    return int(near[token])


def _draw(row: Row, top: float, unit: float, temperature: float, cut: Cut, room: Row) -> int:
    """`draw` without leaving anybody out. `top` is the largest logit."""
    np.subtract(row, np.float32(top), out=room)
    with np.errstate(over="ignore"):  # a tiny temperature sends the rest to -inf, as it should
        np.multiply(room, np.float32(1.0 / temperature), out=room)
    weights = np.exp(room, out=room)
    ids = cut.ids(row, weights)
    if ids is None:
        return _fall_anywhere(weights, unit)
    return int(ids[_fall(weights[ids], unit)])
