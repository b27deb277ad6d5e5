"""Truncation and draw against a full sort, written out plainly here."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.engine.draw import Cut, NotFinite, _nucleus, descending, draw, largest


def full_sort(row: np.ndarray) -> list[int]:
    return sorted(range(len(row)), key=lambda i: (-float(row[i]), i))


def kept(row: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float) -> list[int]:
    """Brute force: the ids that may be drawn, most likely first."""
    order = full_sort(row)
    scaled = (row - row.max()) * np.float32(1.0 / temperature)
    weights = np.exp(scaled)
    if 0 < top_k < len(row):
        order = order[:top_k]
    if top_p < 1.0:
        # Over everything the total is numpy's own sum of the row, else that of the kept ones.
        cut = 0 < top_k < len(row)
        total = sum(float(weights[i]) for i in order) if cut else float(weights.sum())
        running, count = 0.0, 0
        for token in order:
            running += float(weights[token])
            count += 1
            if running >= top_p * total:
                break
        order = order[:count]
    if min_p > 0.0:
        order = [i for i in order if weights[i] >= np.float32(min_p)]
    return [i for i in order if weights[i] > 0]


def drawn(row: np.ndarray, unit: float, t: float = 1.0, k: int = 0, p: float = 1.0, m: float = 0.0):
    return draw(row, unit, t, Cut(k, p, m), np.empty(len(row), np.float32))


rows = st.one_of(
    st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=50),
    st.lists(st.sampled_from([-2.0, -0.0, 0.0, 1.0, 1.5]), min_size=1, max_size=50),  # ties
).map(lambda values: np.array(values, dtype=np.float32))


@settings(max_examples=200, deadline=None)
@given(
    rows,
    st.sampled_from([0.1, 0.7, 1.0, 2.5]),
    st.sampled_from([0, 1, 2, 5, 40, 60]),
    st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.999, 1.0]),
    st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
def test_every_kept_token_and_no_other_is_drawn(row, t, k, p, m) -> None:
    allowed = kept(row, t, k, p, m)
    weights = np.exp((row - row.max()) * np.float32(1.0 / t)).astype(np.float64)
    share = weights[allowed] / weights[allowed].sum()
    units = [*np.linspace(0.0, 1.0, 65)[:-1].tolist(), np.nextafter(1.0, 0.0)]
    tokens = [drawn(row, unit, t, k, p, m) for unit in units]
    assert set(tokens) <= set(allowed)
    # Any token whose share exceeds the grid's spacing must have been hit.
    assert {i for i, s in zip(allowed, share, strict=True) if s > 2 / 64} <= set(tokens)


@settings(max_examples=100, deadline=None)
@given(rows, st.integers(1, 60))
def test_largest_equals_a_full_sort(row: np.ndarray, count: int) -> None:
    assert largest(row, count).tolist() == full_sort(row)[:count]
    assert descending(row, np.arange(len(row))).tolist() == full_sort(row)


@pytest.mark.parametrize("size", [1024, 5000, 49_152])
@pytest.mark.parametrize("kind", ["peaked", "flat", "ties"])
def test_large_rows(size: int, kind: str) -> None:
    random = np.random.default_rng(size)
    row = random.standard_normal(size).astype(np.float32)
    row = {"peaked": row * 5, "flat": row * 0.01, "ties": np.round(row)}[kind]
    order = full_sort(row)
    for count in (1, 2, 20, 50, 300):
        assert largest(row, count).tolist() == order[:count]
    for k, p, m in [(0, 0.9, 0.0), (0, 0.3, 0.0), (40, 0.95, 0.0), (0, 0.99, 0.1), (0, 1.0, 0.02)]:
        allowed = kept(row, 0.8, k, p, m)
        exact = np.exp((row - row.max()) * np.float32(1 / 0.8)).astype(np.float64)
        units = [*np.linspace(0.0, 1.0, 24).tolist()[:-1], float(np.nextafter(1.0, 0.0))]
        tokens = [drawn(row, unit, 0.8, k, p, m) for unit in units]
        assert set(tokens) <= set(allowed)
        share = exact[allowed] / exact[allowed].sum()
        assert {i for i, s in zip(allowed, share, strict=True) if s > 0.1} <= set(tokens)


@pytest.mark.parametrize("spread", [0.01, 0.5, 1.0, 1.6, 2.0, 3.0, 6.0])
@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.9, 0.95, 0.9999])
def test_a_nucleus_equals_a_full_sort(spread: float, p: float) -> None:
    random = np.random.default_rng(5)
    row = (random.standard_normal(40_000) * spread).astype(np.float32)
    row[random.integers(0, 40_000, 300)] = row[17]  # ties, perhaps at the border
    weights = np.exp(row - row.max())
    order = full_sort(row)
    goal = p * float(weights.sum())
    count = int(np.searchsorted(np.cumsum(weights[order], dtype=np.float64), goal)) + 1
    assert sorted(_nucleus(row, weights, goal).tolist()) == sorted(order[:count])


def test_the_whole_vocabulary_is_drawn_by_weight() -> None:
    random = np.random.default_rng(3)
    row = random.standard_normal(5000).astype(np.float32)
    exact = np.exp(row.astype(np.float64))
    sums = np.cumsum(exact) / exact.sum()
    for unit in np.linspace(0.001, 0.999, 200):
        token = drawn(row, float(unit))
        # Right up to the rounding of float32 sums at the token's borders.
        assert (sums[token - 1] if token else 0.0) - 1e-6 <= unit <= sums[token] + 1e-6


@pytest.mark.parametrize("k, p, m", [(0, 1.0, 0.0), (5, 1.0, 0.0), (0, 0.8, 0.0), (0, 1.0, 0.1)])
def test_frequencies(k: int, p: float, m: float) -> None:
    row = np.log(np.array([0.4, 0.05, 0.25, 0.2, 0.02, 0.08], dtype=np.float32))
    allowed = kept(row, 1.0, k, p, m)
    share = np.exp(row[allowed].astype(np.float64))
    share /= share.sum()
    units = (np.arange(10_000) + 0.5) / 10_000
    counts = np.bincount([drawn(row, float(u), 1.0, k, p, m) for u in units], minlength=6)
    assert counts.sum() == counts[allowed].sum()
    assert np.abs(counts[allowed] / 10_000 - share).max() < 4e-4


@pytest.mark.parametrize("possible", [[7, 2999], list(range(7, 3000, 5))])
def test_impossible_tokens_are_never_drawn(possible: list[int]) -> None:
    row = np.full(3000, -np.inf, dtype=np.float32)
    row[possible] = 0.0
    for unit in (0.0, 0.25, 0.5, 0.75, float(np.nextafter(1.0, 0.0))):
        for arguments in ({}, {"k": 2000}, {"p": 0.99}, {"k": 2900, "p": 0.999}):
            assert drawn(row, unit, **arguments) in possible


def test_a_tiny_temperature_takes_the_largest() -> None:
    row = np.array([1.0, 1.001, 0.5], dtype=np.float32)
    assert all(drawn(row, unit, 1e-5) == 1 for unit in (1e-9, 0.5, 0.999999))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_without_a_finite_maximum_is_refused(bad: float) -> None:
    with pytest.raises(NotFinite):
        drawn(np.array([0.0, bad, 1.0], dtype=np.float32), 0.5)
    with pytest.raises(NotFinite):
        drawn(np.full(4, -np.inf, dtype=np.float32), 0.5)
