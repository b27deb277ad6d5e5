"""ExpertStore: experts that are larger than fast memory, and the accounts of it.

Owns the arenas of both tiers and decides, lookup by lookup, what moves. Sees places, experts and
counts of entries; no activation and no request. Used by the engine thread, but for `figures`. A
guess or a policy changes what is moved, never what is computed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strata.experts.counts import BUS, DEVICE, DISK, HOST, Counts, Table
from strata.experts.lanes import Rates
from strata.experts.layout import ExpertLayout
from strata.experts.policy import Policy
from strata.experts.prefetch import Guesses
from strata.experts.residency import Residency
from strata.experts.shelf import Read, Shelf
from strata.experts.trace import TraceWriter
from strata.experts.waves import Waves
from strata.figures import ExpertFigures, ExpertUse
from strata.kernels.moe import ExpertWave
from strata.memory.arena import SlotArena
from strata.memory.transfer import ThreadCopier
from strata.types import ConfigError, IntArray, StrataError

_log = logging.getLogger(__name__)
_PASSING = 16  # one slot in so many is for experts that do not stay
_NONE: IntArray = np.empty(0, np.int32)
_Running = Generator[ExpertWave, None, None]


@dataclass(frozen=True, slots=True, eq=False)
class TierPlan:
    """`slots` by record size, in memory of `device`; `copier` runs the transfers there."""

    slots: Mapping[int, int]
    policy: Policy
    copier: ThreadCopier
    device: str = "cpu"


class PlaceSource:
    """The experts of one place: an ExpertSource."""

    def __init__(
        self, store: ExpertStore, place: int, shelf: Shelf, places: npt.NDArray[np.int64]
    ) -> None:
        self._store, self._place, self.places = store, place, places
        self.form = store.layout.places[place].form
        self.arenas = [tier.arena.data for tier in shelf.tiers]

    def waves(self, chosen: IntArray, ahead: IntArray | None) -> Iterator[ExpertWave]:
        """See ExpertSource."""
        return self._store.waves(self._place, chosen, ahead)

    def served(self, chosen: IntArray) -> None:
        """See ExpertSource."""
        self._store.served(self._place, chosen)


class ExpertStore:
    """The experts of all places. `ahead`: whether guesses are of use. `rates` as measured so far.

    One lookup runs at a time: whatever comes next ends one that was left unfinished.
    """

    def __init__(
        self,
        layout: ExpertLayout,
        read: Read,
        host: TierPlan,
        device: TierPlan | None = None,
        *,
        top_k: int,
        prefetch: bool = True,
        trace: TraceWriter | None = None,
        rates: Rates | None = None,
    ) -> None:
        """`read` fills a slot with a key's record, on a thread of the host's copier. ConfigError
        when main memory has too few slots for a wave.
        """
        self.layout, self.ahead, self.rates = layout, prefetch, rates or Rates()
        self._plans = (host,) if device is None else (device, host)
        # Where kept keys lie, by tier, main memory last.
        keys = len(layout.places) * layout.experts
        self._addresses = np.zeros((len(self._plans), keys), np.int64)
        self._shelves = self._stock(read, top_k)
        self._rooms = self._room()
        self._counts = Counts(len(layout.places))
        self._guesses = Guesses(len(layout.places), layout.experts)
        self._active, self._evicted = np.zeros((2, len(layout.places)), np.int64)
        self._trace, self._step = trace, 0
        self._running: _Running | None = None
        self._found: Waves | None = None
        self._shown = self._show()

    def _stock(self, read: Read, top_k: int) -> list[Shelf]:
        """The shelf of each place: one for each record size."""
        records = Counter(self.layout.sizes().tolist())
        shelves = {}
        for size, count in records.items():
            tiers = []
            for plan, addresses in zip(self._plans, self._addresses, strict=True):
                slots = min(plan.slots[size], count)
                if slots < min(top_k, count):
                    raise ConfigError(
                        f"{slots} slots for experts of {size} bytes are too few: a token wants"
                        f" {top_k} at a time"
                    )
                # What is read for one lookup alone, or on a guess, passes through the others.
                passing = 0 if slots == count else max(top_k, slots // _PASSING)
                arena = SlotArena(slots, size, plan.device)
                # At least one, so that what does not stay always gets through.
                reserve = min(passing, max(slots - 1, 1))
                tiers.append(Residency(arena, plan.policy, addresses, reserve))
            copiers = self._plans[-1].copier, self._plans[0].copier
            shelves[size] = Shelf(size, tiers, read, *copiers)
        return [shelves[place.record] for place in self.layout.places]

    def _room(self) -> npt.NDArray[np.int64]:
        """Bytes of slots on the device and in main memory, [2, places]: at each shelf's first."""
        rooms = np.zeros((2, len(self._shelves)), np.int64)
        for shelf in set(self._shelves):
            *device, host = [tier.arena.slots * shelf.nbytes for tier in shelf.tiers]
            rooms[:, self._shelves.index(shelf)] = device[0] if device else 0, host
        return rooms

    # ------------------------------------------------------------------ steps

    def source(self, place: int) -> PlaceSource:
        """The experts of one place."""
        addresses = self._addresses[0].reshape(len(self._shelves), -1)[place]
        return PlaceSource(self, place, self._shelves[place], addresses)

    def begin(self, row_starts: IntArray) -> None:
        """A step begins, of rows like those of `ForwardPlan.row_starts`."""
        self._end()
        self._step += 1
        self._counts.begin(row_starts)

    def tally(self) -> list[ExpertUse]:
        """What each row of the step took, the step complete or not."""
        self._end()
        self._shown = self._show()
        return self._counts.tally()

    def figures(self) -> list[ExpertFigures]:
        """One for each place, up to the last step. From any thread."""
        uses, numbers = self._shown
        lines = zip(self.layout.places, uses.uses(), numbers.T.tolist(), strict=True)
        return [
            ExpertFigures(place.layer, place.count, device, host, place.record, use, *others)
            for place, use, (device, host, *others) in lines
        ]

    @property
    def waiting(self) -> bool:
        """Whether the step now running waits for an expert. From any thread."""
        found = self._found
        return found is not None and found.waits

    def _end(self) -> None:
        """Ends a lookup that was left unfinished, and guesses that no lookup will answer."""
        if self._running is not None:
            self._running.close()
            self._running = None
        self._guesses.clear()
        for shelf in set(self._shelves):
            for tier in shelf.tiers:
                tier.land()

    def _show(self) -> tuple[Table, npt.NDArray[np.int64]]:
        """Copies for `figures`: uses, and numbers [9, places] in the order of its fields."""
        kept = (self._addresses != 0).reshape(len(self._plans), len(self._shelves), -1).sum(2)
        on_device = kept[0] if len(kept) > 1 else np.zeros_like(kept[0])
        guesses = self._guesses
        moves = (self._active, self._evicted, guesses.started, guesses.used, guesses.wasted)
        return self._counts.by_place.copy(), np.stack((on_device, kept[-1], *moves, *self._rooms))

    # ---------------------------------------------------------------- lookups

    def served(self, place: int, chosen: IntArray) -> None:
        """All of `chosen` [tokens, k] were computed from where the fastest tier keeps them."""
        top, counts = self._shelves[place].tiers[0], self._note(place, chosen)
        experts = np.flatnonzero(counts).astype(np.int32)
        top.policy.touch(experts + np.int32(place * len(counts)), counts[experts])
        self._guesses.close(place, counts)
        self._counts.lookup(place, chosen, DEVICE if len(self._plans) > 1 else HOST)

    def waves(self, place: int, chosen: IntArray, ahead: IntArray | None) -> Iterator[ExpertWave]:
        """`chosen` [tokens, k] in waves; `ahead` is a guess at the next place's choice."""
        if self._running is not None:
            self._running.close()
        self._running = self._lookup(place, chosen, ahead)
        return self._running

    def _lookup(self, place: int, chosen: IntArray, ahead: IntArray | None) -> _Running:
        counts, shelf = self._note(place, chosen), self._shelves[place]
        experts = np.flatnonzero(counts).astype(np.int32)
        following = place + 1
        guess = _NONE if ahead is None else self._expected(following, ahead)
        found = Waves(shelf, place * len(counts), experts, counts[experts], self.rates)
        self._found = found
        moved = {DISK: 0, BUS: 0}

        def begun() -> None:
            if len(guess):
                bytes_of = self._guesses.start(self._shelves[following], following, guess)
                moved[DISK], moved[BUS] = bytes_of

        try:
            found.find(guess)
            self._guesses.close(place, counts)
            yield from found.run(begun)
        finally:
            self._found = None
            found.release()
            self.rates = found.rates
            lane = np.zeros(len(counts), np.uint8)
            lane[experts] = found.lane
            entries = self._counts.lookup(place, chosen, lane)
            for way in (BUS, DISK):
                own, every = entries[:, way], entries.sum(1)
                bearers = own if own.any() else every
                if found.nbytes[way]:
                    self._counts.moved(place, way, found.nbytes[way], bearers)
                if found.stalled[way]:
                    self._counts.stalled(place, way, found.stalled[way], bearers)
                if moved[way]:
                    self._counts.moved(following, way, moved[way], every)
            gone = np.array(found.evicted, np.int64) // len(counts)
            self._evicted += np.bincount(gone, minlength=len(self._evicted))

    def _note(self, place: int, chosen: IntArray) -> IntArray:
        """Writes a lookup down; how many entries want each expert, int32 [experts]."""
        counts = np.bincount(chosen.ravel(), minlength=self.layout.experts).astype(np.int32)
        experts = np.flatnonzero(counts).astype(np.int32)
        self._active[place] += len(experts)
        if self._trace is not None:
            try:
                self._trace.note(self._step, place, self._counts.rows, experts, counts[experts])
            except StrataError as error:
                _log.error("%s; nothing more is recorded", error)
                self._trace = None
        return counts

    def _expected(self, place: int, ahead: IntArray) -> IntArray:
        """The keys of a guess, those of most entries first."""
        counts = np.bincount(ahead.ravel(), minlength=self.layout.experts)
        order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        return (order + place * len(counts)).astype(np.int32)
