"""What a running sequence holds in the cache, and the three answers to asking for it.

Knows pages and state slots as numbers, tokens as integers. Does not know tensors, steps or
requests. A `Lease` is changed by the cache alone; the engine reads `pages`, `resume_len`,
`writable_from` and `live`, and hands the lease back.

Invariants: `pages` only grows while the lease is open. `tip` is the one pin. `owned` are the
pages of `pages` that are not in the trie; they are freed when the lease closes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal, Protocol

from strata.cache.trie import Node
from strata.types import Capture, Copy


class Holder(Protocol):
    """What the cache reads of a sequence. It is never written.

    id            unique among the living
    tokens        the prompt and, growing, what was generated
    prompt_len    tokens of the prompt
    namespace     whose prefixes it may share
    cached        whether it may share at all
    anchors       prompt positions worth remembering, on models that keep a state per sequence
    stable_len    tokens of the prompt that the next turn repeats; 0 unknown
    priority      the larger goes first
    """

    id: str
    tokens: list[int]
    prompt_len: int
    namespace: str
    cached: bool
    anchors: tuple[int, ...]
    stable_len: int
    priority: int


@dataclass(slots=True, eq=False)
class StateHold:
    """The state slots of one lease.

    live         written by every step
    base         position of its deepest checkpoint so far
    planned_len  where the step now running ends: what lies below can no longer be captured
    wanted       positions to capture when a step crosses them, with how many wait for each
    tail         the rolling checkpoint: the state at `tail_len` tokens, 0 while not valid
    reserved     captures handed out for the step now running, none of them true yet
    """

    live: int
    base: int
    planned_len: int
    wanted: dict[int, int]
    tail: int | None = None
    tail_len: int = 0
    reserved: tuple[Capture, ...] = ()


@dataclass(slots=True, eq=False)
class Lease:
    """The right of one running sequence to its pages and state slots.

    pages          page of each block of the sequence, append-only
    resume_len     tokens that need no computing: the step starts here
    writable_from  tokens below it are in shared pages: their write slot is -1
    computed_len   tokens whose bytes exist, by the last commit
    target         tokens known when the lease began: the prefill ends here
    """

    holder: Holder
    pages: list[int]
    resume_len: int
    writable_from: int
    computed_len: int
    target: int
    tip: Node | None
    hold: StateHold | None = None
    owned: set[int] = field(default_factory=set)
    claims: deque[Node] = field(default_factory=deque)
    open: bool = True

    @property
    def live(self) -> int | None:
        """State slot that every step of this sequence reads and writes."""
        return self.hold.live if self.hold else None


@dataclass(frozen=True, slots=True)
class Run:
    """Go. `copies` are to be executed at once, before any other call or step."""

    lease: Lease
    copies: tuple[Copy, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Parked: the running sequence `owner` is computing tokens this one shares.

    The holder is handed out by `woken()` once the owner has committed `until` tokens, or
    has stopped. It holds nothing meanwhile.
    """

    owner: str
    until: int


@dataclass(frozen=True, slots=True)
class Full:
    """Nothing could be freed for it now. Ask again after a release; nothing is held."""

    kind: Literal["pages", "states"]


Answer = Run | Wait | Full
