"""Synthetic expert traces: routing that is skewed (Zipf), and skewed with memory (Markov).

A token takes `top_k` distinct experts in each of `places` layers. Popularity falls as
1 / rank ** s, every layer with an order of its own. With memory each of a sequence's experts stays
for the next token with probability `stay`; the others are drawn anew. A conversation is a prompt,
read in one step, then `answer` steps of one token for each of `rows` sequences. Every 2nd
conversation changes topic: a part `drift` of each layer's order is shuffled.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from strata.experts.trace import TraceHead, TraceWriter

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Kind:
    """One synthetic trace: its parameters, all of them."""

    s: float
    stay: float
    places: int = 8
    experts: int = 512
    top_k: int = 10
    drift: float = 0.25
    conversations: int = 10
    prompt: int = 128
    answer: int = 96
    rows: int = 1
    seed: int = 0


KINDS = {
    "zipf-1.0": Kind(s=1.0, stay=0.0),
    "zipf-1.5": Kind(s=1.5, stay=0.0),
    "markov-1.0": Kind(s=1.0, stay=0.6),
    "markov-1.5": Kind(s=1.5, stay=0.6),
    "markov-1.0-batch-4": Kind(s=1.0, stay=0.6, rows=4),
}


class Routing:
    """Who is chosen: the layers' popularity and what each sequence chose last."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.random = np.random.default_rng(kind.seed)
        order = [self.random.permutation(kind.experts) for _ in range(kind.places)]
        self.order: Ids = np.array(order)

    def turn(self) -> None:
        """A new topic: part of each layer's order is shuffled."""
        number = round(self.kind.drift * self.kind.experts)
        for order in self.order:
            some = self.random.choice(len(order), number, replace=False)
            order[some] = order[self.random.permutation(some)]

    def draw(self, place: int, last: Ids | None) -> Ids:
        """Experts [top_k] of one token, `last` those of the token before."""
        kind = self.kind
        scores = self.random.gumbel(size=kind.experts)
        scores[self.order[place]] -= kind.s * np.log(np.arange(1, kind.experts + 1))
        if last is not None:
            scores[last[self.random.random(kind.top_k) < kind.stay]] = np.inf
        return np.argpartition(-scores, kind.top_k)[: kind.top_k]


def write(kind: Kind, path: Path, record_bytes: int = 1 << 20) -> None:
    """Writes one trace."""
    head = TraceHead(f"synthetic {kind}", kind.experts, (record_bytes,) * kind.places)
    writer, routing, step = TraceWriter(path, head), Routing(kind), 0
    for number in range(kind.conversations):
        if number % 2 == 0:
            routing.turn()
        last: list[list[Ids | None]] = [[None] * kind.places for _ in range(kind.rows)]
        for tokens in (kind.prompt, *[1] * kind.answer):
            for place in range(kind.places):
                chosen = []
                for row in last:
                    for _ in range(tokens):
                        row[place] = routing.draw(place, row[place])
                        chosen.append(row[place])
                experts, counts = np.unique(np.array(chosen), return_counts=True)
                writer.note(
                    step, place, kind.rows, experts.astype(np.int32), counts.astype(np.int32)
                )
            step += 1
    writer.close()


def main() -> None:
    """Writes every kind, or the named ones, into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("kinds", nargs="*", choices=[[], *KINDS])
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for name in chosen.kinds or KINDS:
        write(KINDS[name], chosen.folder / f"{name}.trace")


if __name__ == "__main__":
    main()
