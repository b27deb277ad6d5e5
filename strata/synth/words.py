"""A tokenizer out of nothing: bytes, syllables, and made-up words of them.

Byte-level BPE. Words of several syllables begin with a blank, so that any sequence of them reads
back as the same tokens: what a random model says, cut into words by its output matrix (see
`silent`), has one spelling, as text of a trained model nearly always has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, product
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from tokenizers.pre_tokenizers import ByteLevel

from strata.types import ModelError

END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END_OF_TEXT, START, END)
CHATML = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiou"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_BLANK = "Ġ"
_LEAST = 256 + len(SPECIAL) + 2


@dataclass(frozen=True)
class Words:
    """The tokenizer of a vocabulary of `size`. `PRE`: how text is cut before merging."""

    PRE: ClassVar[str] = "qwen2"
    size: int

    def __post_init__(self) -> None:
        if self.size < _LEAST:
            raise ModelError(f"--vocab must be at least {_LEAST}: bytes, a word, special tokens")

    @cached_property
    def merges(self) -> list[tuple[str, str]]:
        """Pairs that merge, in their order."""
        room = self.size - 256 - len(SPECIAL)
        syllables = list(islice(product(_CONSONANTS, _VOWELS), room // 2))
        joined = [a + b for a, b in syllables]
        short = [(_BLANK, one) for one in joined]
        words = [_BLANK + one for one in joined]
        two = product(words, joined)
        three = product((a + b for a, b in product(words, joined)), joined)
        letters = ((_BLANK, letter) for letter in _LETTERS)
        return list(islice(chain(syllables, short, letters, two, three), room))

    @cached_property
    def entries(self) -> list[str]:
        """The text of each id, as byte-level vocabularies spell it."""
        letters = sorted(ByteLevel.alphabet())
        return [*letters, *(a + b for a, b in self.merges), *SPECIAL]

    @property
    def silent(self) -> npt.NDArray[np.bool_]:
        """[size]: the tokens that are never likely: all but words of a syllable or more."""
        return np.array([not (len(one) > 2 and one[0] == _BLANK) for one in self.entries])

    def id(self, text: str) -> int:
        """The id of a special token."""
        return self.size - len(SPECIAL) + SPECIAL.index(text)
