"""How much memory this process may use: the machine's, or what its control groups leave of it.

Reads version 1 and version 2 of the groups, those above the process's own included. What was read
from files and can be read again counts as available.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class _Version:
    """Where a version of the control groups keeps what."""

    mount: str
    limit: str
    used: str
    cached: tuple[str, ...]  # lines of memory.stat


_V1 = _Version(
    "sys/fs/cgroup/memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)
_V2 = _Version("sys/fs/cgroup", "memory.max", "memory.current", ("inactive_file", "active_file"))


def machine_memory(root: Path = _ROOT) -> int:
    """Bytes of RAM this process may use at most."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([total, *(limit for limit, _ in _groups(root))])


def available_memory(root: Path = _ROOT) -> int:
    """Bytes of RAM that this process can take now without making the machine swap."""
    free = machine_memory(root)
    with suppress(OSError):
        free = min(free, 1024 * _table(root / "proc/meminfo").get("MemAvailable", free))
    return max(0, min([free, *(limit - used for limit, used in _groups(root))]))


def _groups(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use (without cached files) of each group that has a limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    parts = [line.split(":", 2) for line in lines if line.count(":") > 1]
    own = {names: path for _, names, path in parts}
    for version, path in ((_V1, own.get("memory", "/")), (_V2, own.get("", "/"))):
        top = root / version.mount
        group = top / path.lstrip("/")
        # In a container the path may be the host's: then only the top is there.
        for folder in [group, *group.parents][: len(group.parts) - len(top.parts) + 1]:
            with suppress(OSError, ValueError):
                limit = int((folder / version.limit).read_text(encoding="ascii"))
                used = int((folder / version.used).read_text(encoding="ascii"))
                stat = _table(folder / "memory.stat")
                yield limit, used - sum(stat.get(name, 0) for name in version.cached)


def _table(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    rows = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
