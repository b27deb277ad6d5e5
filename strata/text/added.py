"""Finding added tokens in a text, as the `tokenizers` library finds them.

Leftmost first, the longest of those that begin at one place. Only tokens that are matched before
normalisation (all but a few old ones) take part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from tokenizers import AddedToken


def any_of(words: Iterable[str]) -> str:
    """A regular expression for the longest of many words, as a tree of their letters.

    A plain alternation of some thousand words would try each of them at each place.
    """
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}
    return _branches(tree) if tree else "(?!)"


def _branches(node: dict[str, Any]) -> str:
    parts: list[str] = []
    for letter, rest in node.items():
        if letter:
            run = [letter]
            while len(rest) == 1 and "" not in rest:  # a stretch without a fork, for short nesting
                ((following, rest),) = rest.items()
                run.append(following)
            parts.append(re.escape("".join(run)) + (_branches(rest) if set(rest) != {""} else ""))
    body = parts[0] if len(parts) == 1 and "" not in node else f"(?:{'|'.join(parts)})"
    return f"{body}?" if "" in node else body


class AddedTokens:
    """The added tokens of a vocabulary, ready to be searched for."""

    def __init__(self, tokens: Mapping[int, AddedToken]) -> None:
        raw = {number: token for number, token in tokens.items() if not token.normalized}
        self._tokens = {token.content: (number, token) for number, token in raw.items()}
        self._pattern = re.compile(any_of(self._tokens))
        self._heads = {
            token.content
            for token in raw.values()
            if token.special and not (token.lstrip or token.single_word)
        }

    def cut(self, text: str) -> list[str]:
        """The text in segments that tokenise apart.

        Each but the first begins with a control token; the first may be empty.
        """
        cuts = [m.start() for m in self._pattern.finditer(text) if m[0] in self._heads]
        edges = [0, *cuts, len(text)]
        return [text[start:end] for start, end in pairwise(edges)]

    def split(self, text: str) -> Iterator[str | int]:
        """The text as alternating stretches without added tokens (may be empty) and ids."""
        start = 0
        for match in self._pattern.finditer(text):
            number, token = self._tokens[match[0]]
            before = text[start : match.start()]
            yield before.rstrip() if token.lstrip else before
            yield number
            start = match.end()
            if token.rstrip:
                start = len(text) - len(text[start:].lstrip())
        yield text[start:]
