"""From grants to a ForwardPlan: flat arrays, built on the host.

Knows lengths and page numbers; no device, no model. One kind of row: a decoding
row has one token. Keys of tokens below the lease's `writable_from` are already in
shared pages, so their write slot is -1.

Lists become arrays once, at the end: after a step the caches are cold, and each further
operation of numpy would be read from memory for a single token.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np

from strata.engine.scheduler import Grant
from strata.types import Capture, ForwardPlan, IntArray


def build(
    grants: Seq[Grant], *, step: int, block: int, captures: tuple[Capture, ...] = ()
) -> ForwardPlan:
    """The plan of one step. Each grant becomes one row, in order.

    Logits are wanted after the last token of each row that is complete, and
    after every token of a row whose prompt is scored.
    """
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    live: list[int] = []
    starts, sample = [0], list[int]()
    for grant in grants:
        sequence, lease, stop = grant.sequence, grant.sequence.lease, grant.start + grant.count
        assert lease is not None
        pages, writable = lease.pages, lease.writable_from
        tokens += sequence.tokens[grant.start : stop]
        positions += range(grant.start, stop)
        slots += [
            pages[at // block] * block + at % block if at >= writable else -1
            for at in range(grant.start, stop)
        ]
        live.append(-1 if lease.live is None else lease.live)
        if sequence.scoring:
            sample += range(starts[-1], len(tokens))
        elif stop == len(sequence.tokens):
            sample.append(len(tokens) - 1)
        starts.append(len(tokens))
    return ForwardPlan(
        step=step,
        block=block,
        tokens=_ints(tokens),
        positions=_ints(positions),
        row_starts=_ints(starts),
        page_table=_page_table(grants, block),
        write_slots=_ints(slots),
        state_slots=_ints(live),
        sample=_ints(sample),
        captures=captures,
    )


def _ints(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int32)


def _page_table(grants: Seq[Grant], block: int) -> IntArray:
    """int32 [rows, p]: each row's pages up to its last block of this step, then -1."""
    lengths = [-(-(grant.start + grant.count) // block) for grant in grants]
    table = np.full((len(grants), max(lengths)), -1, dtype=np.int32)
    for row, (grant, length) in enumerate(zip(grants, lengths, strict=True)):
        table[row, :length] = grant.sequence.table()[:length]
    return table
