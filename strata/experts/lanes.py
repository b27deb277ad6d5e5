"""Lanes: which experts ride the bus to fast memory, and which are computed from main memory.

A pure function of how often each is wanted and of measured rates. Both lanes run at once; the
lookup is over when the later one is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from strata.types import IntArray

_NEWEST = 0.1  # weight of the newest measurement in a mean


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second, all of them exponential means of what was measured.

    disk   records read
    bus    records copied to fast memory
    host   records walked once, when few tokens want each: main memory is the limit
    work   record bytes times tokens, when many do: arithmetic is
    """

    disk: float = 1e9
    bus: float = 12e9
    host: float = 20e9
    work: float = 80e9

    def computed(self, nbytes: int, experts: int, entries: int, seconds: float) -> Rates:
        """After a wave of the host lane: `experts` of `nbytes` each, wanted by `entries`. It tells
        the rate of what was the limit.
        """
        if experts * nbytes / self.host > entries * nbytes / self.work:
            return self.after("host", experts * nbytes, seconds)
        return self.after("work", entries * nbytes, seconds)

    def after(self, rate: str, nbytes: int, seconds: float) -> Rates:
        """After `nbytes` took `seconds` at the rate of that name."""
        if seconds <= 0:
            return self
        # The mean of seconds per byte: one stall may not count as much as a thousand good copies.
        old = 1 / float(getattr(self, rate))
        return replace(self, **{rate: 1 / (old + _NEWEST * (seconds / nbytes - old))})


def lanes(counts: IntArray, nbytes: int, rates: Rates) -> npt.NDArray[np.bool_]:
    """[n]: whether each of n experts of `nbytes`, wanted by `counts` [n] entries, takes the bus.

    Every ride takes as long as any other, so for each number of rides the heaviest take them; of
    those splits the one that ends first.
    """
    order = np.argsort(-counts, kind="stable")
    host = np.maximum(nbytes / rates.host, counts[order] * (nbytes / rates.work))
    left = np.concatenate([np.cumsum(host[::-1])[::-1], [0.0]])  # on the host after n rides
    rides = int(np.argmin(np.maximum(np.arange(len(counts) + 1) * (nbytes / rates.bus), left)))
    by_bus = np.zeros(len(counts), np.bool_)
    by_bus[order[:rides]] = True
    return by_bus
