"""Profiles: how much each expert of a model was wanted, kept in a file from one run to the next."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from strata.types import ConfigError, StorageError

Popularity = npt.NDArray[np.float64]


def load(path: Path, places: int, experts: int) -> Popularity | None:
    """What `save` wrote, [places * experts]; None where there is no file yet. ConfigError when the
    file is no profile of such a model.
    """
    try:
        with open(path, "rb") as file:
            table = np.lib.format.read_array(file, allow_pickle=False)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, EOFError) as error:
        raise ConfigError(f"--expert-profile: cannot read {path}: {error}") from None
    if table.shape != (places, experts) or table.dtype != np.float64:
        raise ConfigError(
            f"--expert-profile: {path} is not of a model of {places} layers of {experts} experts"
        )
    if not (np.isfinite(table).all() and (table >= 0).all()):
        raise ConfigError(f"--expert-profile: {path} is damaged: delete it")
    return table.ravel()


def save(path: Path, popularity: Popularity, places: int) -> None:
    """Writes it, whole or not at all. StorageError when it cannot."""
    fresh = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(fresh, "wb") as file:
            table = popularity.astype(np.float64).reshape(places, -1)
            np.lib.format.write_array(file, table, allow_pickle=False)
        os.replace(fresh, path)
    except OSError as error:
        raise StorageError(f"cannot write the profile {path}: {error.strerror or error}") from None
