"""Progress on a terminal and in a log."""

from __future__ import annotations

import io

from strata.cli.terminal import Progress


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_a_log_gets_the_start_and_each_quarter() -> None:
    out = io.StringIO()
    progress = Progress(out)
    for done in range(101):
        progress("weights", done, 100)
    assert out.getvalue().splitlines() == [
        f"  weights: {done} of 100 ({done} %)" for done in (0, 25, 50, 75, 100)
    ]


def test_a_terminal_line_is_rewritten_and_ended_once() -> None:
    out = Screen()
    progress = Progress(out)
    progress("weights", 0, 10)
    progress("weights", 10, 10)
    progress.close()
    assert out.getvalue() == (
        "\r\x1b[K  weights: 0 of 10 (0 %)\r\x1b[K  weights: 10 of 10 (100 %)\n"
    )


def test_a_step_that_did_not_finish_keeps_its_line() -> None:
    out = Screen()
    progress = Progress(out)
    progress("first", 1, 10)
    progress("second", 1, None)
    progress.close()
    assert out.getvalue().replace("\r\x1b[K", "") == "  first: 1 of 10 (10 %)\n  second ...\n"


def test_large_counts_are_bytes() -> None:
    out = io.StringIO()
    Progress(out)("downloading", 3 << 20, 12 << 20)
    assert out.getvalue() == "  downloading: 3.0 of 12.0 MiB (25 %)\n"
