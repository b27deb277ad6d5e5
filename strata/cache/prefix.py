"""PrefixCache: which prefix is where, who may use it, who waits for whom. (bodies follow)"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from strata.cache.lease import Answer, Full, Holder, Lease, Run, Wait
from strata.types import Capture, Copy

__all__ = ["Answer", "CacheStats", "Full", "Holder", "Lease", "PrefixCache", "Run", "Wait"]


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counts at one moment; the last group are totals since start."""

    pages_total: int
    pages_free: int
    pages_cached: int  # in the trie, whether a lease uses them or not
    page_bytes: int
    states_total: int
    states_free: int
    states_cached: int  # checkpoints
    state_bytes: int
    running: int
    parked: int
    lookups: int
    hits: int
    hit_tokens: int
    waits: int
    evicted_pages: int
    evicted_states: int


class PrefixCache:
    """The interface of the cache. One thread; every call is between two steps but for
    `reserve` and `captures`, which build the next one.

    The life of a lease:  acquire -> (reserve, captures, step, commit)* -> release | discard
    """

    def __init__(
        self,
        pages: int,
        block: int = 16,
        states: int | None = None,
        page_bytes: int = 1,
        state_bytes: int = 1,
    ) -> None:
        """`states` None: the model keeps no state per sequence, any token is a resume point."""
        raise NotImplementedError

    def acquire(self, holder: Holder) -> Answer:
        """Ask to run. Run(lease, copies), Wait (parked, see `woken`) or Full (ask again later).

        Only the unshared rest has to be computed: tokens[lease.resume_len:]. At least one token
        always remains. Called again for a preempted sequence, whose tokens then include what
        it had generated.
        """
        raise NotImplementedError

    def reserve(self, lease: Lease, planned_len: int) -> bool:
        """Make `lease.pages` cover every token < planned_len, evicting if it must.

        False when that is impossible now; the lease is then as it was.
        """
        raise NotImplementedError

    def captures(self, lease: Lease, row: int, start: int, count: int) -> tuple[Capture, ...]:
        """State captures to take in a step that computes tokens [start, start + count) as `row`.

        Slots are reserved until the commit of that step; () for models without state.
        """
        raise NotImplementedError

    def commit(
        self, lease: Lease, computed_len: int, captured: Iterable[Capture] = ()
    ) -> tuple[Copy, ...]:
        """A step has succeeded: tokens < computed_len have their bytes. Seal, attach, wake.

        `captured` are the captures really written; the others' slots are freed. The copies are
        to be executed at once. holder.tokens must hold at least computed_len tokens.
        """
        raise NotImplementedError

    def release(self, lease: Lease, computed_len: int) -> tuple[Copy, ...]:
        """The sequence finished, was cancelled or preempted (between steps). Idempotent.

        What was computed stays reusable to the token. Copies are to be executed at once.
        """
        raise NotImplementedError

    def discard(self, lease: Lease) -> None:
        """Its step failed: free everything that is not sealed, publish nothing. Idempotent."""
        raise NotImplementedError

    def woken(self) -> list[Holder]:
        """Parked holders whose reason has ended, in order of parking: acquire them again."""
        raise NotImplementedError

    def forget(self, holder: Holder) -> None:
        """A queued, parked or woken holder will not ask again. Harmless when unknown."""
        raise NotImplementedError

    def touch(self, holder: Holder) -> None:
        """A queued request wants this prefix: make it young again. Harmless to repeat."""
        raise NotImplementedError

    def clear(self) -> int:
        """Drop everything that no running sequence uses; the number of pages freed."""
        raise NotImplementedError

    def stats(self) -> CacheStats:
        """Counters, in constant time."""
        raise NotImplementedError
