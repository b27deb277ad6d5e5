"""Scales these tests, and reports how much they tried."""

from collections import Counter

import pytest
from hypothesis import Phase

TRIED: Counter[str] = Counter()


@pytest.fixture
def scale(request: pytest.FixtureRequest) -> float:
    """Multiplier of the number of examples: --props-scale."""
    return float(request.config.getoption("--props-scale"))


@pytest.fixture
def phases(scale: float) -> list[Phase]:
    """What hypothesis does: below scale 1 (mutants) it does not look for a small example."""
    return list(Phase) if scale >= 1 else [Phase.explicit, Phase.generate]


@pytest.fixture
def tried() -> "Counter[str]":
    """Where a property adds what it has tried; shown at the end of the run."""
    return TRIED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TRIED:
        counts = ", ".join(f"{count} {what}" for what, count in sorted(TRIED.items()))
        terminalreporter.write_line(f"properties of the cache: {counts}")
