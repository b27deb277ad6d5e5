"""A policy that expects: how likely a key is to be wanted when its layer comes round, and how long
its slot must wait for that.

Each key has averages of its part of its layer's entries, over some lookups up to many. How much
each average says about the next lookup is learned on the way, by least squares over all keys.
"""

from __future__ import annotations

import numpy as np

from strata.experts.policy import Floats, Policy
from strata.types import IntArray

# Tokens after which an average forgets half: the first knows the last token only, the last all.
_HALF_LIVES = np.array([0.1, 2.0, 8.0, 32.0, 128.0, np.inf])
_FORGET = 1 - 1e-5  # of what was learned about the averages, each lookup
_RIDGE = 1e-6  # of the mean square, so that equal averages share their weight


class ValueDensity(Policy):
    """Expected uses for the time that a slot is held. Records of one shelf are of equal size, so
    that this is also the value of their bytes.
    """

    name = "value-density"

    def __init__(self, places: int, experts: int) -> None:
        super().__init__(places, experts)
        number = len(_HALF_LIVES)
        self.place_of = np.arange(places * experts, dtype=np.int32) // experts
        self.expected: Floats = np.zeros((places, experts))
        self._averages: Floats = np.zeros((places, number, experts))
        self._seen = np.zeros(places)  # tokens of each place, about
        self._entries = np.inf  # of the smallest lookup, which is one token's
        self._square: Floats = np.eye(number)
        self._product: Floats = np.full(number, 1.0 / number)
        self._weights: Floats = np.full(number, 1.0 / number)
        self._solved = 0

    def note(self, keys: IntArray, counts: IntArray) -> None:
        """Learns how well the averages foretold this lookup, and moves them on."""
        place, entries = self.place, int(counts.sum())
        self._entries = min(self._entries, entries)
        tokens = entries / self._entries
        part = np.zeros(self.experts)
        part[keys - place * self.experts] = counts / entries
        averages = self._averages[place]
        if self._seen[place]:
            self._square = _FORGET * self._square + averages @ averages.T
            self._product = _FORGET * self._product + averages @ part
        self._seen[place] += tokens
        keep = 0.5 ** (tokens / _HALF_LIVES)
        keep[-1] = 1 - tokens / self._seen[place]
        averages += (1 - keep)[:, None] * (part - averages)
        if self.step != self._solved:
            self._solve()
        self.expected[place] = self._weights @ averages

    def worth(self, keys: IntArray) -> Floats:
        """What is expected of it, by the layers to go until its own."""
        ahead = (np.arange(self.places) - (self.place + 1)) % self.places + 1
        return np.asarray(self.expected.ravel()[keys] / ahead[self.place_of[keys]])

    def learn(self, popularity: Floats) -> None:
        """All averages start at what the earlier run came to, which then fades like any other."""
        super().learn(popularity)
        table = popularity.reshape(self.places, 1, self.experts)
        totals = table.sum(-1, keepdims=True)
        self._averages[:] = np.divide(table, totals, out=np.zeros_like(table), where=totals > 0)
        self._seen[:] = _HALF_LIVES[-2] * (totals.ravel() > 0)
        self.expected[:] = self._averages[:, -1]

    def _solve(self) -> None:
        """Weights of the averages; once a step is often enough. None is negative: being wanted
        is no reason to leave, and neither a scan nor chance must teach that it is.
        """
        self._solved = self.step
        ridge = _RIDGE * np.trace(self._square) * np.eye(len(self._weights))
        square, some = self._square + ridge, np.ones(len(self._weights), bool)
        while some.any():
            found = np.linalg.solve(square[np.ix_(some, some)], self._product[some])
            if found.min() >= 0:
                self._weights[:] = 0.0
                self._weights[some] = found
                return
            some[some] = found > 0
