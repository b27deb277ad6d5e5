"""Shelf: the experts of one record size, their slots in each tier, and how they get there.

Its tiers are ordered from the fastest to the slowest: fast memory, if it has slots there, then main
memory. Below both is the disk, which has every record: nothing is ever written back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor

from strata.experts.policy import settle
from strata.experts.residency import Residency
from strata.memory.transfer import ThreadCopier
from strata.types import IntArray

Read = Callable[[int, Tensor], None]  # fills a slot with the record of a key


@dataclass(frozen=True, slots=True, eq=False)
class Shelf:
    """`nbytes` of a record; `disk` and `bus` run the transfers into main and into fast memory."""

    nbytes: int
    tiers: Sequence[Residency]
    read: Read
    disk: ThreadCopier
    bus: ThreadCopier

    @property
    def host(self) -> Residency:
        """Main memory."""
        return self.tiers[-1]

    def copier(self, into: Residency) -> ThreadCopier:
        """What runs the transfers into a tier."""
        return self.disk if into is self.host else self.bus

    def bring(self, into: Residency, key: int, stays: bool, urgent: bool = True) -> int:
        """Starts to move a key into a free slot of a tier, to the fast one from a slot of the
        other that can be read. The slot.
        """
        slot = into.take(key, stays)
        target = into.arena.data[slot]
        if into is self.host:
            transfer = self.disk.submit(partial(self.read, key, target), self.nbytes, urgent)
            into.expect(slot, transfer, lambda: None)
            return slot
        source = [int(self.host.slot_of[key])]
        # Until the copy is over: the lookup that wants it may be given up before.
        self.host.pin(source)
        copy = partial(target.copy_, self.host.arena.data[source[0]], non_blocking=True)
        transfer = self.bus.submit(copy, self.nbytes, urgent)
        into.expect(slot, transfer, partial(self.host.unpin, source))
        return slot

    def choose(
        self, into: Residency, wanted: IntArray, promised: int, ahead: IntArray
    ) -> tuple[list[int], list[int]]:
        """Which of the `wanted` keys, that a tier does not keep yet, are to stay in it, and the
        keys evicted for them: keys in `ahead` only if there are too few others. `promised` more
        keys are still to come.
        """
        spare = into.spare - promised
        candidates: IntArray = np.empty(0, np.int32)
        if spare < len(wanted):
            candidates = into.evictable()
            others = np.setdiff1d(candidates, ahead, assume_unique=True)
            if len(others) >= len(wanted) - spare:
                candidates = others
        stay, evicted = settle(into.policy, wanted, candidates, spare)
        for key in evicted.tolist():
            into.evict(key)
        return stay.tolist(), evicted.tolist()
