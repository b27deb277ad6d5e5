"""What a model keeps per sequence, and so where a sequence can resume.

`States` are the verdicts the cache asks for; it never asks which kind it has. As they stand here,
they are those of models that keep nothing per sequence: rows are all there is, and any row that
exists is a resume point. `checkpoints.Checkpoints` overrides them for recurrent and hybrid models.

Knows nodes and lengths; does not know pages or bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Admission:
    """State slots of a new lease, and the copy that fills its live one."""

    hold: StateHold | None
    copies: tuple[StateCopy, ...]


class States:
    """See the module. `gone` counts checkpoints that were given up since start, by why."""

    total = 0

    def __init__(self) -> None:
        self.gone: Counter[str] = Counter()

    @property
    def evicted(self) -> int:
        """Checkpoints that were given up for others."""
        return 0

    @property
    def free(self) -> int:
        """Slots that nobody has."""
        return 0

    @property
    def cached(self) -> int:
        """Checkpoints on nodes."""
        return 0

    def resume(self, match: Match) -> Resume:
        """The deepest place from which a prompt with this match can go on."""
        return Resume(match.sealed_len, match.beside, match.rows)

    def rows_alone(self) -> bool:
        """Whether rows are of use where there is no checkpoint."""
        return True

    def promise(self, owner: Lease, match: Match, resume: Resume) -> int | None:
        """What `owner` must have committed for a follower to resume deeper; None: never."""
        assert match.pending is not None
        return match.pending.end if match.pending_len > resume.position else None

    def ask(self, owner: Lease, match: Match, resume: Resume) -> int | None:
        """Like `promise`, of someone who does not wait for it."""
        return self.promise(owner, match, resume)

    def wanted(self, holder: Holder, match: Match, resume: Resume) -> list[int]:
        """Positions of the prompt whose state is worth keeping."""
        return []

    def admit(self, resume: Resume, wanted: Iterable[int]) -> Admission | None:
        """Take what a new lease needs; None when it cannot be had."""
        return Admission(None, ())

    def captures(self, lease: Lease, row: int, start: int, count: int) -> tuple[Capture, ...]:
        """See `PrefixCache.captures`."""
        return ()

    def written(self, lease: Lease, captured: Iterable[Capture]) -> list[tuple[int, int]]:
        """(position, slot) of captures to attach; the slots of the others are freed."""
        return []

    def parting(self, lease: Lease) -> list[tuple[int, int | None]]:
        """(position, slot) worth keeping of a lease that ends well."""
        return [(lease.computed_len, None)]

    def attach(self, node: Node | None, slot: int | None) -> None:
        """Make the slot the checkpoint of this node; free it if there is none, or one already."""

    def abandon(self, lease: Lease) -> None:
        """Free what the lease still has."""

    def touch(self, node: Node) -> None:
        """The checkpoint here is wanted."""

    def clear(self) -> None:
        """Drop every checkpoint."""

    def lost(self, node: Node) -> int:
        """Tokens that the next request through this leaf would compute again without its page."""
        return node.rows

    def drop(self, node: Node, *, emptied: bool = False) -> None:
        """The node goes, or the whole cache is emptied: free the checkpoint on it, if any."""
