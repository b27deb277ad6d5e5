"""Survey: what is cached, told as a tree of stretches, and the tokens of one of them.

A stretch is what lies between two branches, or between one and an end: blocks that have one sealed
child each. Changes nothing but the numbers that name stretches. The walk is bounded, since nothing
else runs meanwhile: those used last come first, so what is left out is what is old.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count

from strata.cache.lease import Lease
from strata.cache.trie import BlockTrie, Node
from strata.figures import Prefix, Stretch, Survey

_MOST = 20_000  # pages walked over: some milliseconds


def survey(
    trie: BlockTrie,
    leases: Iterable[Lease],
    sizes: tuple[int, int],
    now: float,
    depth: int,
    limit: int,
) -> Survey:
    """At most `limit` stretches, at most `depth` deep. `sizes` are the bytes of a page and a state,
    `now` the time that nodes are stamped with.
    """
    running = Counter(node for lease in leases if lease.tip for node in lease.tip.path())
    found: list[Stretch] = []
    pages, order = 0, count()
    heap: list[tuple[float, int, Node, int | None, int, str]] = []

    def push(above: Node, parent: int | None, level: int, namespace: str) -> None:
        for key in above.children.order:
            head = above.children.by_key[key]
            heappush(heap, (-head.used, next(order), head, parent, level, namespace))

    for root in trie.roots.values():
        push(root, None, 1, root.key.decode())
    while heap and len(found) < limit and pages < _MOST:
        _, _, head, parent, level, namespace = heappop(heap)
        nodes = _stretch(head)
        states = sum(node.checkpoint is not None for node in nodes)
        pages += len(nodes)
        number = trie.name(head)
        last, nbytes = nodes[-1], len(nodes) * sizes[0] + states * sizes[1]
        tokens = sum(node.rows for node in nodes)
        stretch = Stretch(
            number, parent, namespace, last.end, tokens, nbytes, states, head.hits,
            max(0.0, now - head.used), running[head],
        )  # fmt: skip
        found.append(stretch)
        if level < depth:
            push(last, number, level + 1, namespace)
    return Survey(tuple(found), pages, trie.sealed)


def prefix(trie: BlockTrie, number: int, namespace: str) -> Prefix | None:
    """What a stretch and those above it say; None: it is gone, or another namespace's."""
    head = trie.named.get(number)
    if head is None:
        return None
    nodes = _stretch(head)
    *above, root = _up(head)
    if root.key != namespace.encode():
        return None
    keys = [node.key for node in reversed(above)] + [node.key for node in nodes]
    tokens = array("i", b"".join(keys))
    return Prefix(tuple(tokens), sum(node.rows for node in nodes))


def _stretch(head: Node) -> list[Node]:
    """It and those below until there is a branch or an end."""
    nodes = [head]
    while len(order := nodes[-1].children.order) == 1:
        nodes.append(nodes[-1].children.by_key[order[0]])
    return nodes


def _up(node: Node) -> list[Node]:
    """All above it, the root last."""
    above = []
    while node.parent is not None:
        node = node.parent
        above.append(node)
    return above
