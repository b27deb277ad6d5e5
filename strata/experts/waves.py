"""Waves: one lookup under way, from what a layer wants to its last wave.

What can be computed now is computed first; meanwhile the rest is on its way, the most wanted first,
as far as there are slots. An expert in main memory takes the bus to fast memory or is computed from
where it is, see `lanes`; one that is on the disk first comes to main memory. Whatever the lookup
counts on is pinned until its wave is over, and unpinned whatever ends the lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

import numpy as np
import numpy.typing as npt

from strata.experts.counts import BUS, DEVICE, DISK, HOST
from strata.experts.lanes import Rates, lanes
from strata.experts.shelf import Shelf
from strata.kernels.moe import ExpertWave
from strata.memory.transfer import Transfer
from strata.types import IntArray, StorageError


class _Feed:
    """What a lookup has to do with one tier. Positions are indices into its keys."""

    def __init__(self) -> None:
        self.ready: list[int] = []  # positions that can be computed
        self.backlog: list[int] = []  # positions that need a slot, the most wanted last
        self.promised: set[int] = set()  # keys of the backlog that are to stay
        self.pending: dict[int, tuple[int, Transfer]] = {}  # slot -> position
        self.pinned: set[int] = set()  # slots


class Waves:
    """One lookup of experts int32 [n] of a place, each wanted by `counts` [n] entries.

    `lane` uint8 [n] says where each came from; `nbytes` and `stalled` what was moved and how long
    the lookup waited, by lane; `evicted` keys made room. `rates` have then learned from it.
    """

    def __init__(
        self, shelf: Shelf, first: int, experts: IntArray, counts: IntArray, rates: Rates
    ) -> None:
        """`first` is the key of the place's first expert."""
        self._shelf, self._experts, self._counts = shelf, experts, counts
        self._keys = experts + np.int32(first)
        self._feeds = [_Feed() for _ in shelf.tiers]
        self._last = len(shelf.tiers) - 1  # main memory; any other tier is fast memory
        self.rates = rates
        self.lane: npt.NDArray[np.uint8] = np.full(len(experts), DISK, np.uint8)
        self.nbytes, self.stalled = {BUS: 0, DISK: 0}, {BUS: 0.0, DISK: 0.0}
        self.evicted: list[int] = []
        self.waits = False  # now, for something to arrive

    def find(self, ahead: IntArray) -> None:
        """Looks where everything is and pins it; decides what is to stay, sparing the keys in
        `ahead` if it can. Comes before `run`; `release` must follow in any case.
        """
        self._ahead = ahead
        left = np.arange(len(self._keys))
        for tier, into in enumerate(self._shelf.tiers):
            if not len(left):
                return
            keys = self._keys[left]
            into.policy.touch(keys, self._counts[left])
            into.land(into.slot_of[keys].tolist())
            slots = into.slot_of[keys]
            here, found = into.ready(keys), slots >= 0
            self._pin(tier, slots[found].tolist())
            for position, slot in zip(left[found & ~here], slots[found & ~here], strict=True):
                self._join(tier, int(position), int(slot))
            lanes_here = (HOST, DISK) if tier == self._last else (DEVICE, BUS)
            self.lane[left[found]] = np.where(here[found], *lanes_here)
            if tier < self._last:
                self._feeds[tier].ready = left[here].tolist()
                self._admit(tier, keys[found])
            else:
                self._feeds[tier].backlog = self._by_weight(left[~found])
                self._admit(tier, keys)
                self._split(left[here].tolist())
            left = left[~found]

    def run(self, begun: Callable[[], None]) -> Iterator[ExpertWave]:
        """The waves. Calls `begun` as soon as everything is on its way. Raises StorageError."""
        todo = [begun]
        while (tier := self._next(todo)) is not None:
            at = np.array(self._feeds[tier].ready)
            self._feeds[tier].ready = []
            slots = self._shelf.tiers[tier].slot_of[self._keys[at]]
            start = perf_counter()
            yield ExpertWave(tier, self._experts[at], slots)
            self._unpin(tier, slots.tolist())
            if tier == self._last > 0:
                work = int(self._counts[at].sum())
                took = perf_counter() - start
                self.rates = self.rates.computed(self._shelf.nbytes, len(at), work, took)

    def release(self) -> None:
        """Gives up whatever the lookup still has."""
        for tier, feed in enumerate(self._feeds):
            self._unpin(tier, list(feed.pinned))

    # ------------------------------------------------------------- progress

    def _next(self, todo: list[Callable[[], None]]) -> int | None:
        """A tier with something to compute, once there is one; None when all is done."""
        while True:
            self._arrive()
            for tier in reversed(range(len(self._feeds))):
                self._start(tier)
            if todo and not any(feed.backlog for feed in self._feeds):
                todo.pop()()
            for tier, feed in enumerate(self._feeds):
                if feed.ready:
                    return tier
            if not any(feed.pending or feed.backlog for feed in self._feeds):
                return None
            if not self._give_up_rides():
                self._wait()

    def _start(self, tier: int) -> None:
        """Begins to move what there are slots for."""
        feed, into = self._feeds[tier], self._shelf.tiers[tier]
        while feed.backlog and into.free:
            position = feed.backlog.pop()
            key = int(self._keys[position])
            slot = self._shelf.bring(into, key, key in feed.promised)
            feed.promised.discard(key)
            self._pin(tier, [slot])
            self._join(tier, position, slot)
            self.nbytes[self._way(tier)] += self._shelf.nbytes

    def _join(self, tier: int, position: int, slot: int) -> None:
        """Counts on what is coming into a slot."""
        into = self._shelf.tiers[tier]
        transfer = into.transfer(slot)
        assert transfer is not None
        self._shelf.copier(into).hasten(transfer)
        self._feeds[tier].pending[slot] = position, transfer

    def _arrive(self) -> None:
        """Takes note of what has settled. Raises StorageError for a record that is not to be had;
        one that did not make it over the bus is computed from main memory.
        """
        for tier, feed in enumerate(self._feeds):
            into, landed = self._shelf.tiers[tier], list[int]()
            for slot, (position, transfer) in list(feed.pending.items()):
                if not transfer.settled:
                    continue
                del feed.pending[slot]
                into.land([slot])
                if transfer.error is None:
                    rate = "bus" if tier < self._last else "disk"
                    self.rates = self.rates.after(rate, transfer.nbytes, transfer.seconds)
                    landed.append(position)
                elif tier == self._last:
                    raise StorageError(transfer.error)
                else:
                    self._unpin(tier, [slot])
                    self._fall_back(position)
            if tier == self._last:
                self._split(landed)
                continue
            feed.ready += landed
            sources = self._shelf.host.slot_of[self._keys[landed]].tolist()
            self._unpin(self._last, [slot for slot in sources if slot in self._feeds[-1].pinned])

    def _wait(self) -> None:
        """Returns when something has settled, of what the lookup waits for if there is any."""
        tiers = range(len(self._feeds))
        tier = next((tier for tier in tiers if self._feeds[tier].pending), self._last)
        feed = self._feeds[tier]
        into = self._shelf.tiers[tier]
        # Without anything pending, all slots are in the hands of moves that nobody waits for.
        transfers = [transfer for _, transfer in feed.pending.values()] or into.transfers()
        start, self.waits = perf_counter(), True
        self._shelf.copier(into).wait(transfers)
        self.waits = False
        self.stalled[self._way(tier)] += perf_counter() - start
        if not feed.pending:
            into.land()

    # ---------------------------------------------------------------- lanes

    def _split(self, positions: list[int]) -> None:
        """Divides experts in main memory among the lanes."""
        if self._last == 0 or not positions:
            self._feeds[-1].ready += positions
            return
        at = np.array(positions)
        rides = lanes(self._counts[at], self._shelf.nbytes, self.rates)
        self._feeds[-1].ready += at[~rides].tolist()
        feed, riders = self._feeds[0], at[rides]
        self.lane[riders[self.lane[riders] == HOST]] = BUS
        self._admit(0, self._keys[riders])
        feed.backlog = self._by_weight(np.array(feed.backlog + riders.tolist(), np.int64))

    def _give_up_rides(self) -> bool:
        """Whether experts for which no slot of fast memory will come free stay where they are."""
        feed = self._feeds[0]
        if self._last == 0 or feed.pending or not feed.backlog:
            return False
        for position in feed.backlog:
            self._fall_back(position)
        feed.backlog, feed.promised = [], set()
        return True

    def _fall_back(self, position: int) -> None:
        """Computes an expert from main memory. It is there, unless the ride was begun by a lookup
        before this one.
        """
        feed, host, key = self._feeds[-1], self._shelf.host, self._keys[position]
        slot = int(host.slot_of[key])
        if slot < 0:
            self.lane[position] = DISK
            feed.backlog.append(position)
            return
        if slot not in feed.pinned:
            self._pin(self._last, [slot])
        if host.ready(self._keys[position : position + 1])[0]:
            if self.lane[position] == BUS:
                self.lane[position] = HOST
            feed.ready.append(position)
        else:
            self.lane[position] = DISK
            self._join(self._last, position, slot)

    # ---------------------------------------------------------------- slots

    def _admit(self, tier: int, keys: IntArray) -> None:
        """Decides which of the keys are to stay in a tier, and makes room for them."""
        into, feed = self._shelf.tiers[tier], self._feeds[tier]
        wanted = keys[~into.kept(keys)]
        if not len(wanted):
            return
        stay, evicted = self._shelf.choose(into, wanted, len(feed.promised), self._ahead)
        self.evicted += evicted
        for key in stay:
            slot = int(into.slot_of[key])
            if slot < 0:
                feed.promised.add(key)
            else:
                into.stay(slot)

    def _by_weight(self, positions: npt.NDArray[np.int64]) -> list[int]:
        """The most wanted last."""
        ordered: list[int] = positions[np.argsort(self._counts[positions], kind="stable")].tolist()
        return ordered

    def _way(self, tier: int) -> int:
        return DISK if tier == self._last else BUS

    def _pin(self, tier: int, slots: Sequence[int]) -> None:
        self._shelf.tiers[tier].pin(slots)
        self._feeds[tier].pinned.update(slots)

    def _unpin(self, tier: int, slots: Sequence[int]) -> None:
        self._feeds[tier].pinned.difference_update(slots)
        self._shelf.tiers[tier].unpin(slots)
