"""Advice never changes bytes: not of mapped files, and not of memory that no file stands behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from strata.files import ModelFile, TensorEntry
from strata.memory.mapped import Mapped, done_with, will_need


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


def test_a_file_is_read_ahead_and_let_go(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 256, 8 << 20, np.uint8)
    data.tofile(tmp_path / "file")
    whole, own = np.memmap(tmp_path / "file", np.uint8, "r"), data[:5000].copy()
    parts = {"a": whole.view(np.ndarray)[100 : 7 << 20], "own": own}
    entries = {
        name: TensorEntry(name, 24, part.shape, part, tmp_path / "file", 0)
        for name, part in parts.items()
    }
    mapped = Mapped(ModelFile("gguf", tmp_path / "file", "llama", {}, entries))
    assert mapped.fits()
    mapped.read_ahead().join()
    before = resident()
    assert np.array_equal(whole, data)
    assert resident() - before > 6 << 20
    mapped.let_go()
    assert resident() - before < 2 << 20
    # What no file stands behind would have been lost.
    assert np.array_equal(own, data[:5000]) and np.array_equal(whole, data)
