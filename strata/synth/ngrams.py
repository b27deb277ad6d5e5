"""The constants of hashed n-gram embeddings, as Qwen3.8-Flash-Next derives them.

A prime table size for each hash, and odd multipliers that keep products below 2^63.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from math import isqrt

SIZE = 3  # longest n-gram
SEED = 1234
DIVISOR = 128  # the table's rows are padded to a multiple of it
_MASK, _STEP = 2**64 - 1, 0x9E3779B97F4A7C15


def primes(first: int) -> Iterator[int]:
    """The primes from `first` up."""
    for number in count(max(first, 2)):
        if all(number % divisor for divisor in range(2, isqrt(number) + 1)):
            yield number


def table_sizes(heads: int, rows: int) -> list[int]:
    """Rows of each hash's table: for `heads` hashes of each length, primes from `rows` up."""
    return list(islice(primes(rows), heads * (SIZE - 1)))


def padded_rows(sizes: list[int]) -> int:
    """Rows of the whole table."""
    return -(-sum(sizes) // DIVISOR) * DIVISOR


def multipliers(vocab: int) -> list[int]:
    """Of the current token, the one before, ..., in the first layer that has n-grams."""
    half = max(1, (2**63 - 1) // vocab // 2)
    return [2 * (_mixed(SEED + _STEP * (i + 1)) % half) + 1 for i in range(SIZE)]


def _mixed(value: int) -> int:
    """The generator splitmix64 (Steele, Lea, Flood 2014)."""
    value = (value + _STEP) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
