"""`--threads` bounds who computes: one OpenMP runtime, and no second busy thread beside one."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import os, sys, time
from pathlib import Path
import torch
from strata import kernels
from strata.kernels import native_pack
from strata.kernels.quant import Format, QTensor
from strata.types import Backend

chosen = kernels.choose(Backend.NATIVE, "cpu", int(sys.argv[1]))
assert torch.get_num_threads() == int(sys.argv[1])
before = set(os.listdir("/proc/self/task"))
data = torch.zeros(2048 * 1024 // 32 * 18, dtype=torch.uint8)
chosen._pack.linear(QTensor(data, Format.Q4_0, 2048, 1024))
torch.ones(1 << 20).mul(2.0).sum()
new = set(os.listdir("/proc/self/task")) - before
maps = Path("/proc/self/maps").read_text().splitlines()
print(len({line.split()[-1] for line in maps if "gomp" in line}), len(new))
"""


def started(threads: int) -> tuple[int, int]:
    """OpenMP runtimes of a process, and threads that packing and torch start in it."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(threads)], capture_output=True, text=True, check=True
    )
    runtimes, new = done.stdout.split()
    return int(runtimes), int(new)


def test_one_runtime_and_no_more_threads_than_asked_for() -> None:
    assert started(1) == (1, 0)
    assert started(3) == (1, 2)
