"""verify(): what must hold of a prefix cache between any two calls.

Reads everything, changes nothing, and takes time in proportion to what is cached. A breach raises
AssertionError that names it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from strata.cache.checkpoints import Checkpoints
from strata.cache.lease import Holder, Lease
from strata.cache.prefix import PrefixCache
from strata.cache.trie import TOKEN, BlockTrie, Node, encode


def verify(cache: PrefixCache) -> None:
    """Check every structural invariant of the cache."""
    leases = list(cache._leases.values())
    nodes = list(nodes_of(cache._trie))
    _pages(cache, leases, nodes)
    _trie(cache._trie, nodes)
    _claims(leases, nodes)
    _pins(cache, leases, nodes)
    for lease in leases:
        _lease(cache, lease)
    _parked(cache)
    if isinstance(cache._states, Checkpoints):
        _states(cache._states, leases, nodes)


def _once(what: str, total: int, *uses: Iterable[int]) -> None:
    found = sorted(number for use in uses for number in use)
    assert found == list(range(total)), f"each {what} has one owner: {found} of {total}"


def _pages(cache: PrefixCache, leases: list[Lease], nodes: list[Node]) -> None:
    """Every page is free, in one node, or owned by one lease."""
    sealed = [node.page for node in nodes if node.page is not None]
    owned = [page for lease in leases for page in lease.owned]
    _once("page", cache._pages.total, cache._pages._free, sealed, owned)
    assert len(sealed) == cache._trie.sealed


def _states(states: Checkpoints, leases: list[Lease], nodes: list[Node]) -> None:
    """Every slot is free, live, a tail, reserved, or on one node."""
    kept = {node for node in nodes if node.checkpoint}
    slots = [node.checkpoint.slot for node in kept if node.checkpoint]
    holds = [lease.hold for lease in leases if lease.hold]
    assert len(holds) == len(leases), "a lease without a live state"
    live = [hold.live for hold in holds]
    tails = [hold.tail for hold in holds if hold.tail is not None]
    reserved = [c.slot for hold in holds for c in hold.reserved if c.slot != hold.tail]
    _once("state slot", states.total, states._free, slots, live, tails, reserved)
    assert set(states.kept) == kept, "what is ranked is what is kept"


def _trie(trie: BlockTrie, nodes: list[Node]) -> None:
    """Keys, lengths and orders agree; prefixes are closed; partial leaves are leaves."""
    size = trie.block * TOKEN
    for root in trie.roots.values():
        assert root.children.by_key or root.pins, "an empty root"
        assert root.page is None and root.checkpoint is None and root.owner is None
    for node in [*trie.roots.values(), *nodes]:
        children = node.children
        sealed = sorted(key for key, child in children.by_key.items() if child.owner is None)
        assert children.order == sealed, "the order is the sealed keys'"
        assert children.partials == sum(len(key) < size for key in sealed)
        claimed = {child for child in children.by_key.values() if child.owner is not None}
        assert set(children.claimed) == claimed and len(claimed) == len(children.claimed)
    for node in nodes:
        parent = node.parent
        assert parent is not None and parent.children.by_key.get(node.key) is node
        assert TOKEN <= len(node.key) <= size and node.end == parent.end + node.rows
        assert (node.page is None) == (node.owner is not None), "sealed nodes have pages"
        if node.owner is None:
            assert parent.owner is None, "the parent of a sealed node is sealed"
        if node.rows < trie.block:
            assert not node.children.by_key, "a partial leaf has children"
            if node.owner is None and node.checkpoint is None:
                longer = [key for key in parent.children.order if key.startswith(node.key)]
                assert longer == [node.key], "a dead partial leaf"


def _claims(leases: list[Lease], nodes: list[Node]) -> None:
    """Each claimed node is in the private chain of one running owner."""
    for lease in leases:
        above: Node | None = None
        for node in lease.claims:
            assert node.owner is lease and node.checkpoint is None and node.end <= lease.target
            assert node.parent is not None
            assert node.parent is above if above else node.parent.owner is None, "a broken chain"
            above = node
    claimed = sum(node.owner is not None for node in nodes)
    assert claimed == sum(len(lease.claims) for lease in leases), "a claim without an owner"


def _pins(cache: PrefixCache, leases: list[Lease], nodes: list[Node]) -> None:
    """A node is pinned by the leases whose tip it is; candidates are what nobody needs."""
    pins = Counter(lease.tip for lease in leases if lease.tip)
    for node in [*cache._trie.roots.values(), *nodes]:
        assert node.pins == pins.pop(node, 0), f"pins of {node!r}"
    assert not pins, "a tip outside the trie"
    leaves = {n for n in nodes if n.owner is None and not n.children.by_key and not n.pins}
    assert set(cache._pages.candidates) == leaves, "candidates are the unpinned sealed leaves"


def _lease(cache: PrefixCache, lease: Lease) -> None:
    """Its path is its tokens; its pages are the path's or its own."""
    assert lease.open and cache._leases[lease.holder.id] is lease
    assert lease.resume_len <= lease.computed_len <= len(lease.holder.tokens)
    assert lease.resume_len < lease.target, "one token must remain"
    assert len(set(lease.pages)) == len(lease.pages) and lease.owned <= set(lease.pages)
    assert len(lease.pages) * cache.block >= lease.computed_len
    if lease.tip is None:
        assert not lease.holder.cached and lease.owned == set(lease.pages)
        return
    path = list(lease.tip.path())[::-1]
    top = path[0].parent if path else lease.tip
    assert top is cache._trie.find(lease.holder.namespace), "another namespace's node"
    ends = encode(lease.holder.tokens[: lease.tip.end])
    assert b"".join(node.key for node in path) == ends, "a path of other tokens"
    whole = lease.computed_len - lease.computed_len % cache.block
    assert lease.tip.end == max(whole, lease.writable_from), "all that was computed is sealed"
    for index, page in enumerate(lease.pages):
        shared = index < len(path) and path[index].page == page
        assert shared != (page in lease.owned), "a page is the path's or its own"
        assert shared or index * cache.block >= lease.writable_from, "writes to a shared page"


def _parked(cache: PrefixCache) -> None:
    """Who is parked holds nothing and waits for a running owner to get further."""
    for holder, owner, until in parked(cache):
        assert holder.id not in cache._leases, "parked and running"
        assert owner.open and cache._leases.get(owner.holder.id) is owner, "a dead reason"
        assert owner.computed_len < until <= owner.target, "nothing to wait for"
        assert owner.holder.namespace == holder.namespace
        assert owner.holder.priority >= holder.priority


def parked(cache: PrefixCache) -> Iterator[tuple[Holder, Lease, int]]:
    """Each parked holder, whom it waits for and how many tokens."""
    for owner, waiting in cache._parking._waiting.items():
        for holder, until in waiting.values():
            yield holder, owner, until


def nodes_of(trie: BlockTrie) -> Iterator[Node]:
    """Every node but the roots, parents first."""
    stack = list(trie.roots.values())
    while stack:
        node = stack.pop()
        if node.parent is not None:
            yield node
        stack.extend(node.children.by_key.values())
