"""Log-probabilities of a row of logits, as the model gave them.

Natural logarithms of the softmax of the raw row: before temperature, penalties,
bias and truncation, so that a figure means the same whatever the sampling is.
Pure functions of one row: bit-equal in any batch.
"""

from __future__ import annotations

import math

import numpy as np

from strata.engine.draw import NotFinite, Row, largest
from strata.types import Logprob


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
