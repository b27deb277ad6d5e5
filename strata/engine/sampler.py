"""From logits to the next token of each row.

The order of operations, per row:

 1. log-probabilities, when asked for, are read off the raw logits
 2. repetition_penalty, over the tokens of prompt and answer: positive logits are
    divided by it, negative ones multiplied
 3. frequency_penalty x count and presence_penalty, over the tokens of the answer
 4. logit_bias is added
 5. while the answer is shorter than min_tokens, or reasoning is open before a guide:
    the stop tokens become impossible
 6. a guide, or the end of a thinking budget, makes what cannot come next impossible
    (steer.py). Where one speaks, step 5 is left out: a grammar says itself where its
    texts end, and what is forced is forced
 7. temperature 0: the largest logit, the lower id on ties. That ends it. Else
 8. temperature, top_k, top_p (within what top_k left), min_p
 9. one draw with the number (seed, index of the token in the answer) of a
    counter-based generator

Rows of which steps 2 to 6 ask nothing are not copied. Everything is a function of the row and of
its own sequence, never of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
import numpy.typing as npt

from strata.engine.draw import Cut, NotFinite, Row, draw, logprob
from strata.engine.philox import uniform
from strata.engine.steer import Steer
from strata.types import Logprob, RequestError, Sampling

_GREEDY_BELOW = 1e-6  # Temperatures under this are greedy: their distribution is a point already.


@dataclass(frozen=True, slots=True)
class Choice:
    """The next token of a row, with its log-probability when that was asked for."""

    token: int
    logprob: Logprob | None = None


class Tally:
    """Distinct tokens and how often each came, as arrays that penalties can index.

    Owned by one `Chooser`. Adding a token is O(1).
    """

    def __init__(self) -> None:
        self._place: dict[int, int] = {}
        self._ids = np.zeros(64, dtype=np.int64)
        self._counts = np.zeros(64, dtype=np.float32)
        self._size = 0

    def add(self, token: int) -> None:
        """Count one more of `token`."""
        place = self._place.setdefault(token, self._size)
        if place == self._size:
            if place == self._ids.shape[0]:
                self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._ids[place] = token
            self._size += 1
        self._counts[place] += 1.0

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """The distinct tokens, in order of first appearance."""
        return self._ids[: self._size]

    @property
    def counts(self) -> npt.NDArray[np.float32]:
        """How often each of `ids` came."""
        return self._counts[: self._size]


class Chooser:
    """What sampling remembers of one sequence: its settings, seed, token counts and steer."""

    def __init__(
        self,
        sampling: Sampling,
        seed: int,
        prompt: Iterable[int],
        stops: frozenset[int],
        steer: Steer | None = None,
    ) -> None:
        self.steer = steer
        self.sampling = sampling
        self.seed = seed
        self.cut = Cut(sampling.top_k, sampling.top_p, sampling.min_p)
        self._seen: Tally | None = None
        self._said: Tally | None = None
        if sampling.repetition_penalty != 1.0:
            self._seen = Tally()
            for token in prompt:
                self._seen.add(token)
        if sampling.presence_penalty or sampling.frequency_penalty:
            self._said = Tally()
        self._bias: tuple[npt.NDArray[np.int64], Row] | None = None
        if sampling.logit_bias:
            bias: dict[int, float] = {}
            for token, value in sampling.logit_bias:
                bias[token] = bias.get(token, 0.0) + value
            self._bias = (
                np.array(list(bias), dtype=np.int64),
                np.array(list(bias.values()), dtype=np.float32),
            )
        self._banned = np.array(sorted(stops), dtype=np.int64)

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken."""
        return self.sampling.temperature < _GREEDY_BELOW

    def alters(self, said: int) -> bool:
        """Whether the logits of answer token `said` must be changed before choosing."""
        if self._seen is not None or self._said is not None or self._bias is not None:
            return True
        if self.steer is not None and self.steer.acts:
            return True
        return self._may_not_end(said) and self._banned.shape[0] > 0

    def _may_not_end(self, said: int) -> bool:
        """Whether the stop tokens are impossible (step 5)."""
        steer = self.steer
        if steer is None:
            return said < self.sampling.min_tokens
        return not steer.acts and (steer.waits or said < self.sampling.min_tokens)

    def saw(self, token: int) -> None:
        """Tell that `token` was chosen."""
        if self._seen is not None:
            self._seen.add(token)
        if self._said is not None:
            self._said.add(token)
        if self.steer is not None:
            self.steer.accept(token)

    def alter(self, row: Row, said: int) -> None:
        """Steps 2 to 6, in place. Raises RequestError when a guide does."""
        sampling = self.sampling
        if self._seen is not None:
            ids, penalty = self._seen.ids, np.float32(sampling.repetition_penalty)
            old = row[ids]
            row[ids] = np.where(old > 0, old / penalty, old * penalty)
        if self._said is not None:
            ids, counts = self._said.ids, self._said.counts
            row[ids] -= counts * np.float32(sampling.frequency_penalty) + np.float32(
                sampling.presence_penalty
            )
        if self._bias is not None:
            row[self._bias[0]] += self._bias[1]
        if self._may_not_end(said):
            row[self._banned[self._banned < row.shape[0]]] = -np.inf
        if self.steer is not None and self.steer.acts:
            self.steer.mask(row)


class Sampler:
    """Chooses for rows of one vocabulary. Owns two rows of scratch memory, no state."""

    def __init__(self, vocab: int) -> None:
        self._altered = np.empty(vocab, dtype=np.float32)
        self._room = np.empty(vocab, dtype=np.float32)

    def choose(self, row: Row, chooser: Chooser, said: int) -> Choice:
        """Token number `said` of one answer. `row` float32 [vocab].

        Raises NotFinite, and RequestError when a guide does.
        """
        sampling = chooser.sampling
        raw = row
        if chooser.alters(said):
            np.copyto(self._altered, row)
            row = self._altered
            chooser.alter(row, said)
        if chooser.greedy:
            token = int(row.argmax())
            if not isfinite(row[token]):
                raise NotFinite(f"largest logit is {row[token]}")
        else:
            unit = uniform(chooser.seed, said)
            token = draw(row, unit, sampling.temperature, chooser.cut, self._room)
        if sampling.logprobs is None:
            return Choice(token)
        return Choice(token, logprob(raw, token, sampling.logprobs, self._room))

    def choose_all(
        self, logits: npt.NDArray[np.float32], rows: Sequence[tuple[Chooser, int]]
    ) -> list[Choice | NotFinite | RequestError]:
        """One choice per row of `logits` float32 [m, vocab]; a broken row does not stop others."""
        choices: list[Choice | NotFinite | RequestError] = []
        for row, (chooser, said) in zip(logits, rows, strict=True):
            try:
                choices.append(self.choose(row, chooser, said))
            except (NotFinite, RequestError) as error:
                choices.append(error)
        return choices

    def score(self, row: Row, token: int, count: int) -> Logprob:
        """How likely `token` of a prompt was, given the logits before it. Raises NotFinite."""
        return logprob(row, token, count, self._room)
