"""The made-up tokenizer, read by Strata and by the `tokenizers` library."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from strata.synth.words import Words
from strata.types import ModelError


@pytest.mark.parametrize("size", [261, 300, 600, 5000, 40_000])
def test_entries_are_as_many_as_asked_for_and_all_different(size: int) -> None:
    words = Words(size)
    assert len(words.entries) == len(set(words.entries)) == len(words.silent) == size
    assert 0 < (~words.silent).sum() < size - 256
    known = set(words.entries)
    assert all(a in known and b in known for a, b in words.merges)
    assert words.entries[words.id("<|im_end|>")] == "<|im_end|>"


def test_a_vocabulary_without_words_is_refused() -> None:
    with pytest.raises(ModelError, match="at least 261"):
        Words(260)


@pytest.mark.parametrize("size", [300, 40_000])
def test_words_read_back_as_they_were_written(size: int) -> None:
    """Whatever order they come in: by merging pairs as BPE does, written out here."""
    words = Words(size)
    rank = {pair: number for number, pair in enumerate(words.merges)}

    def encode(piece: str) -> list[str]:
        parts = list(piece)
        while pairs := [pair for pair in pairwise(parts) if pair in rank]:
            best = min(pairs, key=rank.__getitem__)
            at = list(pairwise(parts)).index(best)
            parts[at : at + 2] = ["".join(best)]
        return parts

    spoken = np.flatnonzero(~words.silent)
    for number in np.random.default_rng(0).choice(spoken, min(200, len(spoken)), replace=False):
        assert encode(words.entries[number]) == [words.entries[number]]
