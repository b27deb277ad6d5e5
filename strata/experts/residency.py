"""Residency: which key is in which slot of one arena, and what each slot is up to.

A slot is free; or coming, while a transfer writes it; or passing: it holds its key for as long as
someone pins it; or kept: it holds its key until it is evicted. Only kept ones have an address in
`addresses`, which kernels read. A slot whose transfer failed holds nothing, and is free again when
nobody pins it. Kept slots, with those that are coming to stay, leave `reserve` slots to the others.

Tells the policy what enters and leaves; never asks it. Knows no layer and no lookup.
Used by the engine thread alone; copiers write the bytes of coming slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from strata.experts.policy import Policy
from strata.memory.arena import SlotArena
from strata.memory.transfer import Transfer
from strata.types import IntArray

_FREE, _COMING, _PASSING, _KEPT, _FAILED = range(5)


class Residency:
    """The slots of one arena.

    addresses   int64 [keys]: where each kept key lies, else 0; other arenas write their own keys
    slot_of     int32 [keys]: the slot of each key that has one, else -1
    """

    def __init__(
        self,
        arena: SlotArena,
        policy: Policy,
        addresses: npt.NDArray[np.int64],
        reserve: int,
    ) -> None:
        assert reserve <= arena.slots
        self.arena, self.policy, self.reserve = arena, policy, reserve
        self.slot_of: IntArray = np.full(len(addresses), -1, np.int32)
        self._addresses, self._begin = addresses, arena.data.data_ptr()
        self._key_of: IntArray = np.full(arena.slots, -1, np.int32)
        self._state = np.full(arena.slots, _FREE, np.uint8)
        self._stays = np.zeros(arena.slots, np.bool_)  # kept, or will be once it is here
        self._pins: IntArray = np.zeros(arena.slots, np.int32)
        self._free = list(range(arena.slots))[::-1]
        self._coming: dict[int, tuple[Transfer, Callable[[], None]]] = {}

    @property
    def free(self) -> int:
        """Slots that hold nothing and wait for nothing."""
        return len(self._free)

    @property
    def spare(self) -> int:
        """Keys that may yet stay before one has to go for each."""
        return self.arena.slots - self.reserve - int(np.count_nonzero(self._stays))

    # ------------------------------------------------------------------ slots

    def take(self, key: int, stays: bool) -> int:
        """A free slot for a key that has none, coming; `expect` must follow."""
        assert self.slot_of[key] < 0
        slot = self._free.pop()
        self._key_of[slot], self.slot_of[key] = key, slot
        self._state[slot], self._stays[slot] = _COMING, stays
        return slot

    def expect(self, slot: int, transfer: Transfer, then: Callable[[], None]) -> None:
        """`transfer` writes the coming slot; `then` is called once it is settled."""
        assert self._state[slot] == _COMING
        self._coming[slot] = transfer, then

    def land(self, slots: Iterable[int] | None = None) -> None:
        """Those of the coming `slots` (by default all) whose transfers are settled have arrived,
        or failed: then their keys are absent.
        """
        for slot in list(self._coming) if slots is None else slots:
            if slot not in self._coming or not self._coming[slot][0].settled:
                continue
            transfer, then = self._coming.pop(slot)
            then()
            if transfer.error is not None:
                self._forget(slot)
                self._state[slot], self._stays[slot] = _FAILED, False
            elif self._stays[slot]:
                self._keep(slot)
            else:
                self._state[slot] = _PASSING
            if not self._pins[slot] and not self._stays[slot]:
                self._clear(slot)

    def stay(self, slot: int) -> None:
        """A key that passes is to be kept."""
        assert self._state[slot] in (_COMING, _PASSING) and not self._stays[slot]
        self._stays[slot] = True
        if self._state[slot] == _PASSING:
            self._keep(slot)

    def evict(self, key: int) -> None:
        """A kept key that nobody pins goes."""
        slot = int(self.slot_of[key])
        assert self._state[slot] == _KEPT and not self._pins[slot]
        self.policy.leave(key)
        self._addresses[key] = 0
        self._stays[slot] = False
        self._clear(slot)

    def pin(self, slots: Sequence[int] | IntArray) -> None:
        """Distinct slots that must hold what they do until they are unpinned."""
        self._pins[slots] += 1

    def unpin(self, slots: Sequence[int] | IntArray) -> None:
        """The opposite of `pin`; what passed or failed, and has no other pin, is free."""
        self._pins[slots] -= 1
        state = self._state[slots]
        over = (self._pins[slots] == 0) & ((state == _PASSING) | (state == _FAILED))
        if over.any():
            for slot in np.asarray(slots)[over].tolist():
                self._clear(slot)

    # ---------------------------------------------------------------- queries

    def ready(self, keys: IntArray) -> npt.NDArray[np.bool_]:
        """Which of the keys can be read where `slot_of` says."""
        slots = self.slot_of[keys]
        state = self._state[slots]
        found: npt.NDArray[np.bool_] = (slots >= 0) & ((state == _KEPT) | (state == _PASSING))
        return found

    def kept(self, keys: IntArray) -> npt.NDArray[np.bool_]:
        """Which of the keys are kept, or will be."""
        slots = self.slot_of[keys]
        return (slots >= 0) & self._stays[slots]

    def transfer(self, slot: int) -> Transfer | None:
        """What writes a slot; None when it is not coming."""
        coming = self._coming.get(slot)
        return None if coming is None else coming[0]

    def transfers(self) -> list[Transfer]:
        """All that write slots."""
        return [transfer for transfer, _ in self._coming.values()]

    def evictable(self) -> IntArray:
        """Keys that `evict` would take."""
        keys: IntArray = self._key_of[(self._state == _KEPT) & (self._pins == 0)]
        return keys

    # --------------------------------------------------------------- changes

    def _keep(self, slot: int) -> None:
        key = int(self._key_of[slot])
        self._state[slot] = _KEPT
        self._addresses[key] = self._begin + slot * self.arena.nbytes
        self.policy.enter(key)

    def _forget(self, slot: int) -> None:
        if self._key_of[slot] >= 0:
            self.slot_of[self._key_of[slot]] = -1
            self._key_of[slot] = -1

    def _clear(self, slot: int) -> None:
        self._forget(slot)
        self._state[slot] = _FREE
        self._free.append(slot)
