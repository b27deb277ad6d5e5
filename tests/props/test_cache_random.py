"""Random histories of the cache under a toy engine; see `sim.world` for what is checked.

Schedules, chunk and page budgets from "nothing else fits" up, aborts at every stage, preemption,
failed steps, dropped captures, namespaces, uncached requests, priorities; invariants after every
operation, outputs against an uncached run, progress within bounded steps.
"""

from __future__ import annotations

from collections import Counter

import pytest
from sim.fuzz import fuzz


@pytest.mark.parametrize("scarce", [True, False], ids=["scarce", "ample"])
@pytest.mark.parametrize("hybrid", [False, True], ids=["rows", "states"])
def test_random_histories(hybrid: bool, scarce: bool, scale: float, tried: Counter[str]) -> None:
    for seed in range(round((40 if scarce else 20) * scale)):
        try:
            world = fuzz(seed, hybrid, scarce)
        except AssertionError as error:
            raise AssertionError(f"fuzz({seed}, {hybrid}, {scarce}): {error}") from error
        tried["histories"] += 1
        tried["checks"] += world.checks
        tried["requests"] += len(world.all)
