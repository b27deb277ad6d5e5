"""Fixtures of the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from strata import config
from strata.files import fetch


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
