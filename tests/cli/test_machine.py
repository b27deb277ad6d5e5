"""Counting cores from made-up /sys trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from strata.cli.machine import usable_cores


@pytest.fixture
def cpus(tmp_path: Path) -> Path:
    """Eight logical CPUs on four cores: 0 and 4 share one, and so on."""
    for number in range(8):
        folder = tmp_path / "cpu" / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{number % 4},{number % 4 + 4}\n")
    return tmp_path / "cpu"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("allowed", "cores"), [(range(8), 4), ({0, 4}, 1), ({0, 1, 2}, 3), ({3, 7, 5}, 2)]
)
def test_siblings_count_once(
    cpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: set[int], cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(allowed), raising=False)
    assert usable_cores(cpus, tmp_path) == cores


@pytest.mark.parametrize(
    ("file", "text", "cores"),
    [
        ("cpu.max", "200000 100000", 2),
        ("cpu.max", "150000 100000", 2),
        ("cpu.max", "50000 100000", 1),
        ("cpu.max", "max 100000", 4),
        ("cpu.max", "900000 100000", 4),
    ],
)
def test_a_quota_limits(
    cpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    write(tmp_path / "group" / file, text)
    assert usable_cores(cpus, tmp_path / "group") == cores


def test_the_older_cgroup_counts_too(
    cpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    write(tmp_path / "group" / "cpu" / "cpu.cfs_quota_us", "-1\n")
    write(tmp_path / "group" / "cpu" / "cpu.cfs_period_us", "100000\n")
    assert usable_cores(cpus, tmp_path / "group") == 4
    write(tmp_path / "group" / "cpu" / "cpu.cfs_quota_us", "300000\n")
    assert usable_cores(cpus, tmp_path / "group") == 3


def test_without_a_map_of_cores_each_cpu_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 5}, raising=False)
    assert usable_cores(tmp_path, tmp_path) == 3
