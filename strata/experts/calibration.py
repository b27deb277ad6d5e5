"""Calibration: which settings were measured to be faster, kept beside the record file.

A small JSON file. One that is missing or not readable means that nothing was measured.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from strata.types import StorageError

_NAME = "calibration.json"


@dataclass(frozen=True, slots=True)
class Calibration:
    """`prefetch`: whether guesses pay. `prefill_chunk`: tokens of a prompt read in one step."""

    prefetch: bool = True
    prefill_chunk: int = 2048

    @classmethod
    def load(cls, folder: Path) -> Calibration:
        """What was found for the records in `folder`; the defaults without a measurement."""
        try:
            found = json.loads((folder / _NAME).read_text(encoding="utf-8"))
            prefetch, chunk = found["prefetch"], found["prefill_chunk"]
        except (OSError, ValueError, KeyError, TypeError):
            return cls()
        if not isinstance(prefetch, bool) or not isinstance(chunk, int) or chunk < 1:
            return cls()
        return cls(prefetch, chunk)

    def save(self, folder: Path) -> None:
        """Keep it for the next start. Raises StorageError."""
        path = folder / _NAME
        try:
            path.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
