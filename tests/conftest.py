"""Fixtures of the whole suite."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model's GGUF: STRATA_TEST_MODEL, or fetched as `strata serve` does."""
    given = os.environ.get("STRATA_TEST_MODEL")
    if given:
        return Path(given)
    if importlib.util.find_spec("strata.files.fetch") is None:
        pytest.skip("set STRATA_TEST_MODEL to the default model's GGUF")
    from strata.files import fetch

    return Path(fetch.default_model())
