"""What a model keeps per sequence, and so where a sequence can resume.

`States` are the verdicts the cache asks for; it never asks which kind it has. `Stateless` speaks
for models that keep nothing per sequence: any row that exists is a resume point. Its counterpart
for recurrent and hybrid models is `checkpoints.Checkpoints`.

Knows nodes and lengths; does not know pages or bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from strata.cache.lease import Holder, Lease, StateHold
from strata.cache.trie import Match, Node
from strata.types import Capture, StateCopy


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a sequence may start: `position` tokens are done.

    source, rows   sealed node whose first rows are to be copied into a private page, or None
    state          node whose checkpoint is to be restored, or None
    """

    position: int = 0
    source: Node | None = None
    rows: int = 0
    state: Node | None = None


class States(Protocol):
    """The verdicts that depend on what a model keeps per sequence."""

    @property
    def total(self) -> int:
        """All slots."""
        ...

    @property
    def free(self) -> int:
        """Slots that nobody has."""
        ...

    @property
    def cached(self) -> int:
        """Checkpoints on nodes."""
        ...

    @property
    def evicted(self) -> int:
        """Checkpoints evicted since start."""
        ...

    def resume(self, match: Match) -> Resume:
        """The deepest place from which a prompt with this match can go on."""
        ...

    def rows_alone(self) -> bool:
        """Whether rows are of use where there is no checkpoint."""
        ...

    def promise(self, owner: Lease, match: Match, resume: Resume) -> int | None:
        """What `owner` must have committed for a follower to resume deeper; None: never."""
        ...

    def ask(self, owner: Lease, match: Match, resume: Resume) -> int | None:
        """Like `promise`, of someone who does not wait for it."""
        ...

    def wanted(self, holder: Holder, match: Match, resume: Resume) -> list[int]:
        """Positions of the prompt whose state is worth keeping."""
        ...

    def admit(self, resume: Resume, wanted: Iterable[int]) -> Admission | None:
        """Take what a new lease needs; None when it cannot be had."""
        ...

    def captures(self, lease: Lease, row: int, start: int, count: int) -> tuple[Capture, ...]:
        """See `PrefixCache.captures`."""
        ...

    def written(self, lease: Lease, captured: Iterable[Capture]) -> list[tuple[int, int]]:
        """(position, slot) of captures to attach; the slots of the others are freed."""
        ...

    def parting(self, lease: Lease) -> list[tuple[int, int | None]]:
        """(position, slot) worth keeping of a lease that ends well."""
        ...

    def attach(self, node: Node | None, slot: int | None) -> None:
        """Make the slot the checkpoint of this node; free it if there is none, or one already."""
        ...

    def abandon(self, lease: Lease) -> None:
        """Free what the lease still has."""
        ...

    def touch(self, node: Node) -> None:
        """The checkpoint here is wanted."""
        ...

    def clear(self) -> None:
        """Drop every checkpoint."""
        ...

    def lost(self, node: Node) -> int:
        """See `pages.PageWorth`."""
        ...

    def drop(self, node: Node) -> None:
        """See `pages.PageWorth`."""
        ...


@dataclass(frozen=True, slots=True)
class Admission:
    """State slots of a new lease, and the copy that fills its live one."""

    hold: StateHold | None
    copies: tuple[StateCopy, ...]


class Stateless:
    """Rows are all there is: what is sealed can be resumed from, to the token."""

    total = free = cached = evicted = 0

    def resume(self, match: Match) -> Resume:
        """See `States`."""
        return Resume(match.sealed_len, match.beside, match.rows)

    def rows_alone(self) -> bool:
        """See `States`."""
        return True

    def promise(self, owner: Lease, match: Match, resume: Resume) -> int | None:
        """See `States`: the owner is asked to capture where the common part ends."""
        assert match.pending is not None
        return match.pending.end if match.pending_len > resume.position else None

    def ask(self, owner: Lease, match: Match, resume: Resume) -> int | None:
        """See `States`."""
        return self.promise(owner, match, resume)

    def wanted(self, holder: Holder, match: Match, resume: Resume) -> list[int]:
        """See `States`: at most CAPTURES, by value."""
        return []

    def admit(self, resume: Resume, wanted: Iterable[int]) -> Admission | None:
        """See `States`."""
        return Admission(None, ())

    def captures(self, lease: Lease, row: int, start: int, count: int) -> tuple[Capture, ...]:
        """See `PrefixCache.captures`."""
        return ()

    def written(self, lease: Lease, captured: Iterable[Capture]) -> list[tuple[int, int]]:
        """See `States`."""
        return []

    def parting(self, lease: Lease) -> list[tuple[int, int | None]]:
        """See `States`."""
        return [(lease.computed_len, None)]

    def attach(self, node: Node | None, slot: int | None) -> None:
        """See `States`."""

    def abandon(self, lease: Lease) -> None:
        """See `States`."""

    def touch(self, node: Node) -> None:
        """See `States`."""

    def clear(self) -> None:
        """See `States`."""

    def lost(self, node: Node) -> int:
        """See `pages.PageWorth`."""
        return node.rows

    def drop(self, node: Node) -> None:
        """See `pages.PageWorth`."""
