"""What is decided about an answer's next token beside its logits, and when it must end.

`Steer` holds one sequence's guide and thinking. It is in one of three moods:

    free     nothing is asked of the next token: there is no guide, or reasoning is open
    forced   reasoning has used up its budget: the next token is the next one that closes it
    guided   reasoning is over, or never was: the guide says which tokens can come

Reasoning is over when the answer's last tokens are those that close it, whoever chose them. A model
may open it itself: without a guide at any time, with one only instead of the guide's first token.
All reasoning of an answer shares one budget. A forced token is an ordinary one of the answer.

`runaway` is the guard against answers without end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from strata.types import Guide, Request, Thinking

# A legitimate text repeats itself too: rules of tables, lists of zeros, ASCII art, a long 1/3. Of a
# circle of at most 64 tokens 1,024 are at least 16 rounds, and 500 zeros with their commas. A model
# that went round so often does not come out again, and has spent half a minute at 35 tokens/s.
CIRCLE = 64
SPAN = 1024


class Steer:
    """See the module. Owned by the sequence's `Chooser`."""

    def __init__(self, guide: Guide | None, thinking: Thinking | None) -> None:
        self._guide, self._thinking = guide, thinking
        self._open = thinking is not None and thinking.open
        self._may_open = True
        self._spent = 0  # tokens of reasoning
        self._closed = 0  # how many of the tokens that close it are the answer's last ones

    @classmethod
    def of(cls, request: Request) -> Steer | None:
        """A request's, at its start; None when it asks for none."""
        thinking = request.thinking
        if request.guide is None and (thinking is None or thinking.budget is None):
            return None
        return cls(None if request.guide is None else request.guide(), thinking)

    @property
    def acts(self) -> bool:
        """Whether `mask` has something to say about the next token."""
        return self._guide is not None if not self._open else self._due

    @property
    def waits(self) -> bool:
        """Whether an end now would leave out what the guide is for."""
        return self._open and self._guide is not None

    @property
    def ended(self) -> bool:
        """Whether the guide says that nothing can follow."""
        return self._guide is not None and not self._open and self._guide.ended

    @property
    def _due(self) -> bool:
        """Whether the budget is used up."""
        budget = None if self._thinking is None else self._thinking.budget
        return budget is not None and self._spent >= budget

    def mask(self, row: npt.NDArray[np.float32]) -> None:
        """Make logits of tokens that cannot come next -inf, in place. Raises what a Guide does."""
        thinking = self._thinking
        if thinking is not None and self._open:
            _keep(row, thinking.close[self._closed])
        elif self._guide is not None:
            opens = thinking.opens if thinking is not None and self._may_open else None
            before = row[opens] if opens is not None else None
            self._guide.mask(row)
            if opens is not None:
                row[opens] = before

    def accept(self, token: int) -> None:
        """Tell that `token` was chosen."""
        thinking = self._thinking
        if thinking is not None and self._open:
            self._spent += 1
            self._closed = _progress(thinking.close, self._closed, token)
            if self._closed == len(thinking.close):
                self._open, self._closed = False, 0
                self._may_open = self._guide is None
        elif thinking is not None and self._may_open and token == thinking.opens:
            self._open = True
        elif self._guide is not None:
            self._may_open = False
            self._guide.accept(token)


def _keep(row: npt.NDArray[np.float32], token: int) -> None:
    """Leave one token possible. Its logit stays, so that a broken row is still seen."""
    logit = row[token]
    row.fill(-np.inf)
    row[token] = logit


def _progress(goal: tuple[int, ...], done: int, token: int) -> int:
    """How long a start of `goal` a text ends with that ended with `done` of it before `token`."""
    seen = (*goal[:done], token)
    return next(n for n in range(len(seen), -1, -1) if seen[len(seen) - n :] == goal[:n])


def runaway(tokens: Sequence[int], said: int) -> bool:
    """Whether the last SPAN of an answer's `said` tokens go round in a circle of at most CIRCLE.

    `tokens` end with the answer. Looks once in CIRCLE tokens, so that a token costs O(1).
    """
    if said < SPAN or said % CIRCLE:
        return False
    tail = tokens[-SPAN:]
    last = tail[-CIRCLE:]
    return any(
        tail[-CIRCLE - n : -n] == last and tail[n:] == tail[:-n] for n in range(1, CIRCLE + 1)
    )
