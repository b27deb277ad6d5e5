"""Token ids to text, one at a time, for a client that reads along.

Joined, the pieces are exactly the decode of the ids (control tokens have no text; a leading blank
stays, since an answer continues its prompt), cut before the first stop string: the one that is
complete earliest in the text; of those that end at one place, the longest. That depends on the text
alone, never on how it was cut into tokens. A stop string counts when the token that completes it
is the `min_tokens`-th or later.

Markers are added tokens that mean something (`</think>`). They have their text even where they are
control tokens, and it is told where they stand, so that who reads the text can tell a marker from
the same letters spelled by ordinary tokens.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from strata.text.tokenizer import Tokenizer
from strata.types import RequestError


@dataclass(frozen=True, slots=True)
class Piece:
    """What one token added. `stop`: the stop string that was found; no text follows.

    marks: offsets in the text where markers begin.
    """

    text: str
    stop: str | None = None
    marks: tuple[int, ...] = ()

    @property
    def stopped(self) -> bool:
        """Whether the text has ended."""
        return self.stop is not None


class TextStream:
    """The text of one answer as it grows. Belongs to one thread."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        min_tokens: int = 0,
        markers: Collection[str] = (),
    ) -> None:
        """markers: texts of added tokens. RequestError for an empty stop string: it would stop
        everything.
        """
        if not all(stop):
            raise RequestError("a stop string must not be empty", field="stop")
        self._tokenizer = tokenizer
        self._stop = tuple(dict.fromkeys(stop))
        self._min_tokens = min_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._markers = {tokenizer.added_ids[text] for text in markers}
        self._held = ""
        self._marks: list[int] = []  # in what is held
        self._count = 0
        self._found: str | None = None

    def feed(self, token: int) -> Piece:
        """Add the next token of the answer. After a stop string, tokens have no effect."""
        if self._found is not None:
            return Piece("", self._found)
        self._count += 1
        marker = token in self._markers
        spelled = self._tokenizer.token_bytes(token, marker)
        new = self._decoder.decode(spelled)
        if marker:  # after the end of a character that was broken off
            self._marks.append(len(self._held) + len(new) - len(spelled.decode()))
        return self._advance(new, last=False)

    def finish(self) -> Piece:
        """The end of the answer: what was held back."""
        if self._found is not None:
            return Piece("", self._found)
        return self._advance(self._decoder.decode(b"", final=True), last=True)

    def _advance(self, new: str, last: bool) -> Piece:
        text = self._held + new
        after = len(self._held) if self._count >= self._min_tokens else len(text)
        found = self._first_stop(text, after)
        if found is not None:
            at, self._found = found
            self._held = ""
            return Piece(text[:at], self._found, self._marked(at))
        ready = len(text) if last else len(text) - self._hold(text)
        self._held = text[ready:]
        return Piece(text[:ready], None, self._marked(ready))

    def _marked(self, size: int) -> tuple[int, ...]:
        """The marks of the first `size` characters, which go out."""
        marks = tuple(mark for mark in self._marks if mark < size)
        self._marks = [mark - size for mark in self._marks if mark >= size]
        return marks

    def _first_stop(self, text: str, after: int) -> tuple[int, str] | None:
        """Where the first stop string that ends beyond offset `after` begins, and it, or None."""
        found = []
        for stop in self._stop:
            at = text.find(stop, max(0, after + 1 - len(stop)))
            if at >= 0:
                found.append((at + len(stop), at, stop))
        return min(found)[1:] if found else None

    def _hold(self, text: str) -> int:
        """How many characters at the end of a text may be the beginning of a stop string."""
        longest = max(map(len, self._stop), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stop if len(stop) > size):
                return size
        return 0
