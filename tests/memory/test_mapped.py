"""Advice never changes bytes: not of mapped files, and not of memory that no file stands behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from strata.memory.mapped import done_with, will_need


def test_bytes_stay_what_they_are(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 256, 100_000, np.uint8)
    (tmp_path / "file").write_bytes(data.tobytes())
    mapped = torch.from_numpy(np.memmap(tmp_path / "file", np.uint8, "c"))
    own = torch.from_numpy(data.copy())
    for whole in (mapped, own):
        piece = whole[5_001:77_777]
        will_need([piece])
        done_with([piece])
        assert np.array_equal(whole.numpy(), data)


def test_memory_is_given_back(tmp_path: Path) -> None:
    size = 64 << 20
    with open(tmp_path / "file", "wb") as file:
        file.write(bytes(size))
        file.flush()
    mapped = torch.from_numpy(np.memmap(tmp_path / "file", np.uint8, "c"))
    before = resident()
    assert int(mapped.sum()) == 0
    assert resident() - before > size // 2
    pieces = mapped.split(300_000)  # as they come, each of them a part of what the system keeps
    done_with(reversed(pieces))
    assert resident() - before < size // 2


def resident() -> int:
    """Bytes of this process's files in memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssFile:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no RssFile")
