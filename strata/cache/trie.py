"""BlockTrie: which token prefixes exist, one node per block of tokens.

Knows keys, parents and children. Does not know who frees pages, what a state is worth, or why a
node is claimed. Identity is the path: a key is the block's tokens as bytes, so nothing is hashed
to a digest and nothing can collide.

A node is CLAIMED (`owner` set: a running prefill will compute it; no page) or SEALED (`owner` None:
its page holds its rows). Whole nodes hold one block. Partial leaves hold 1 to block - 1 tokens,
hang beside the whole ones and never have children.

Invariants: nothing splits; the parent of a sealed node is sealed; a claimed node has at most one
child, claimed by the same owner; `match` changes nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strata.cache.lease import Lease

TOKEN = array("i").itemsize  # Bytes of one token in a key.


def encode(tokens: Sequence[int]) -> bytes:
    """Tokens as the bytes that keys are cut from."""
    return array("i", tokens).tobytes()


def common(a: bytes, b: bytes) -> int:
    """Tokens at the start of both keys."""
    size = min(len(a), len(b))
    if a[:size] == b[:size]:
        return size // TOKEN
    at = 0
    while a[at : at + TOKEN] == b[at : at + TOKEN]:
        at += TOKEN
    return at // TOKEN


@dataclass(slots=True)
class Checkpoint:
    """An immutable copy of the state after the tokens of its node's path."""

    slot: int
    hits: int = 0
    age: float = 0.0


@dataclass(slots=True, eq=False)
class Children:
    """The children of one node: all by key, the sealed ones also in the order of their keys.

    In that order the key with the longest part in common with any text is a neighbour of the place
    where the text would go, so `nearest` costs a binary search however many siblings there are.
    """

    by_key: dict[bytes, Node] = field(default_factory=dict)
    order: list[bytes] = field(default_factory=list)
    claimed: list[Node] = field(default_factory=list)
    partials: int = 0  # sealed ones

    def nearest(self, rest: bytes) -> tuple[Node | None, int]:
        """The sealed child with the longest part in common with `rest`, and its tokens."""
        at = bisect_left(self.order, rest)
        return _nearest((self.by_key[key] for key in self.order[max(0, at - 1) : at + 1]), rest)

    def nearest_claimed(self, rest: bytes) -> tuple[Node | None, int]:
        """The same among claimed children: as few as there are running sequences."""
        return _nearest(self.claimed, rest)

    def covers(self, key: bytes) -> bool:
        """Whether a sealed child begins with `key`."""
        at = bisect_left(self.order, key)
        return at < len(self.order) and self.order[at].startswith(key)

    def prefixes(self, rest: bytes) -> Iterator[Node]:
        """Sealed partial children that `rest` begins with, the longest first."""
        if not self.partials:
            return
        for size in range(len(rest), 0, -TOKEN):
            child = self.by_key.get(rest[:size])
            if child is not None and child.owner is None:
                yield child


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """One block, or a part of one, under its parent. `end` counts tokens from the start.

    `hits`, `age` (the clock when last used) and `used` (the same in seconds) are written by whoever
    values pages; `number` by `BlockTrie.name`, 0 for most.
    A root has the namespace as key, no parent, no page, and counts as sealed.
    """

    key: bytes
    parent: Node | None
    owner: Lease | None = None
    children: Children = field(default_factory=Children)
    end: int = 0
    page: int | None = None
    checkpoint: Checkpoint | None = None
    pins: int = 0
    hits: int = 0
    age: float = 0.0
    used: float = 0.0
    number: int = 0

    def __post_init__(self) -> None:
        if self.parent is not None:
            self.end = self.parent.end + len(self.key) // TOKEN

    @property
    def rows(self) -> int:
        """Tokens that this node's page holds."""
        return len(self.key) // TOKEN

    def path(self) -> Iterator[Node]:
        """This node and its ancestors, the root left out, deepest first."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent

    def __repr__(self) -> str:
        name = list(array("i", self.key)) if self.parent else self.key
        return f"Node({name!r}, end={self.end}, page={self.page}, pins={self.pins})"


def _nearest(nodes: Iterable[Node], rest: bytes) -> tuple[Node | None, int]:
    best, rows = None, 0
    for node in nodes:
        shared = common(node.key, rest)
        if shared > rows:
            best, rows = node, shared
    return best, rows


def deepest_checkpoint(node: Node, rest: bytes) -> Node | None:
    """The deepest node with one at or above `node`, or on a leaf below that `rest` begins with."""
    while True:
        for leaf in node.children.prefixes(rest):
            if leaf.checkpoint is not None:
                return leaf
        if node.checkpoint is not None:
            return node
        if node.parent is None:
            return None
        rest, node = node.key, node.parent


@dataclass(frozen=True, slots=True)
class Match:
    """How much of a prompt is known. Lengths in tokens from the start.

    node         deepest sealed whole block of the prompt (the root when none)
    beside       sealed child of `node` with the longest part in common with the `rest`
    rows         that part's length
    pending      deepest claimed node that holds at least one more token of the prompt
    pending_len  the prompt's tokens known through claimed nodes; 0 when none
    rest         key bytes of the prompt after `node`, at most a block, within the limit
    """

    node: Node
    beside: Node | None
    rows: int
    pending: Node | None
    pending_len: int
    rest: bytes

    @property
    def sealed_len(self) -> int:
        """The prompt's tokens whose rows exist."""
        return self.node.end + self.rows


