"""From grants to a ForwardPlan: flat arrays, built on the host.

Knows lengths and page numbers; no device, no model. One kind of row: a decoding
row has one token. Keys of tokens below the lease's `writable_from` are already in
shared pages, so their write slot is -1.
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
    rows = len(grants)
    leases = [grant.sequence.lease for grant in grants]
    starts = np.array([grant.start for grant in grants], dtype=np.int32)
    counts = np.array([grant.count for grant in grants], dtype=np.int32)
    row_starts = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(counts, out=row_starts[1:])
    total = int(row_starts[-1])
    page_table = _page_table(grants, block)
    ends = starts + counts
    if total == rows:  # only decoding rows: no need to spread anything
        row_of = np.arange(rows, dtype=np.int32)
        positions = starts
    else:
        row_of = np.repeat(np.arange(rows, dtype=np.int32), counts)
        positions = np.arange(total, dtype=np.int32) + (starts - row_starts[:-1])[row_of]
    writable = np.array([lease.writable_from for lease in leases if lease], dtype=np.int32)
    slots = page_table[row_of, positions // block] * block + positions % block
    write_slots = np.where(positions < writable[row_of], np.int32(-1), slots)
    live = [-1 if lease is None or lease.live is None else lease.live for lease in leases]
    return ForwardPlan(
        step=step,
        block=block,
        tokens=np.concatenate([g.sequence.ids(g.start, g.start + g.count) for g in grants]),
        positions=positions,
        row_starts=row_starts,
        page_table=page_table,
        write_slots=write_slots,
        state_slots=np.array(live, dtype=np.int32),
        sample=_sample(grants, row_starts, ends),
        captures=captures,
    )


def _page_table(grants: Seq[Grant], block: int) -> IntArray:
    """int32 [rows, p]: each row's pages up to its last block of this step, then -1."""
    lengths = [-(-(grant.start + grant.count) // block) for grant in grants]
    table = np.full((len(grants), max(lengths)), -1, dtype=np.int32)
    for row, (grant, length) in enumerate(zip(grants, lengths, strict=True)):
        table[row, :length] = grant.sequence.table()[:length]
    return table


def _sample(grants: Seq[Grant], row_starts: IntArray, ends: IntArray) -> IntArray:
    """int32 [m]: the tokens of the step whose logits are wanted."""
    if not any(grant.sequence.scoring for grant in grants):
        lengths = np.array([len(grant.sequence.tokens) for grant in grants], dtype=np.int32)
        last: IntArray = row_starts[1:][ends == lengths] - np.int32(1)
        return last
    wanted: list[int] = []
    for row, grant in enumerate(grants):
        first, stop = int(row_starts[row]), int(row_starts[row + 1])
        if grant.sequence.scoring:
            wanted.extend(range(first, stop))
        elif grant.start + grant.count == len(grant.sequence.tokens):
            wanted.append(stop - 1)
    return np.array(wanted, dtype=np.int32)
