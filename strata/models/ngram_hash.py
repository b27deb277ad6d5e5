"""The hashes of n-gram embeddings, as Qwen3.8-Flash-Next derives them from a few settings.

Pure arithmetic on whole numbers. What a hash does is said in strata.kernels.ngram.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from strata.models.config import NgramHash

_SEED_STEP = 10007  # between layers


def hashes(
    layers: Sequence[int], heads: int, size: int, vocab: int, *, least: int, seed: int
) -> dict[int, NgramHash]:
    """The hashes of each of `layers`: `heads` of up to `size` tokens of a vocabulary of `vocab`.

    Their tables have as many rows as successive primes from `least` on say.
    """
    primes = _primes(least)
    found = {}
    for place, layer in enumerate(layers):
        sizes = [next(primes) for _ in range(heads)]
        found[layer] = NgramHash(
            multipliers=_multipliers(size, vocab, seed + _SEED_STEP * place),
            sizes=tuple(sizes),
            offsets=tuple(sum(sizes[:i]) for i in range(heads)),
        )
    return found


def _multipliers(size: int, vocab: int, seed: int) -> tuple[int, ...]:
    """Odd, and so small that no product with a token needs more than 63 bits."""
    bound = max(1, ((1 << 63) - 1) // vocab // 2)
    return tuple(2 * (_splitmix64(seed, i + 2) % bound) + 1 for i in range(size))


def _splitmix64(seed: int, number: int) -> int:
    """The `number`th output, from 1, of the generator of that name (Steele, Lea and Flood, 2014).
    The family begins with the second.
    """
    mask = (1 << 64) - 1
    z = (seed + 0x9E3779B97F4A7C15 * number) & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31


def _primes(least: int) -> Iterator[int]:
    """Primes from `least` on."""
    candidate = max(least, 2)
    while True:
        if all(candidate % divisor for divisor in range(2, math.isqrt(candidate) + 1)):
            yield candidate
        candidate += 1
