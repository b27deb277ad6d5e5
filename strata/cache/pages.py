"""PagePool: the free page numbers, and which node must give its page up.

Knows the trie and what the model's kind of state makes a page worth (`States.lost`). Does not
know bytes or sequences.

Invariant: the candidates are exactly the sealed leaves without a pin. Inner nodes, claimed ones,
pinned ones are never evicted; since a lease pins its deepest node, all its path is safe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from strata.cache.policy import Ranking, value
from strata.cache.states import States
from strata.cache.trie import BlockTrie, Node

# Why a page left the trie.
ROOM = "pages: room for another request"
STATELESS = "pages: their state was gone, and rows alone are of no use"
COVERED = "pages: a longer one serves as well"
CLEARED = "pages: the cache was emptied"


class PagePool:
    """`total` pages, each free, in the trie, or owned by a lease."""

    def __init__(
        self, total: int, size: int, trie: BlockTrie, worth: States, now: Callable[[], float]
    ) -> None:
        self.total = total
        self.size = size
        self.block = trie.block
        self.clock = 0.0
        self.gone = Counter(
            dict.fromkeys((ROOM, STATELESS, COVERED, CLEARED), 0)
        )  # pages that left the trie, by why
        self.candidates: Ranking[Node] = Ranking()
        self._free = list(range(total - 1, -1, -1))
        self._trie = trie
        self._worth = worth
        self._now = now

    @property
    def evicted(self) -> int:
        """Pages that were given up for others."""
        return self.gone[ROOM]

    @property
    def free(self) -> int:
        """Pages that nobody has."""
        return len(self._free)

    def take(self) -> int | None:
        """A page for the caller, evicting the least valuable leaf if there is none free."""
        if not self._free:
            lowest = self.candidates.lowest(self._value)
            if lowest is None:
                return None
            node, self.clock = lowest
            self.drop(node, ROOM)
        return self._free.pop()

    def give(self, page: int) -> None:
        """The caller has no more use for this page."""
        self._free.append(page)

    def drop(self, node: Node, why: str) -> None:
        """Take a sealed leaf out of the trie and free its page."""
        assert node.page is not None and node.parent is not None
        self.gone[why] += 1
        self._worth.drop(node, emptied=why is CLEARED)
        self.candidates.discard(node)
        self._trie.remove(node)
        self.offer(node.parent)
        self.give(node.page)

    def clear(self) -> int:
        """Drop every candidate until there is none; the number of pages freed."""
        before = len(self._free)
        while lowest := self.candidates.lowest(self._value):
            self.drop(lowest[0], CLEARED)
        return len(self._free) - before

    def pin(self, node: Node) -> None:
        """Nobody may evict this node until `unpin`."""
        node.pins += 1
        self.candidates.discard(node)

    def unpin(self, node: Node) -> None:
        """End one pin."""
        assert node.pins > 0
        node.pins -= 1
        self.offer(node)

    def offer(self, node: Node) -> None:
        """Something about this node changed: rank it if it is a candidate now.

        A partial leaf that nobody can resume from goes at once.
        """
        if node.parent is None:
            self._trie.prune(node)
        elif node.owner is None and not node.pins and not node.children.by_key:
            if node.end % self.block and not self._worth.lost(node):
                self.drop(node, STATELESS)
            else:
                self.candidates.set(node, self._value(node))

    def touch(self, node: Node, hits: int) -> None:
        """This prefix is used (`hits` 1) or wanted (0): it and its ancestors are young again."""
        clock, now = self.clock, self._now()
        for each in node.path():
            each.age, each.used = clock, now
            each.hits += hits

    def stamp(self, node: Node) -> None:
        """This node is used now."""
        node.age, node.used = self.clock, self._now()

    def _value(self, node: Node) -> float:
        return value(node.age, node.hits, self._worth.lost(node), self.size)
