"""Memory limits, read from made-up file trees of both versions of the control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata.memory.machine import available_memory, machine_memory

MIB = 2**20
HUGE = "9223372036854771712\n"


def write(root: Path, files: dict[str, str | int]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="ascii")
    return root


def v1(root: Path, group: str, limit: str | int, used: int, cached: int) -> None:
    folder = f"sys/fs/cgroup/memory/{group}"
    write(root, {f"{folder}/memory.limit_in_bytes": limit, f"{folder}/memory.usage_in_bytes": used})
    stat = f"inactive_file 7\ntotal_inactive_file {cached - 1}\ntotal_active_file 1"
    write(root, {f"{folder}/memory.stat": stat})


def test_a_group_of_version_1_and_the_one_above_it(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "3:cpu:/a/b\n4:memory:/a/b\n0::/"})
    write(tmp_path, {"proc/meminfo": f"MemTotal: 99 kB\nMemAvailable: {900 * 1024} kB"})
    v1(tmp_path, "a/b", HUGE, 60 * MIB, 20 * MIB)
    v1(tmp_path, "a", 100 * MIB, 60 * MIB, 20 * MIB)
    assert machine_memory(tmp_path) == 100 * MIB
    assert available_memory(tmp_path) == 60 * MIB  # the cached files of the 60 can go


def test_a_group_of_version_2(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/box", "proc/meminfo": "MemAvailable: 1000000 kB"})
    group = "sys/fs/cgroup/box/memory"
    write(tmp_path, {f"{group}.max": 64 * MIB, f"{group}.current": 40 * MIB})
    write(tmp_path, {f"{group}.stat": f"anon 5\ninactive_file {2 * MIB}\nactive_file {MIB}"})
    write(tmp_path, {"sys/fs/cgroup/memory.max": "max"})
    assert machine_memory(tmp_path) == 64 * MIB
    assert available_memory(tmp_path) == 27 * MIB


@pytest.mark.parametrize("line", ["4:memory:/of/the/host", "0::/of/the/host", ""])
def test_in_a_container_the_top_is_its_own_group(tmp_path: Path, line: str) -> None:
    write(tmp_path, {"proc/self/cgroup": line, "proc/meminfo": "MemAvailable: 1000000 kB"})
    v1(tmp_path, ".", 50 * MIB, 10 * MIB, 4 * MIB)
    assert (machine_memory(tmp_path), available_memory(tmp_path)) == (50 * MIB, 44 * MIB)


def test_without_groups_the_machine_says_what_is_available(tmp_path: Path) -> None:
    write(tmp_path, {"proc/meminfo": "MemFree: 1 kB\nMemAvailable: 3000 kB"})
    assert available_memory(tmp_path) == 3000 * 1024 < machine_memory(tmp_path)
