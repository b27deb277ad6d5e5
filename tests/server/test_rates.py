"""Rates between two views, worked out by hand."""

from __future__ import annotations

import pytest

from strata.figures import LiveRow, View
from strata.server.monitor.rates import Rates, Speed


def row(output: int, last: float | None, name: str = "a", first: float | None = 1.0) -> LiveRow:
    return LiveRow(name, "decoding", 10, 0, 10, 10, output, 0.0, 0.0, first, last)


def view(at: float, stepped: float, steps: int, read: int, decoded: int, *rows: LiveRow) -> View:
    """Steps take half a second of reading or decoding each."""
    return View(at, 1000.0 + at, rows, 0, stepped, steps, read, decoded, steps * 0.25, steps * 0.25)


def seen(*views: tuple[View, float]) -> Rates:
    rates = Rates()
    for told, now in views:
        rates.see(told, now)
    return rates


BUSY = row(1, 1.0)


def test_nothing_is_known_at_first():
    assert seen((view(10, 10, 5, 500, 20, BUSY), 10.0)).speed == Speed(None, None, None)


def test_busy_rows_are_measured_from_step_to_step():
    rates = seen((view(10, 9.5, 5, 500, 20, BUSY), 10.0), (view(11, 10.7, 8, 560, 26, BUSY), 11.0))
    assert rates.speed.read == pytest.approx(60 / 1.2)
    assert rates.speed.decode == pytest.approx(6 / 1.2)
    assert rates.speed.step_s == pytest.approx(0.5)


def test_while_a_long_step_runs_the_last_rate_stays():
    rates = seen(
        (view(10, 9.0, 5, 500, 0, BUSY), 10.0),
        (view(11, 11.0, 6, 900, 0, BUSY), 11.0),
        (view(12, 11.0, 6, 900, 0, BUSY), 12.0),
    )
    assert rates.speed.read == pytest.approx(200.0)


def test_what_was_long_ago_is_not_compared_with():
    first = view(10, 10, 5, 500, 20, row(2, 9.0))
    rates = seen((first, 10.0), (first, 11.0), (view(60, 60, 90, 900, 90, row(80, 59.0)), 60.0))
    assert rates.speed == Speed(None, None, None)
    assert rates.decode == {"a": pytest.approx(79 / 58)}


def test_idle_is_zero_and_the_wait_before_a_request_does_not_count():
    idle = view(10, 3.0, 5, 500, 20)
    rates = seen((idle, 10.0), (idle, 11.0))
    assert (rates.speed.read, rates.speed.decode, rates.speed.step_s) == (0.0, 0.0, None)
    rates = seen((idle, 10.0), (view(11, 10.8, 7, 580, 20, BUSY), 11.0))
    assert rates.speed.read == pytest.approx(80 / 0.8)


def test_what_was_done_before_the_end_counts_against_the_whole_second():
    rates = seen((view(10, 9.9, 5, 500, 20, BUSY), 10.0), (view(10.2, 10.1, 6, 500, 30), 11.0))
    assert rates.speed.decode == pytest.approx(10 / 1.1)


def test_a_row_s_rate_is_of_the_last_second():
    rates = seen((view(10, 10, 5, 0, 0, row(5, 9.8)), 10.0))
    assert rates.decode == {"a": pytest.approx(4 / 8.8)}  # since its first token
    rates.see(view(11, 11, 9, 0, 0, row(25, 10.8)), 11.0)
    assert rates.decode == {"a": pytest.approx(20.0)}
    rates.see(view(11, 11, 9, 0, 0, row(25, 10.8)), 11.2)  # less than the rate's pause
    assert rates.decode == {"a": pytest.approx(1 / 0.4)}
    rates.see(view(11, 11, 9, 0, 0, row(25, 10.8)), 12.8)
    assert rates.decode == {"a": pytest.approx(0.5)}
    rates.see(view(13, 13, 9, 0, 0, row(26, 12.9)), 13.0)
    assert rates.decode == {"a": pytest.approx(1 / 2.1)}


def test_who_has_no_two_tokens_has_no_rate():
    early = row(0, None, "b", None)
    assert seen((view(10, 10, 5, 0, 0, early, row(1, 1.0)), 10.0)).decode == {}
