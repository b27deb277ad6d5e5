"""The bytes of one random tensor, a few megabytes at a time."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from zlib import crc32

import numpy as np
from gguf import GGMLQuantizationType as Type

from strata.synth import blocks
from strata.synth.tensors import Tensor
from strata.synth.words import Words

_VALUES = 1 << 20  # made at a time


def bytes_of(one: Tensor, kind: Type) -> int:
    """Bytes of the whole tensor."""
    return prod(one.shape[:-1]) * blocks.row_bytes(kind, one.shape[-1])


def pieces(one: Tensor, kind: Type, words: Words, seed: int) -> Iterator[blocks.Bytes]:
    """Its bytes in whole rows. They depend on its name and on nothing of other tensors."""
    cols, count = one.shape[-1], prod(one.shape[:-1])
    spread = np.full(count, one.spread, np.float32)
    if one.words:
        spread[words.silent] = 0
    random = np.random.default_rng((seed, crc32(one.name.encode())))
    step = max(1, _VALUES // cols)
    for first in range(0, count, step):
        yield blocks.rows(kind, cols, spread[first : first + step], one.mean, random)
