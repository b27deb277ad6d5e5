"""Checkpoints: copies of the state of models that keep one per sequence, and their slots.

A sequence resumes only where a checkpoint is, at any token. Knows nodes, slots and lengths; does
not know pages or bytes, nor which places are worth a checkpoint (placing.py).

Invariants: a slot is free, live, a tail, reserved for a capture, or on one node. A checkpoint is
attached only after the runner said it was written, and never changes afterwards. A capture is
best effort: without a slot worth taking it is left out, and nobody waits for it in vain.
"""

# ruff: noqa: D102  (what the verdicts mean: `States`)

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from strata.cache.lease import Holder, Lease, StateHold
from strata.cache.placing import CAPTURES, pays, rolling_place, wanted
from strata.cache.policy import Ranking, value
from strata.cache.states import Admission, Resume, States
from strata.cache.trie import TOKEN, Checkpoint, Match, Node, deepest_checkpoint
from strata.types import Capture, StateCopy

# Why a checkpoint was given up.
_LIVE = "states: a slot for a running request"
_BETTER = "states: a slot for a checkpoint worth more"
_PAGE = "states: their page was given up"
_CLEARED = "states: the cache was emptied"


class Checkpoints(States):
    """`total` slots of `size` bytes, for live states and copies of them on nodes.

    `stripped` is told of each node that has lost its checkpoint to another use of the slot.
    """

    def __init__(self, total: int, size: int, block: int, stripped: Callable[[Node], None]) -> None:
        self.gone = Counter(dict.fromkeys((_LIVE, _BETTER, _PAGE, _CLEARED), 0))
        self.total = total
        self.clock = 0.0
        self.kept: Ranking[Node] = Ranking()
        self._free = list(range(total - 1, -1, -1))
        self._tails: dict[int, StateHold] = {}
        self._running = 0  # sequences that hold a live state
        self._size = size
        self._block = block
        self._stripped = stripped

    @property
    def evicted(self) -> int:
        return self.gone[_LIVE] + self.gone[_BETTER]

    @property
    def free(self) -> int:
        """Slots that nobody has."""
        return len(self._free)

    @property
    def cached(self) -> int:
        """Checkpoints on nodes."""
        return len(self.kept)

    # ------------------------------------------------------------ where to resume

    def resume(self, match: Match) -> Resume:
        node = deepest_checkpoint(match.node, match.rest)
        if node is None:
            return Resume()
        source = node if node.parent is match.node else None
        return Resume(node.end, source, node.rows if source else 0, node)

    def rows_alone(self) -> bool:
        return False

    def promise(self, owner: Lease, match: Match, resume: Resume) -> int | None:
        # The owner is asked to capture where the common part ends.
        place = self.ask(owner, match, resume)
        if place is not None and owner.hold is not None:
            owner.hold.wanted[place] += 1
        return place

    def ask(self, owner: Lease, match: Match, resume: Resume) -> int | None:
        hold, wish = owner.hold, match.pending_len
        assert hold is not None
        ahead = [p for p in hold.wanted if hold.planned_len < p <= wish]
        if wish > hold.planned_len and len(ahead) < CAPTURES:
            ahead.append(wish)
        deepest = max(ahead, default=0)
        if not pays(deepest, resume, self._block):
            return None
        hold.wanted.setdefault(deepest, 0)
        return deepest

    def wanted(self, holder: Holder, match: Match, resume: Resume) -> list[int]:
        return wanted(holder, match, resume, self._block)

    # ------------------------------------------------------------ slots

    def admit(self, resume: Resume, wanted: Iterable[int]) -> Admission | None:
        node = resume.state
        if node is None:
            live = self._take_live()
            copies: tuple[StateCopy, ...] = () if live is None else (StateCopy(None, live),)
        else:
            live, copies = self._restore(node)
        if live is None:
            return None
        self._running += 1
        wishes = dict.fromkeys(wanted, 0)
        return Admission(StateHold(live, resume.position, resume.position, wishes), copies)

    def _restore(self, node: Node) -> tuple[int, tuple[StateCopy, ...]]:
        """A live slot filled from this node's checkpoint."""
        source = node.checkpoint
        assert source is not None
        self.kept.discard(node)  # taking the slot must not evict what is to be copied into it
        live = self._take_live()
        if live is None:  # the last slot: the state itself moves
            node.checkpoint = None
            self._stripped(node)
            return source.slot, ()
        source.hits += 1
        source.age = self.clock
        self.kept.set(node, self._value(node))
        return live, (StateCopy(source.slot, live),)

    def _take_live(self) -> int | None:
        """A slot at any price but another's live state or a capture under way."""
        if not self._free:
            lowest = self.kept.lowest(self._value)
            if lowest is not None:
                self._evict(*lowest, _LIVE)
            elif (tail := self._least_tail()) is not None:
                self._rob(tail[0])
        return self._free.pop() if self._free else None

    def _least_tail(self) -> tuple[StateHold, float] | None:
        """The least of the rolling checkpoints that no running step writes, and its worth."""
        idle = [h for s, h in self._tails.items() if all(c.slot != s for c in h.reserved)]
        if not idle:
            return None
        hold = min(idle, key=lambda each: each.tail_len - each.base)
        return hold, value(self.clock, 0, max(0, hold.tail_len - hold.base), self._size)

    def _rob(self, hold: StateHold) -> None:
        """Take a rolling checkpoint from who has it."""
        assert hold.tail is not None
        del self._tails[hold.tail]
        self._free.append(hold.tail)
        hold.tail, hold.tail_len = None, 0

    def _take_for(self, saved: int, hits: int, *, rolling: bool = False) -> int | None:
        """A slot for a checkpoint, unless everything there is is worth more than it would be.

        Rolling checkpoints give way to captures; among themselves they do not take turns. What
        saves less than a block leaves a free slot for each running row.
        """
        if self._free and (saved >= self._block or len(self._free) > self._running):
            return self._free.pop()
        worth = value(self.clock, hits, saved, self._size)
        lowest, tail = self.kept.lowest(self._value), None if rolling else self._least_tail()
        if tail is not None and tail[1] < worth and (lowest is None or tail[1] <= lowest[1]):
            self._rob(tail[0])
        elif lowest is None:
            return None
        elif lowest[1] > worth:  # as if it had come and been the victim itself
            # Not so a rolling one, which asks at every block: all others would grow old of it.
            self.clock = self.clock if rolling else worth
            return None
        else:
            self._evict(*lowest, _BETTER)
        return self._free.pop()

    def _evict(self, node: Node, worth: float, why: str) -> None:
        self.clock = max(self.clock, worth)
        self._free_slot(node, why)
        self._stripped(node)

    # ------------------------------------------------------------ captures

    def captures(self, lease: Lease, row: int, start: int, count: int) -> tuple[Capture, ...]:
        hold = lease.hold
        assert hold is not None
        self._return_reserved(hold)
        end = hold.planned_len = start + count
        taken: list[Capture] = []
        for place in sorted(p for p in hold.wanted if start < p <= end):
            base = taken[-1].position if taken else hold.base
            slot = self._take_for(place - base, hold.wanted[place])
            if slot is not None:
                taken.append(Capture(row, place - start, place, slot))
        hold.reserved = tuple(taken)
        rolling = rolling_place(lease, start, end, self._block)
        if rolling and all(capture.position != rolling for capture in taken):
            self._roll(hold, row, start, rolling)
        return hold.reserved

    def _roll(self, hold: StateHold, row: int, start: int, place: int) -> None:
        if hold.tail is None:
            hold.tail = self._take_for(place - hold.base, 0, rolling=True)
            if hold.tail is None:
                return
            self._tails[hold.tail] = hold
        hold.tail_len = 0  # not true again before the step has been committed
        hold.reserved += (Capture(row, place - start, place, hold.tail),)

    def written(self, lease: Lease, captured: Iterable[Capture]) -> list[tuple[int, int]]:
        hold, done = lease.hold, list(captured)
        assert hold is not None
        assert all(capture in hold.reserved for capture in done), "captured what was not reserved"
        hold.reserved = tuple(capture for capture in hold.reserved if capture not in done)
        self._return_reserved(hold)
        reached = hold.planned_len = lease.computed_len
        hold.wanted = {p: hits for p, hits in hold.wanted.items() if p > reached}
        attach = []
        for capture in done:
            assert capture.position <= reached
            if capture.slot == hold.tail:
                hold.tail_len = capture.position
            else:
                attach.append((capture.position, capture.slot))
                hold.base = max(hold.base, capture.position)
        return attach

    def _return_reserved(self, hold: StateHold) -> None:
        """Free the slots of captures that nobody wrote."""
        self._free.extend(c.slot for c in hold.reserved if c.slot != hold.tail)
        hold.reserved = ()

    # ------------------------------------------------------------ nodes

    def parting(self, lease: Lease) -> list[tuple[int, int | None]]:
        hold = lease.hold
        assert hold is not None
        self._return_reserved(hold)
        lease.hold = None
        self._running -= 1
        left: list[tuple[int, int | None]] = [(lease.computed_len, hold.live)]
        if hold.tail is not None:
            del self._tails[hold.tail]
            left.insert(0, (hold.tail_len, hold.tail))
        return left

    def attach(self, node: Node | None, slot: int | None) -> None:
        assert slot is not None
        if node is None or node.checkpoint is not None:
            self._free.append(slot)
        else:
            node.checkpoint = Checkpoint(slot, 0, self.clock)
            self.kept.set(node, self._value(node))

    def abandon(self, lease: Lease) -> None:
        hold, lease.hold = lease.hold, None
        if hold is None:
            return
        self._running -= 1
        self._return_reserved(hold)
        self._free.append(hold.live)
        if hold.tail is not None:
            del self._tails[hold.tail]
            self._free.append(hold.tail)

    def touch(self, node: Node) -> None:
        if node.checkpoint is not None:
            node.checkpoint.age = self.clock

    def clear(self) -> None:
        for node in list(self.kept):
            self._free_slot(node, _CLEARED)
            self._stripped(node)

    def lost(self, node: Node) -> int:
        """Without a checkpoint there is nothing to resume from: the rows alone save nothing."""
        return self._saved(node) if node.checkpoint else 0

    def drop(self, node: Node, *, emptied: bool = False) -> None:
        self._free_slot(node, _CLEARED if emptied else _PAGE)

    def _free_slot(self, node: Node, why: str) -> None:
        if node.checkpoint is not None:
            self.gone[why] += 1
            self._free.append(node.checkpoint.slot)
            self.kept.discard(node)
            node.checkpoint = None

    def _saved(self, node: Node) -> int:
        """Tokens between this checkpoint and the next shallower one on its path."""
        assert node.parent is not None
        below = deepest_checkpoint(node.parent, node.key[:-TOKEN])
        return node.end - (below.end if below else 0)

    def _value(self, node: Node) -> float:
        assert node.checkpoint is not None
        return value(node.checkpoint.age, node.checkpoint.hits, self._saved(node), self._size)
