"""Journal: how far the packing of a record file has come, for whoever goes on after a kill.

A text file beside the unfinished record file: a line that says what is being packed, then one for
each finished mixture with its records' checksums. A line is added, and made durable, only after
the records it speaks of are; what a kill left of a line is cut off. Knows no records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Journal:
    """Lines on disk and, in `sums`, what they say: a list of checksums for each mixture."""

    def __init__(self, path: Path, head: Mapping[str, Any], count: int) -> None:
        """Goes on with the journal at `path` if it is of the same packing as `head` (plain JSON),
        else begins one. `count`: checksums of a mixture. Raises OSError.
        """
        self._path = path
        self._head = json.dumps(head)
        self.sums: list[list[int]] = []
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        if lines and lines[0] == self._head.encode():
            for line in lines[1:]:
                try:
                    sums = list(map(int, json.loads(line)))
                except (ValueError, TypeError):
                    break
                if len(sums) != count:
                    break
                self.sums.append(sums)
        self._rewrite()

    def add(self, sums: list[int]) -> None:
        """Notes that one more mixture lies on the disk."""
        self.sums.append(sums)
        with open(self._path, "ab") as file:
            _write(file, [json.dumps(sums)])

    def drop_last(self) -> None:
        """Forgets the last mixture, whose records are not what was noted."""
        self.sums.pop()
        self._rewrite()

    def remove(self) -> None:
        """Deletes it, once there is nothing left to go on with."""
        self._path.unlink(missing_ok=True)

    def _rewrite(self) -> None:
        fresh = self._path.with_name(self._path.name + ".part")
        with open(fresh, "wb") as file:
            _write(file, [self._head, *map(json.dumps, self.sums)])
        os.replace(fresh, self._path)


def _write(file: Any, lines: list[str]) -> None:
    file.write("".join(f"{line}\n" for line in lines).encode())
    file.flush()
    os.fsync(file.fileno())
