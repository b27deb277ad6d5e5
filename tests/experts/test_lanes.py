"""Which experts take the bus: against the best of all splits; rates learned from measurements."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from strata.experts.lanes import Rates, lanes

NBYTES = 3 << 20


def makespan(by_bus: tuple[bool, ...], counts: list[int], rates: Rates) -> float:
    """Seconds until the later lane is done."""
    bus = sum(NBYTES / rates.bus for rides in by_bus if rides)
    host = sum(
        max(NBYTES / rates.host, count * NBYTES / rates.work)
        for rides, count in zip(by_bus, counts, strict=True)
        if not rides
    )
    return max(bus, host)


def test_close_to_the_best_of_all_splits() -> None:
    draw, ratios = random.Random(0), []
    for _ in range(150):
        counts = [draw.choice((1, 1, 2, 8, 60, 500)) for _ in range(draw.randint(1, 7))]
        rates = Rates(
            bus=draw.uniform(1e9, 60e9), host=draw.uniform(5e9, 80e9), work=draw.uniform(2e9, 400e9)
        )
        best = min(
            makespan(split, counts, rates) for split in product((False, True), repeat=len(counts))
        )
        chosen = lanes(np.array(counts, np.int32), NBYTES, rates)
        assert chosen.shape == (len(counts),)
        ratios.append(makespan(tuple(chosen.tolist()), counts, rates) / best)
    assert min(ratios) >= 1 - 1e-9
    assert np.mean(ratios) <= 1.1
    assert max(ratios) <= 1.6


def test_the_heaviest_ride() -> None:
    counts = np.array([1, 40, 2, 50], np.int32)
    rates = Rates(bus=10e9, host=10e9, work=10e9)
    assert lanes(counts, NBYTES, rates).tolist() == [False, True, False, True]


def test_a_lane_that_is_far_too_slow_is_left_alone() -> None:
    counts = np.ones(5, np.int32)
    assert not lanes(counts, NBYTES, Rates(bus=1e3, host=50e9)).any()
    assert lanes(counts, NBYTES, Rates(bus=50e9, host=1e3)).all()
    assert lanes(counts[:0], NBYTES, Rates()).shape == (0,)


def test_rates_become_what_is_measured() -> None:
    rates = Rates()
    for _ in range(100):
        rates = rates.after("bus", NBYTES, NBYTES / 30e9)
        # Few tokens for each expert tell how fast memory is, many how fast arithmetic is.
        rates = rates.computed(NBYTES, 8, 8, 8 * NBYTES / 15e9)
        rates = rates.computed(NBYTES, 1, 500, 500 * NBYTES / 200e9)
    assert rates.bus == pytest.approx(30e9, rel=1e-3)
    assert rates.host == pytest.approx(15e9, rel=1e-3)
    assert rates.work == pytest.approx(200e9, rel=1e-3)
    assert rates.disk == Rates().disk
    assert rates.after("disk", NBYTES, 0.0) == rates


def test_one_stall_does_not_outweigh_what_was_measured_before() -> None:
    # A tenth of the newest seconds per byte: 0.9 of the old and a tenth of 10 times that.
    rates = Rates(bus=10e9).after("bus", NBYTES, NBYTES / 1e9)
    assert rates.bus == pytest.approx(10e9 / 1.9)