class BlockTrie:
    """One tree per namespace. Who calls `remove` or `unclaim` owns the page and the pins."""

    def __init__(self, block: int) -> None:
        self.block = block
        self.roots: dict[bytes, Node] = {}
        self.sealed = 0
        self.named: dict[int, Node] = {}
        self._numbers = count(1)
        self._size = block * TOKEN

    def root(self, namespace: str) -> Node:
        """The root of a namespace, made when new."""
        key = namespace.encode()
        root = self.roots.get(key)
        if root is None:
            root = self.roots[key] = Node(key, None)
        return root

    def name(self, node: Node) -> int:
        """A number by which `named` finds this node until it is removed."""
        if not node.number:
            node.number = next(self._numbers)
            self.named[node.number] = node
        return node.number

    def find(self, namespace: str) -> Node | None:
        """The root of a namespace, if anything is known there."""
        return self.roots.get(namespace.encode())

    def match(self, root: Node, data: bytes, limit: int) -> Match:
        """Walk the first `limit` tokens of `data` (see `encode`). Changes nothing."""
        size, last = self._size, limit // self.block * self._size
        node, at = root, 0
        while at < last:
            child = node.children.by_key.get(data[at : at + size])
            if child is None or child.owner is not None:
                break
            node, at = child, at + size
        rest = data[at : min(at + size, limit * TOKEN)]
        beside, rows = node.children.nearest(rest)
        pending, pending_len = self._pending(node, data, limit)
        return Match(node, beside, rows, pending, pending_len, rest)

    def _pending(self, node: Node, data: bytes, limit: int) -> tuple[Node | None, int]:
        """Go on from the deepest sealed node through claimed ones."""
        size, last = self._size, limit // self.block * self._size
        at, deepest = node.end * TOKEN, None
        while at < last:
            child = node.children.by_key.get(data[at : at + size])
            if child is None:
                break
            node = deepest = child
            at += size
        rest = data[at : min(at + size, limit * TOKEN)]
        beside, rows = node.children.nearest_claimed(rest)
        if beside is not None:
            return beside, node.end + rows
        return deepest, deepest.end if deepest else 0

    def claim(self, parent: Node, key: bytes, owner: Lease) -> Node:
        """Announce that `owner` will compute this block, or last part of a block."""
        assert key and key not in parent.children.by_key
        assert parent.owner is None or parent.owner is owner
        node = parent.children.by_key[key] = Node(key, parent, owner)
        parent.children.claimed.append(node)
        return node

    def seal(self, parent: Node, key: bytes, page: int) -> Node:
        """The rows of this block exist, in `page`. A claim of it, whose ever, is fulfilled."""
        assert parent.owner is None
        children = parent.children
        node = children.by_key.get(key)
        if node is None:
            node = children.by_key[key] = Node(key, parent)
        else:
            assert node.owner is not None, "sealed twice"
            children.claimed.remove(node)
            node.owner = None
        node.page = page
        insort(children.order, key)
        children.partials += len(key) < self._size
        self.sealed += 1
        return node

    def unclaim(self, node: Node) -> None:
        """The owner will not compute it."""
        assert node.owner is not None and not node.children.by_key and node.parent is not None
        del node.parent.children.by_key[node.key]
        node.parent.children.claimed.remove(node)

    def remove(self, node: Node) -> None:
        """Take a sealed leaf out; its page is the caller's."""
        assert node.owner is None and not node.children.by_key and node.parent is not None
        self.named.pop(node.number, None)
        children = node.parent.children
        del children.by_key[node.key]
        del children.order[bisect_left(children.order, node.key)]
        children.partials -= len(node.key) < self._size
        self.sealed -= 1

    def prune(self, node: Node) -> None:
        """Forget a root that is of no use to anyone any more."""
        if node.parent is None and not node.children.by_key and not node.pins:
            self.roots.pop(node.key, None)
