"""Memory of a toy model whose every row and state is an exact hash of the tokens before it.

So a row or state read from the wrong place, written too early, or freed too soon is seen at once.
Freed pages and slots are poisoned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strata.types import Copy, PageCopy

PRIME = (1 << 61) - 1
VOCAB = 4
POISON = -1


def chain(value: int, token: int) -> int:
    """The hash of a prefix, one token longer."""
    return (value * 1_000_003 + token + 1) % PRIME


def chains(tokens: Sequence[int]) -> list[int]:
    """Hash of each prefix: item t is that of the first t + 1 tokens."""
    value, found = 0, []
    for token in tokens:
        value = chain(value, token)
        found.append(value)
    return found


def state_of(value: int) -> int:
    """What a state slot holds after a prefix with this hash."""
    return value ^ 0x5555


def choose(value: int, rows: int) -> int:
    """The model's next token, from its state and a sum over all the rows it attends to."""
    return (value ^ rows) % 997 % VOCAB


def answer(prompt: Sequence[int], count: int) -> list[int]:
    """The tokens an uncached run gives."""
    tokens = list(prompt)
    value, rows = 0, 0
    for token in tokens:
        value = chain(value, token)
        rows += value
    found: list[int] = []
    while len(found) < count:
        found.append(choose(value, rows))
        value = chain(value, found[-1])
        rows += value
    return found


class Memory:
    """Pages of `block` rows, and state slots."""

    def __init__(self, pages: int, block: int, states: int | None) -> None:
        self.block = block
        self._blank = [POISON] * block
        self.pages = [[POISON] * block for _ in range(pages)]
        self.states = [POISON] * (states or 0)

    def copy(self, copies: Iterable[Copy]) -> None:
        for copy in copies:
            if isinstance(copy, PageCopy):
                assert copy.src != copy.dst and 0 < copy.rows < self.block
                self.pages[copy.dst] = self.pages[copy.src][: copy.rows] + [POISON] * (
                    self.block - copy.rows
                )
            else:
                zero = state_of(0)
                self.states[copy.dst] = zero if copy.src is None else self.states[copy.src]

    def row(self, pages: Sequence[int], position: int) -> int:
        return self.pages[pages[position // self.block]][position % self.block]

    def write(self, pages: Sequence[int], position: int, value: int) -> None:
        self.pages[pages[position // self.block]][position % self.block] = value

    def poison(self, pages: Iterable[int], states: Iterable[int]) -> None:
        for page in pages:
            if self.pages[page] != self._blank:
                self.pages[page] = list(self._blank)
        for slot in states:
            self.states[slot] = POISON
