"""How many threads are worth starting: physical cores that this process may use.

Two threads of one core share its vector units, so hyper-threads only add waiting. A container's
CPU quota counts too: threads beyond it are stopped in the middle of a step.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cpus: Path = _CPUS, cgroup: Path = _CGROUP) -> int:
    """Physical cores within this process's affinity and its cgroup's quota; at least 1."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = len({_core(cpus, number) for number in os.sched_getaffinity(0)})
    quota = _quota(cgroup)
    return max(1, cores if quota is None else min(cores, math.ceil(quota)))


def _core(cpus: Path, number: int) -> str:
    """A name for the core that logical CPU `number` is a thread of."""
    siblings = cpus / f"cpu{number}" / "topology" / "thread_siblings_list"
    try:
        return siblings.read_text(encoding="ascii").strip()
    except OSError:
        return str(number)


def _quota(cgroup: Path) -> float | None:
    """CPUs' worth of time that the cgroup grants, or None for no limit."""
    try:
        limit, period = (cgroup / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        try:
            limit = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
        except OSError:
            return None
    return int(limit) / int(period) if limit.isdigit() and int(period) > 0 else None
