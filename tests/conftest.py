"""Fixtures of the whole suite, and `sim` importable from all of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from strata import config
from strata.files import fetch

sys.path.insert(0, str(Path(__file__).parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--props-scale",
        type=float,
        default=1.0,
        help="multiplies the number of examples of the property tests (a soak: 20)",
    )


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model's GGUF: STRATA_TEST_MODEL, or fetched as `strata serve` does."""
    given = os.environ.get("STRATA_TEST_MODEL")
    if given:
        return Path(given)
    folder = config.cache_folder(config.environment()) / "models"
    return fetch.locate("", folder)
