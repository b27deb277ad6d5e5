"""Guesses: experts brought in before they are looked up, because the layer before expects them.

A guess takes a free slot that no kept key needs, evicts nothing, and passes: the lookup of its
place decides whether it stays. Its slot is pinned until then, or until the step is over. Moves
started on a guess yield to those that a lookup waits for.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strata.experts.residency import Residency
from strata.experts.shelf import Shelf
from strata.types import IntArray


class Guesses:
    """The guesses of all places. Counters int64 [places]: what was started for them, and of that
    what was then wanted, and what was not.
    """

    def __init__(self, places: int, experts: int) -> None:
        self._experts = experts
        # By place: the tier, the key and its slot, which no lookup has asked for yet.
        self._open: dict[int, list[tuple[Residency, int, int]]] = {}
        self.started = np.zeros(places, np.int64)
        self.used = np.zeros(places, np.int64)
        self.wasted = np.zeros(places, np.int64)

    def start(self, shelf: Shelf, place: int, keys: IntArray) -> tuple[int, int]:
        """Begins to bring what is absent of `keys` to the fastest tier, the first ones first, as
        far as there are free slots. Bytes that go over the disk, and over the bus.
        """
        disk = bus = 0
        guesses = self._open.setdefault(place, [])
        host, top = shelf.host, shelf.tiers[0]
        far = keys[top.slot_of[keys] < 0]
        reading = host.slot_of[far] < 0
        near = host.ready(far)
        for key in far[reading | near].tolist():
            into = host if host.slot_of[key] < 0 else top
            if not into.free:
                continue
            slot = shelf.bring(into, key, stays=False, urgent=False)
            into.pin([slot])
            guesses.append((into, key, slot))
            disk, bus = disk + (into is host), bus + (into is not host)
        self.started[place] += disk + bus
        return disk * shelf.nbytes, bus * shelf.nbytes

    def close(self, place: int, wanted: npt.NDArray[np.integer] | None) -> None:
        """A place is looked up: `wanted` [experts] is nonzero for what it wants, None for nothing.
        Whoever wants a guess holds its slot by now.
        """
        for into, key, slot in self._open.pop(place, ()):
            hit = wanted is not None and wanted[key % self._experts] and into.slot_of[key] >= 0
            (self.used if hit else self.wasted)[place] += 1
            into.unpin([slot])

    def clear(self) -> None:
        """The step is over: what is still open was wasted."""
        for place in list(self._open):
            self.close(place, None)
