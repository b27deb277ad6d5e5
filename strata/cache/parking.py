"""Parking: who waits for whom.

Knows holders, the lease each waits for and the length it waits for. Does not know why waiting
pays. A parked holder has nothing but its place here: no page, no slot, no claim. Only running
sequences are waited for and a running one never waits, so there is no cycle.

Invariant: a holder is parked once, or woken once, or neither.
"""

from __future__ import annotations

from strata.cache.lease import Holder, Lease

WAITS = 8  # How often one request may park before it runs with what there is.


class Parking:
    """Parked and woken holders, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: dict[Lease, dict[str, tuple[Holder, int]]] = {}
        self._owners: dict[str, Lease] = {}
        self._woken: dict[str, Holder] = {}
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def may_park(self, holder: Holder) -> bool:
        """Whether it has not waited too often already."""
        return self._counts.get(holder.id, 0) < WAITS

    def park(self, holder: Holder, owner: Lease, until: int) -> None:
        """Wait until `owner` has committed `until` tokens, or has ended."""
        assert holder.id not in self._owners and holder.id not in self._woken
        self._waiting.setdefault(owner, {})[holder.id] = (holder, until)
        self._owners[holder.id] = owner
        self._counts[holder.id] = self._counts.get(holder.id, 0) + 1

    def leave(self, holder: Holder) -> None:
        """It asks by itself: no longer parked nor woken. How often it waited is remembered."""
        self._woken.pop(holder.id, None)
        owner = self._owners.pop(holder.id, None)
        if owner is not None:
            waiting = self._waiting[owner]
            del waiting[holder.id]
            if not waiting:
                del self._waiting[owner]

    def forget(self, holder: Holder) -> None:
        """It runs, or is gone."""
        self.leave(holder)
        self._counts.pop(holder.id, None)

    def wake(self, owner: Lease, reached: int | None = None) -> None:
        """Wake who waited for `reached` tokens or fewer of this owner; all when None."""
        waiting = self._waiting.get(owner)
        if waiting is None:
            return
        for holder, until in list(waiting.values()):
            if reached is None or until <= reached:
                self.leave(holder)
                self._woken[holder.id] = holder

    def woken(self) -> list[Holder]:
        """Who was woken since the last call."""
        woken = list(self._woken.values())
        self._woken.clear()
        return woken
