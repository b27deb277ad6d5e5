"""The trie: keys, matches to the token, claims, seals."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from sim.invariants import nodes_of

from strata.cache.trie import TOKEN, BlockTrie, Node, common, encode

BLOCK = 4
OWNER: Any = object()


def grow(trie: BlockTrie, tokens: Sequence[int], namespace: str = "", page: int = 0) -> Node:
    """Seal these tokens block by block, the rest as a partial leaf."""
    node = trie.root(namespace)
    for at in range(0, len(tokens), BLOCK):
        key = encode(tokens[at : at + BLOCK])
        node = node.children.by_key.get(key) or trie.seal(node, key, page + at)
    return node


def claim(trie: BlockTrie, tokens: Sequence[int]) -> Node:
    """Claim what of these tokens is neither sealed nor claimed."""
    node = trie.root("")
    for at in range(0, len(tokens), BLOCK):
        key = encode(tokens[at : at + BLOCK])
        node = node.children.by_key.get(key) or trie.claim(node, key, OWNER)
    return node


def matched(trie: BlockTrie, tokens: Sequence[int]) -> tuple[int, int, int]:
    """(whole tokens sealed, rows beside, tokens known through claims)."""
    match = trie.match(trie.root(""), encode(tokens), len(tokens))
    return match.node.end, match.rows, match.pending_len


@pytest.mark.parametrize(
    ("a", "b", "shared"),
    [
        ([1, 2, 3], [1, 2, 3], 3),
        ([1, 2, 3], [1, 2, 4], 2),
        ([1], [2], 0),
        ([1, 2], [1, 2, 3, 4], 2),
        ([], [1], 0),
        ([256], [0], 0),  # bytes in common are not tokens in common
        ([1, 256], [1, 512], 1),
        ([70000, 5], [70000, 6], 1),
    ],
)
def test_common(a: list[int], b: list[int], shared: int) -> None:
    assert common(encode(a), encode(b)) == common(encode(b), encode(a)) == shared


SEALED = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    ("tokens", "whole", "rows"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 8, 2),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], 8, 2),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 11], 8, 1),
        ([1, 2, 3, 4, 5, 6, 7, 8, 0, 10], 8, 0),
        ([1, 2, 3, 4, 5, 6, 7, 8], 8, 0),
        ([1, 2, 3, 4, 5, 6, 7, 9], 4, 3),  # part of a whole block
        ([1, 2, 3, 4, 5, 6, 7], 4, 3),
        ([1, 2, 3], 0, 3),
        ([2], 0, 0),
        ([], 0, 0),
        ([1, 2, 3, 9, 5, 6, 7, 8], 0, 3),  # what comes after a difference does not count
    ],
)
def test_match_to_the_token(tokens: list[int], whole: int, rows: int) -> None:
    trie = BlockTrie(BLOCK)
    grow(trie, SEALED)
    assert matched(trie, tokens) == (whole, rows, 0)


def test_match_keeps_to_its_limit() -> None:
    trie = BlockTrie(BLOCK)
    grow(trie, SEALED)
    for limit in range(len(SEALED) + 1):
        match = trie.match(trie.root(""), encode(SEALED), limit)
        assert match.sealed_len == limit
        assert match.rest == encode(SEALED[match.node.end : min(limit, match.node.end + BLOCK)])


def test_the_longest_part_among_siblings_of_both_kinds() -> None:
    trie = BlockTrie(BLOCK)
    grow(trie, [1, 2, 9, 9])
    grow(trie, [1, 2, 3])
    grow(trie, [1, 7])
    match = trie.match(trie.root(""), encode([1, 2, 3, 4]), 4)
    assert match.rows == 3 and match.beside is not None and match.beside.rows == 3
    match = trie.match(trie.root(""), encode([1, 2, 9, 4]), 4)
    assert match.rows == 3 and match.beside is not None and match.beside.rows == 4


@pytest.mark.parametrize(
    ("tokens", "pending_len", "end"),
    [
        ([1, 2, 3, 4, 5, 6], 6, 6),
        ([1, 2, 3, 4, 5, 6, 7], 6, 6),  # the claimed last part of a block
        ([1, 2, 3, 4, 5, 9], 5, 6),
        ([1, 2, 3, 4, 9], 4, 4),
        ([1, 2, 3, 4], 4, 4),
        ([1, 9], 1, 4),
        ([9], 0, None),
    ],
)
def test_pending_goes_on_through_claims(
    tokens: list[int], pending_len: int, end: int | None
) -> None:
    trie = BlockTrie(BLOCK)
    claim(trie, [1, 2, 3, 4, 5, 6])
    match = trie.match(trie.root(""), encode(tokens), len(tokens))
    assert match.sealed_len == 0 and match.pending_len == pending_len
    assert (match.pending.end if match.pending else None) == end


def test_the_nearest_of_several_claims_is_the_one_to_wait_for() -> None:
    trie = BlockTrie(BLOCK)
    for text in ([1, 2, 9, 9], [1, 2, 3, 9], [1, 2, 3, 4], [1, 8]):
        claim(trie, text)
    match = trie.match(trie.root(""), encode([1, 2, 3, 4]), 3)
    assert match.pending_len == 3
    match = trie.match(trie.root(""), encode([1, 2, 3, 9, 9]), 5)
    assert match.pending_len == 4 and match.pending is not None
    assert match.pending.key == encode([1, 2, 3, 9])
    match = trie.match(trie.root(""), encode([1, 8, 8]), 3)
    assert match.pending_len == 2 and match.pending is not None and match.pending.end == 2


def test_claimed_rows_are_not_sealed_rows() -> None:
    trie = BlockTrie(BLOCK)
    grow(trie, [1, 2, 3, 4, 5, 6])
    claim(trie, [1, 2, 3, 4, 5, 6, 7, 8])
    match = trie.match(trie.root(""), encode([1, 2, 3, 4, 5, 6, 7, 8]), 7)
    assert (match.node.end, match.rows, match.pending_len) == (4, 2, 7)


def test_match_changes_nothing() -> None:
    trie = BlockTrie(BLOCK)
    grow(trie, SEALED)
    claim(trie, [1, 2, 3, 4, 9, 9, 9, 9, 9])

    def picture() -> list[tuple[object, ...]]:
        return [
            (n.key, n.end, n.page, n.pins, n.hits, n.age, n.owner, tuple(n.children.order))
            for n in nodes_of(trie)
        ]

    before = picture()
    for text in (SEALED, [1, 2, 3, 4, 9, 9, 9, 8], [7], []):
        trie.match(trie.root(""), encode(text), len(text))
    assert picture() == before
    assert trie.find("other") is None


def test_seal_fulfils_a_claim_in_place() -> None:
    trie = BlockTrie(BLOCK)
    node = claim(trie, [1, 2, 3, 4])
    below = trie.claim(node, encode([5, 6]), OWNER)
    assert trie.seal(trie.root(""), node.key, 7) is node
    assert node.page == 7 and node.owner is None and below.parent is node
    assert trie.sealed == 1 and trie.root("").children.claimed == []
    with pytest.raises(AssertionError):
        trie.seal(trie.root(""), node.key, 8)


def test_nothing_without_tokens_is_ever_a_node() -> None:
    trie = BlockTrie(BLOCK)
    with pytest.raises(AssertionError):
        trie.claim(trie.root(""), b"", OWNER)
    with pytest.raises(AssertionError):
        trie.seal(claim(trie, [1, 2, 3, 4]), encode([5]), 0)  # below what is not sealed


def test_covers_and_prefixes() -> None:
    trie = BlockTrie(BLOCK)
    for tokens in ([1, 2, 3, 4], [1], [1, 5], [2, 2, 2]):
        grow(trie, tokens)
    children = trie.root("").children
    assert children.partials == 3
    assert children.covers(encode([1, 2])) and children.covers(encode([2, 2, 2]))
    assert not children.covers(encode([1, 3])) and not children.covers(encode([2, 2, 2, 2]))
    assert [n.rows for n in children.prefixes(encode([1, 2, 3, 4]))] == [4, 1]
    assert [n.rows for n in children.prefixes(encode([1, 5, 5]))] == [2, 1]
    assert [n.rows for n in children.prefixes(encode([3]))] == []


def test_a_root_goes_when_it_is_of_no_use() -> None:
    trie = BlockTrie(BLOCK)
    leaf = grow(trie, [1, 2], "tenant")
    root = trie.root("tenant")
    trie.prune(root)
    assert trie.find("tenant") is root
    trie.remove(leaf)
    root.pins = 1
    trie.prune(root)
    assert trie.find("tenant") is root
    root.pins = 0
    trie.prune(root)
    assert trie.find("tenant") is None


def test_against_brute_force() -> None:
    """Any set of texts, sealed or claimed: the match is the longest common prefix."""
    rng = random.Random(3)
    for _ in range(300):
        trie, sealed = BlockTrie(BLOCK), []
        for _ in range(rng.randrange(1, 12)):
            text = [rng.randrange(3) for _ in range(rng.randrange(1, 14))]
            grow(trie, text)
            sealed.append(text)
        query = [rng.randrange(3) for _ in range(rng.randrange(14))]
        whole, rows, pending = matched(trie, query)
        longest = max(common(encode(query), encode(text)) for text in sealed)
        assert whole + rows == longest and pending == 0


def test_keys_are_whole_tokens() -> None:
    assert len(encode([1, 2, 3])) == 3 * TOKEN
    assert encode([2**31 - 1]) != encode([2**31 - 2])
