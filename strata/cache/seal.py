"""Sealer: turns what a step has computed into nodes that others may use.

Knows the trie, the pages and a lease's path. Does not know who waits, nor what a state is worth
beyond the verdict `lost`.

Invariants: only rows below `computed_len` are sealed. A page goes into the trie once and is never
written again: its lease writes later rows only, in later pages, and a partial leaf gets a page of
its own while the block it begins is still being written. After each seal the lease's `tip` is its
deepest whole block.
"""

from __future__ import annotations

from collections.abc import Mapping

from strata.cache.lease import Lease
from strata.cache.pages import COVERED, PagePool
from strata.cache.states import States
from strata.cache.trie import TOKEN, BlockTrie, Node, encode
from strata.types import Copy, PageCopy


class Sealer:
    """Seals for all leases of one cache, `leases` being the open ones; holds nothing itself."""

    def __init__(
        self, leases: Mapping[str, Lease], trie: BlockTrie, pages: PagePool, states: States
    ) -> None:
        self._leases = leases
        self._trie = trie
        self._pages = pages
        self._states = states
        self._block = trie.block

    def claim(self, lease: Lease, data: bytes) -> None:
        """Announce every block of the lease's tokens that nobody has announced or sealed."""
        node, size = lease.tip, self._block * TOKEN
        assert node is not None
        for at in range(node.end * TOKEN, lease.target * TOKEN, size):
            key = data[at : at + size]
            if key in node.children.by_key:
                return
            node = self._trie.claim(node, key, lease)
            lease.claims.append(node)

    def blocks(self, lease: Lease) -> None:
        """Seal every whole block below `computed_len`, and move the pin down."""
        first = tip = lease.tip
        assert first is not None and tip is not None
        while tip.end + self._block <= lease.computed_len:
            tip = self._block_after(lease, tip)
        if tip is not first:
            self._pages.pin(tip)
            self._pages.unpin(first)
            lease.tip = tip

    def _block_after(self, lease: Lease, parent: Node) -> Node:
        key = encode(lease.holder.tokens[parent.end : parent.end + self._block])
        child = parent.children.by_key.get(key)
        index = parent.end // self._block
        page = lease.pages[index]
        if child is None or child.owner is not None:
            lease.owned.remove(page)
            return self._seal(parent, key, page)
        self._exchange(lease, child)
        return child

    def _exchange(self, lease: Lease, node: Node) -> bool:
        """A block of the lease's that another had sealed first: give one of its two pages back.

        The node takes the lease's page for its own if nobody reads the one it has. Else both stay:
        a page table that a step may read is never changed.
        """
        index = (node.end - 1) // self._block
        mine, theirs = lease.pages[index], node.page
        assert theirs is not None
        if any(theirs in other.pages[index : index + 1] for other in self._leases.values()):
            return False
        node.page = mine
        lease.owned.remove(mine)
        self._pages.give(theirs)
        return True

    def merge(self) -> bool:
        """Give back all second pages that have become needless; whether there was any.

        For when memory is short: then no sequence pays for a block twice because it once ran
        beside another.
        """
        found = False
        for lease in self._leases.values():
            if lease.owned and lease.tip is not None:
                for node in lease.tip.path():
                    if lease.pages[(node.end - 1) // self._block] in lease.owned:
                        found |= self._exchange(lease, node)
        return found

    def _seal(self, parent: Node, key: bytes, page: int) -> Node:
        claimed = parent.children.by_key.get(key)
        if claimed is not None:  # ours, or another's whom we have overtaken
            assert claimed.owner is not None
            first = claimed.owner.claims.popleft()
            assert first is claimed
        self._pages.candidates.discard(parent)  # may be another's leaf that we have reached
        node = self._trie.seal(parent, key, page)
        self._pages.stamp(node)
        for leaf in list(parent.children.prefixes(key)):
            if leaf is not node and leaf.checkpoint is None:
                self._pages.drop(leaf, COVERED)  # this one serves wherever that one did
        return node

    def end_of_prompt(self, lease: Lease) -> tuple[Copy, ...]:
        """The prompt has just been computed: publish its last, partial block too.

        Its page is still being written by the lease, so the leaf gets a copy, if there is a page
        for it and if rows alone are of use to anyone.
        """
        copies: list[Copy] = []
        if self._states.rows_alone():
            node = self.spot(lease, lease.target, copies, None)
            if node is not None:
                self._pages.offer(node)
        self.unclaim(lease)
        return tuple(copies)

    def unclaim(self, lease: Lease) -> None:
        """What the lease has announced and not sealed, it will not."""
        while lease.claims:
            node = lease.claims.pop()
            self._trie.unclaim(node)
            assert node.parent is not None
            self._pages.offer(node.parent)

    def spot(
        self, lease: Lease, position: int, copies: list[Copy], slot: int | None
    ) -> Node | None:
        """The sealed node that ends at `position` on the lease's path, made if need be.

        None when there is no page for it, or when no `slot` is to be attached and another leaf
        serves as well. A partial leaf takes the lease's own page if that is not needed any more,
        else a new one, and the copy to make is added to `copies`.
        """
        node = lease.tip
        assert node is not None and position <= lease.computed_len
        start = position - position % self._block
        while node.end > start:
            assert node.parent is not None
            node = node.parent
        if position == start:
            return node if position else None
        key = encode(lease.holder.tokens[start:position])
        known = node.children.by_key.get(key)
        if known is not None and known.owner is None:
            return known
        if slot is None and node.children.covers(key):
            return None
        page = self._page_for(lease, position, copies)
        return None if page is None else self._seal(node, key, page)

    def _page_for(self, lease: Lease, position: int, copies: list[Copy]) -> int | None:
        index, rows = divmod(position, self._block)
        mine = lease.pages[index]
        if not lease.open and position == lease.computed_len and mine in lease.owned:
            lease.owned.remove(mine)
            return mine
        page = self._pages.take()
        if page is not None:
            copies.append(PageCopy(mine, page, rows))
        return page
