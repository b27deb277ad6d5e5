"""PrefixCache: which prefix is where, who may use it, who waits for whom.

The one object of this package that the engine sees. It knows holders and leases and decides what
happens in which order; nodes, pages, states and waiting are each another module's. It does not
know tensors: a copy it asks for is two slot numbers.

    acquire -> (reserve, captures, step, commit)* -> release | discard

One thread. `reserve` and `captures` build a step, every other call comes between steps. Copies
are executed by the caller before anything else is written or asked.

Invariants (all of them: `tests/sim/invariants.py`): a parked holder has nothing; nothing is shared
before the step that wrote it has been committed; whatever is to be copied from is pinned before
anything is allocated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from strata.cache.checkpoints import Checkpoints
from strata.cache.lease import Answer, Holder, Lease, Run, Wait
from strata.cache.opening import Opener
from strata.cache.pages import PagePool
from strata.cache.parking import Parking
from strata.cache.seal import Sealer
from strata.cache.states import Resume, States
from strata.cache.survey import prefix, survey
from strata.cache.trie import BlockTrie, Match, encode
from strata.figures import CacheFigures, Prefix, Survey
from strata.types import Capture, Copy


class PrefixCache:
    """See the module."""

    def __init__(
        self,
        pages: int,
        block: int = 16,
        states: int | None = None,
        page_bytes: int = 1,
        state_bytes: int = 1,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`pages` of `block` tokens. `states` slots, or None: the model keeps no state per
        sequence and any token is a resume point. The sizes are only weighed and reported;
        `now` in seconds is only reported.
        """
        assert pages > 0 and block > 0 and (states is None or states > 0)
        self.block = block
        self._trie = BlockTrie(block)
        self._states = States()
        if states is not None:
            self._states = Checkpoints(
                states, state_bytes, block, lambda node: self._pages.offer(node)
            )
        self._pages = PagePool(pages, page_bytes, self._trie, self._states, now)
        self._now = now
        self._leases: dict[str, Lease] = {}
        self._sealer = Sealer(self._leases, self._trie, self._pages, self._states)
        self._opener = Opener(self._leases, self._pages, self._states, self._sealer)
        self._parking = Parking()
        self._sizes = page_bytes, state_bytes
        self._lookups = self._hits = self._hit_tokens = self._queried = 0

    # ------------------------------------------------------------ admission

    def acquire(self, holder: Holder) -> Answer:
        """Ask to run. Run(lease, copies), Wait (parked, see `woken`) or Full (ask again later).

        Only tokens[lease.resume_len:] have to be computed, and at least one token always is.
        A preempted sequence asks again like any other, with what it had generated in `tokens`.
        """
        assert holder.id not in self._leases and len(holder.tokens) > 0
        self._parking.leave(holder)
        if not holder.cached:
            return self._opener.open(holder, None, Resume())
        data = encode(holder.tokens)
        root = self._trie.root(holder.namespace)
        match = self._trie.match(root, data, len(holder.tokens) - 1)
        resume = self._states.resume(match)
        answer = self._wait(holder, match, resume) or self._opener.open(holder, match, resume)
        if isinstance(answer, Run):
            self._parking.forget(holder)
            self._sealer.claim(answer.lease, data)
            self._count(match, resume, len(holder.tokens))
        return answer

    def _wait(self, holder: Holder, match: Match, resume: Resume) -> Wait | None:
        """Park if a running sequence will have made more of this prompt than there is now."""
        owner = match.pending.owner if match.pending else None
        if owner is None or not self._parking.may_park(holder):
            return None
        if owner.holder.priority < holder.priority:  # it may itself be kept waiting
            return None
        until = self._states.promise(owner, match, resume)
        if until is None:
            return None
        self._parking.park(holder, owner, until)
        return Wait(owner.holder.id, until)

    def _count(self, match: Match, resume: Resume, tokens: int) -> None:
        """A prefix has been used."""
        self._lookups += 1
        self._queried += tokens
        self._hits += resume.position > 0
        self._hit_tokens += resume.position
        self._pages.touch(match.node, 1)
        if match.beside is not None and match.rows:
            match.beside.hits += 1
            self._pages.stamp(match.beside)

    # ------------------------------------------------------------ steps

    def reserve(self, lease: Lease, planned_len: int) -> bool:
        """Make `lease.pages` cover every token < planned_len, evicting if it must.

        False when that is impossible now; the lease is then as it was.
        """
        assert lease.open
        return self._opener.extend(lease, planned_len)

    def captures(self, lease: Lease, row: int, start: int, count: int) -> tuple[Capture, ...]:
        """State captures to take in a step that computes tokens [start, start + count) as `row`.

        Slots are reserved until the commit of that step; () for models without state.
        """
        assert lease.open and start == lease.computed_len
        return self._states.captures(lease, row, start, count)

    def commit(
        self, lease: Lease, computed_len: int, captured: Iterable[Capture] = ()
    ) -> tuple[Copy, ...]:
        """A step has succeeded: tokens < computed_len have their bytes. Seal, attach, wake.

        `captured` are the captures really written; the others' slots are freed. holder.tokens
        must hold at least computed_len tokens.
        """
        before, tip = lease.computed_len, lease.tip
        assert lease.open and before <= computed_len <= len(lease.holder.tokens)
        lease.computed_len = computed_len
        self._parking.wake(lease, computed_len)
        written = self._states.written(lease, captured)
        if tip is None:
            return ()
        prompt_ends = before < lease.target <= computed_len
        if not written and not prompt_ends and computed_len < tip.end + self.block:
            return ()
        self._sealer.blocks(lease)
        copies: list[Copy] = []
        for position, slot in written:
            self._attach(lease, position, slot, copies)
        if prompt_ends:
            copies += self._sealer.end_of_prompt(lease)
        return tuple(copies)

    def _attach(self, lease: Lease, position: int, slot: int | None, copies: list[Copy]) -> None:
        node = self._sealer.spot(lease, position, copies, slot)
        self._states.attach(node, slot)
        if node is not None:
            self._pages.offer(node)

    # ------------------------------------------------------------ the end of a lease

    def release(self, lease: Lease, computed_len: int) -> tuple[Copy, ...]:
        """The sequence finished, was cancelled or preempted (between steps). Idempotent.

        What was computed stays reusable to the token. Copies are to be executed at once.
        """
        if not lease.open:
            return ()
        copies = list(self.commit(lease, computed_len))
        lease.open = False
        if lease.tip is not None:
            for position, slot in self._states.parting(lease):
                self._attach(lease, position, slot, copies)
            self._pages.touch(lease.tip, 0)
        self._close(lease)
        return tuple(copies)

    def discard(self, lease: Lease) -> None:
        """Its step failed: free everything that is not sealed, publish nothing. Idempotent."""
        if lease.open:
            lease.open = False
            self._close(lease)

    def _close(self, lease: Lease) -> None:
        del self._leases[lease.holder.id]
        self._states.abandon(lease)
        self._sealer.unclaim(lease)
        self._parking.wake(lease)
        for page in lease.owned:
            self._pages.give(page)
        lease.owned.clear()
        lease.pages.clear()
        if lease.tip is not None:
            self._pages.unpin(lease.tip)
            lease.tip = None

    # ------------------------------------------------------------ those who wait

    def woken(self) -> list[Holder]:
        """Parked holders whose reason has ended, in the order of waking: acquire them again."""
        return self._parking.woken()

    def forget(self, holder: Holder) -> None:
        """A queued, parked or woken holder will not ask again. Harmless when unknown."""
        self._parking.forget(holder)

    def touch(self, holder: Holder) -> None:
        """A queued request wants this prefix: make it young again. Harmless to repeat.

        And whoever is reading a prefix of it is asked to leave a checkpoint where the two part:
        so it is worth repeating when another sequence has begun to run.
        """
        root = self._trie.find(holder.namespace)
        if root is None or not holder.cached:
            return
        match = self._trie.match(root, encode(holder.tokens), len(holder.tokens) - 1)
        resume = self._states.resume(match)
        self._pages.touch(match.node, 0)
        if match.beside is not None:
            self._pages.stamp(match.beside)
        if resume.state is not None:
            self._states.touch(resume.state)
        if match.pending is not None and match.pending.owner is not None:
            self._states.ask(match.pending.owner, match, resume)

    # ------------------------------------------------------------ the whole

    def clear(self) -> int:
        """Drop everything that no running sequence uses; the number of pages freed.

        The checkpoints of pages that one does use go too: it has its own state.
        """
        freed = self._pages.clear()
        self._states.clear()
        return freed

    def survey(self, depth: int, limit: int) -> Survey:
        """What is cached: at most `limit` stretches, the last used first, `depth` branches deep."""
        return survey(self._trie, self._leases.values(), self._sizes, self._now(), depth, limit)

    def prefix(self, number: int, namespace: str) -> Prefix | None:
        """The tokens of a stretch that a survey told of; None: it is gone, or another's."""
        return prefix(self._trie, number, namespace)

    def stats(self) -> CacheFigures:
        """Counters, in constant time."""
        pages, states = self._pages, self._states
        return CacheFigures(
            block=self.block,
            pages_total=pages.total,
            pages_free=pages.free,
            pages_cached=self._trie.sealed,
            page_bytes=pages.size,
            states_total=states.total,
            states_free=states.free,
            states_cached=states.cached,
            state_bytes=self._sizes[1],
            running=len(self._leases),
            parked=len(self._parking),
            lookups=self._lookups,
            hits=self._hits,
            hit_tokens=self._hit_tokens,
            queried_tokens=self._queried,
            gone={**pages.gone, **states.gone},
            evicted_pages=pages.evicted,
            evicted_states=states.evicted,
        )
