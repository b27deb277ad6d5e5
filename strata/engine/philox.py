"""A counter-based random number: the same key and counter, the same number.

Philox4x64-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy
as 1, 2, 3" (SC 2011), the generator that numpy calls Philox. Nothing is stored
between draws, so a row's numbers cannot depend on its batch or on preemption.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_M0, _M1 = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_W0, _W1 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
_ROUNDS = 10


def block(key: tuple[int, int], counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """The four 64-bit words of one counter value under one key."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(_ROUNDS):
        left, right = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (
            (right >> 64) ^ c1 ^ k0,
            right & _MASK,
            (left >> 64) ^ c3 ^ k1,
            left & _MASK,
        )
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, index: int) -> float:
    """Number `index` of the stream `seed`, in [0, 1), 53 bits. Any integer is a seed."""
    word = block((seed & _MASK, 0), (index & _MASK, 0, 0, 0))[0]
    return float(word >> 11) * 2.0**-53
