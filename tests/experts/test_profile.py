"""Profiles through files, whole and damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from strata.experts.profile import load, save
from strata.types import ConfigError, StorageError


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "new" / "profile"
    assert load(path, 3, 4) is None
    wanted = np.random.default_rng(0).random(12)
    save(path, wanted, 3)
    found = load(path, 3, 4)
    assert found is not None and (found == wanted).all()
    assert [one.name for one in path.parent.iterdir()] == ["profile"]


def test_what_is_no_profile_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "profile"
    save(path, np.ones(12), 3)
    with pytest.raises(ConfigError, match="4 layers of 3 experts"):
        load(path, 4, 3)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="cannot read"):
        load(path, 3, 4)
    save(path, np.array([1.0, np.nan]), 1)
    with pytest.raises(ConfigError, match="damaged"):
        load(path, 1, 2)
    with pytest.raises(StorageError, match="cannot write"):
        save(path / "below", np.ones(1), 1)
