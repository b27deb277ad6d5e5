"""Opener: takes all that a new lease needs, or nothing; and the pages it needs later.

Knows leases, pages and what a resume copies from. Does not know who waits, nor how what is
computed gets into the trie.

Invariants: whatever is to be copied from is pinned before anything is allocated. A lease is among
the open ones before anything is taken for it, so that its shared pages are seen to be in use.
"""

from __future__ import annotations

from strata.cache.lease import Full, Holder, Lease, Run
from strata.cache.pages import PagePool
from strata.cache.seal import Sealer
from strata.cache.states import Resume, States
from strata.cache.trie import Match, Node
from strata.types import Copy, PageCopy


class Opener:
    """Opens the leases of one cache; `leases`, by the holder's id, is the cache's own."""

    def __init__(
        self, leases: dict[str, Lease], pages: PagePool, states: States, sealer: Sealer
    ) -> None:
        self._leases = leases
        self._pages = pages
        self._states = states
        self._sealer = sealer

    def open(self, holder: Holder, match: Match | None, resume: Resume) -> Run | Full:
        """A lease that begins at `resume`; without a match it shares nothing with anyone."""
        sources = [node for node in (resume.source, resume.state) if node]
        tip = match.node if match else None
        for node in [tip, *sources] if tip else sources:
            self._pages.pin(node)
        answer = self._take(_lease(holder, tip, resume), match, resume, sources)
        for node in sources:
            self._pages.unpin(node)
        if tip is not None and isinstance(answer, Full):
            self._pages.unpin(tip)
        return answer

    def _take(
        self, lease: Lease, match: Match | None, resume: Resume, sources: list[Node]
    ) -> Run | Full:
        holder = lease.holder
        self._leases[holder.id] = lease
        wanted = self._states.wanted(holder, match, resume) if match else []
        granted = self._states.admit(resume, wanted)
        if granted is None:
            del self._leases[holder.id]
            return Full("states")
        lease.hold = granted.hold
        copies = self._private_page(lease, resume, sources)
        if copies is None:
            del self._leases[holder.id]
            self._states.abandon(lease)
            return Full("pages")
        return Run(lease, granted.copies + copies)

    def _private_page(
        self, lease: Lease, resume: Resume, sources: list[Node]
    ) -> tuple[Copy, ...] | None:
        """A page of its own for the block it resumes inside of; None when there is none.

        If nothing else can go, the source may, and its page is then the lease's.
        """
        source = resume.source
        if source is None:
            return ()
        page = self._page()
        if page is None:
            while source in sources:
                sources.remove(source)
                self._pages.unpin(source)
            page = self._pages.take()
        if page is None:
            return None
        lease.pages.append(page)
        lease.owned.add(page)
        assert source.page is not None
        return () if page == source.page else (PageCopy(source.page, page, resume.rows),)

    def extend(self, lease: Lease, planned_len: int) -> bool:
        """See `PrefixCache.reserve`."""
        had = len(lease.pages)
        while len(lease.pages) * self._pages.block < planned_len:
            page = self._page()
            if page is None:
                for extra in lease.pages[had:]:
                    self._pages.give(extra)
                    lease.owned.remove(extra)
                del lease.pages[had:]
                return False
            lease.pages.append(page)
            lease.owned.add(page)
        return True

    def _page(self) -> int | None:
        page = self._pages.take()
        if page is None and self._sealer.merge():
            page = self._pages.take()
        return page


def _lease(holder: Holder, tip: Node | None, resume: Resume) -> Lease:
    pages = [node.page for node in tip.path() if node.page is not None] if tip else []
    pages.reverse()
    return Lease(
        holder=holder,
        pages=pages,
        resume_len=resume.position,
        writable_from=tip.end if tip else 0,
        computed_len=resume.position,
        target=len(holder.tokens),
        tip=tip,
    )
