"""Counts of entries by lane, against loops; what is moved and waited for, shared among rows."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from strata.experts.counts import BUS, DEVICE, DISK, HOST, Counts, share
from strata.figures import ExpertUse

PLACES, EXPERTS, TOP_K = 3, 7, 2
LANES = {DEVICE: "device", BUS: "bus", HOST: "host", DISK: "disk"}


def draw_step(draw: random.Random) -> tuple[list[int], list[int]]:
    """Tokens of each row, and the row of each token."""
    counts = [draw.randint(1, 5) for _ in range(draw.randint(1, 4))]
    return counts, [row for row, count in enumerate(counts) for _ in range(count)]


@pytest.mark.parametrize("seed", range(4))
def test_entries_are_counted_as_loops_count_them(seed: int) -> None:
    draw, counts = random.Random(seed), Counts(PLACES)
    by_place = [dict.fromkeys(LANES.values(), 0) for _ in range(PLACES)]
    for _ in range(12):
        tokens, row_of = draw_step(draw)
        counts.begin(np.cumsum([0, *tokens]).astype(np.int32))
        assert counts.rows == len(tokens)
        by_row = [dict.fromkeys(LANES.values(), 0) for _ in tokens]
        for place in range(PLACES):
            chosen = [draw.sample(range(EXPERTS), TOP_K) for _ in row_of]
            lane = [draw.choice(list(LANES)) for _ in range(EXPERTS)]
            one = draw.choice((DEVICE, HOST, None))  # all in one lane, or not
            given = np.array(lane, np.uint8) if one is None else one
            found = counts.lookup(place, np.array(chosen, np.int32), given)
            own = [[0] * 4 for _ in tokens]
            for row, experts in zip(row_of, chosen, strict=True):
                for expert in experts:
                    number = lane[expert] if one is None else one
                    own[row][number] += 1
                    by_row[row][LANES[number]] += 1
                    by_place[place][LANES[number]] += 1
            assert found.tolist() == own
        expected = [ExpertUse(sum(row.values()), **row) for row in by_row]
        assert counts.tally() == expected
    assert counts.by_place.uses() == [ExpertUse(sum(one.values()), **one) for one in by_place]


@pytest.mark.parametrize("seed", range(4))
def test_rows_add_up_to_places(seed: int) -> None:
    draw, counts = random.Random(seed), Counts(PLACES)
    rows, bytes_moved, waited = ExpertUse(), {BUS: 0, DISK: 0}, {BUS: 0.0, DISK: 0.0}
    for _ in range(10):
        tokens, _ = draw_step(draw)
        counts.begin(np.cumsum([0, *tokens]).astype(np.int32))
        for place in range(PLACES):
            weights = np.array([draw.randint(0, 5) for _ in tokens], np.int64)
            weights[draw.randrange(len(tokens))] += 1
            for way in (BUS, DISK):
                nbytes, seconds = draw.randrange(1 << 40), draw.random()
                before = counts.tally()
                counts.moved(place, way, nbytes, weights)
                counts.stalled(place, way, seconds, weights)
                bytes_moved[way] += nbytes
                waited[way] += seconds
                for old, new, weight in zip(before, counts.tally(), weights.tolist(), strict=True):
                    name = "bus_stall_s" if way == BUS else "disk_stall_s"
                    part = seconds * weight / int(weights.sum())
                    assert getattr(new, name) - getattr(old, name) == pytest.approx(part)
        rows = sum(counts.tally(), start=rows)
    places = sum(counts.by_place.uses(), start=ExpertUse())
    assert (rows.bus_bytes, rows.disk_bytes) == (bytes_moved[BUS], bytes_moved[DISK])
    assert (places.bus_bytes, places.disk_bytes) == (bytes_moved[BUS], bytes_moved[DISK])
    for one in (rows, places):
        assert one.bus_stall_s == pytest.approx(waited[BUS], abs=1e-9)
        assert one.disk_stall_s == pytest.approx(waited[DISK], abs=1e-9)


def test_a_copy_stays_as_it_was() -> None:
    counts = Counts(1)
    counts.begin(np.array([0, 1], np.int32))
    shown = counts.by_place.copy()
    counts.lookup(0, np.zeros((1, 2), np.int32), HOST)
    counts.moved(0, DISK, 5, np.ones(1, np.int64))
    counts.stalled(0, BUS, 1.0, np.ones(1, np.int64))
    assert shown.uses() == [ExpertUse()]
    assert counts.by_place.uses() == [ExpertUse(2, host=2, disk_bytes=5, bus_stall_s=1.0)]


def test_shares_are_whole_and_nearly_exact() -> None:
    draw = random.Random(0)
    for _ in range(300):
        total = draw.choice((0, 1, 7, 4096, 10**12 + 1))
        weights = [draw.randint(0, 9) for _ in range(draw.randint(1, 6))]
        weights[0] += 1
        parts = share(total, np.array(weights, np.int64)).tolist()
        assert sum(parts) == total
        exact = [Fraction(total * weight, sum(weights)) for weight in weights]
        assert all(abs(part - one) < 1 for part, one in zip(parts, exact, strict=True))
    assert share(10, np.array([1, 2, 3], np.int64)).tolist() == [2, 3, 5]
    assert share(2, np.array([1, 8, 8], np.int64)).tolist() == [0, 1, 1], "the largest remainders"
