"""Rows from files through a bounded cache, against the bytes that were written into the files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

from strata.memory import row_reader
from strata.memory.row_reader import TablePart
from strata.memory.rows import RowCache
from strata.types import ConfigError, StorageError

OWN = 36  # bytes beside a row, as the docs say


class Table:
    """A table of random bytes in several files, and a cache of it with room for `slots` rows."""

    def __init__(self, folder: Path, row: int, rows: list[int], *, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.row = row
        self.want = rng.integers(0, 256, (sum(rows), row), dtype=np.uint8)
        starts = np.cumsum([0, *rows])
        self.parts: list[TablePart] = []
        self.files = [folder / f"{i}.bin" for i in range(2)]
        held = [bytearray(rng.bytes(int(rng.integers(1, 5000)))) for _ in self.files]
        places: dict[int, tuple[int, int]] = {}
        for part in rng.permutation(len(rows)).tolist():  # parts lie in any order
            file = int(rng.integers(2))
            held[file] += rng.bytes(int(rng.integers(0, 9000)))
            places[part] = file, len(held[file])
            held[file] += self.want[starts[part] : starts[part + 1]].tobytes()
        for path, data in zip(self.files, held, strict=True):
            path.write_bytes(data)
        for part, count in enumerate(rows):
            file, offset = places[part]
            self.parts.append(TablePart(self.files[file], offset, count))

    def cache(self, slots: int, at_once: int = 1) -> RowCache:
        return RowCache(self.parts, self.row, nbytes=slots * (self.row + OWN), at_once=at_once)

    def check(self, cache: RowCache, rows: np.ndarray) -> np.ndarray:
        slots = cache.fetch(rows)
        assert slots.dtype == np.int32
        assert np.array_equal(cache.table.numpy()[slots], self.want[rows])
        return slots


@pytest.mark.parametrize("row", [18, 90, 320, 640, 4096, 9001])
def test_rows_of_any_size_and_place(tmp_path: Path, row: int) -> None:
    table = Table(tmp_path, row, [700, 1, 3, 500, 1, 2000] if row < 4096 else [70, 1, 3, 50])
    total, rng = len(table.want), np.random.default_rng(1)
    for slots in (total // 20, total // 3, total):
        cache = table.cache(slots, at_once=slots)
        for step in range(60):
            few = rng.integers(0, total, int(rng.integers(1, slots + 1)))
            near = (few[:1] + rng.integers(0, 30, slots // 2)) % total  # among them duplicates
            rows = (few, near, np.arange(slots), few[:1])[step % 4]
            table.check(cache, rows.astype(np.int64))
        assert cache.table.shape == (slots, row)


def test_what_is_counted(tmp_path: Path) -> None:
    table, rng = Table(tmp_path, 90, [1000, 1000]), np.random.default_rng(2)
    cache, known, lookups, hits = table.cache(2000), set(), 0, 0
    for count in (1, 300, 300, 0, 900):
        rows = rng.integers(0, 2000, count)
        table.check(cache, rows)
        new = set(rows.tolist()) - known
        lookups, hits, known = lookups + count, hits + count - len(new), known | new
        told = cache.figures
        assert (told.lookups, told.hits) == (lookups, hits)
        assert (told.held, told.room) == (len(known) * (90 + OWN), 2000 * (90 + OWN))
    assert 0 < told.stall_s < 10 and told.nbytes % 4096 == 0
    table.check(cache, np.array(sorted(known)))
    assert (cache.figures.nbytes, cache.figures.stall_s) == (told.nbytes, told.stall_s)


def test_neighbours_come_with_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path, 320, [20_000])
    reads: list[int] = []
    plain = os.preadv

    def counting(fd: int, into: Any, at: int) -> int:
        reads.append(sum(map(len, into)))
        return plain(fd, into, at)

    monkeypatch.setattr(os, "preadv", counting)
    cache = table.cache(20_000)
    table.check(cache, np.arange(5000, 5100))  # 32,000 bytes
    assert len(reads) <= 2 and sum(reads) <= 10 * 4096 == cache.figures.nbytes
    reads.clear()
    table.check(cache, np.arange(0, 5000, 100))  # 32,000 bytes apart
    assert len(reads) == 50 and sum(reads) <= 100 * 4096
    reads.clear()
    table.check(cache, np.arange(20_000))
    assert sum(reads) <= 20_000 * 320 * 1.15


def test_the_longest_unused_give_way(tmp_path: Path) -> None:
    table = Table(tmp_path, 32, [10_000])
    cache = table.cache(800, at_once=100)
    often = np.arange(100)
    table.check(cache, often)
    for first in range(100, 9000, 60):
        before = cache.figures
        table.check(cache, often)
        assert cache.figures.hits - before.hits == 100, "used in each step"
        table.check(cache, np.arange(first, first + 60))
    before = cache.figures
    table.check(cache, np.arange(first - 300, first + 60))
    assert cache.figures.hits - before.hits == 360, "more than half of the slots are in use"
    table.check(cache, np.arange(100, 160))
    assert cache.figures.hits - before.hits == 360


def test_what_a_step_uses_stays_for_it(tmp_path: Path) -> None:
    table = Table(tmp_path, 32, [10_000])
    cache = table.cache(800, at_once=800)
    most = np.arange(750)
    table.check(cache, np.arange(800))
    table.check(cache, np.append(most, np.arange(1000, 1050)))  # all that is not in use gives way
    before = cache.figures
    table.check(cache, most)
    assert cache.figures.hits - before.hits == 750


def test_a_cache_too_small_for_a_step(tmp_path: Path) -> None:
    table = Table(tmp_path, 320, [5000])
    table.check(table.cache(4096, at_once=4096), np.arange(4096)[::-1].copy())
    with pytest.raises(ConfigError, match=r"4095 rows of 320 bytes.* 4096: .*at least 2MiB"):
        table.cache(4095, at_once=4096)
    every = table.cache(9000, at_once=9000)  # the whole table is enough for any step
    assert len(every.table) == 5000
    table.check(every, np.arange(5000))


# ------------------------------------------------------------------ failures


def failing(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int], int]) -> None:
    """Reads whose number `fails` gives an errno for do not happen; -1 is a short one."""
    plain, count = os.preadv, iter(range(10**9))

    def read(fd: int, into: Any, at: int) -> int:
        error = fails(next(count))
        if error > 0:
            raise OSError(error, os.strerror(error))
        return plain(fd, into, at) if not error else 100

    monkeypatch.setattr(os, "preadv", read)


@pytest.mark.parametrize("error", [errno.EIO, -1])
def test_a_read_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    table = Table(tmp_path, 90, [3000, 3000])
    failing(monkeypatch, lambda n: error if n % 8 in (0, 1) else 0)
    monkeypatch.setattr(row_reader, "_DEPTH", 1)
    cache = table.cache(6000)
    for rows in np.arange(6000).reshape(-1, 500)[::2]:
        table.check(cache, rows)


@pytest.mark.parametrize("error", [errno.EIO, -1])
def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    table = Table(tmp_path, 90, [3000, 3000])
    cache = table.cache(700, at_once=600)
    known = np.arange(500)
    table.check(cache, known)
    with monkeypatch.context() as patch:
        failing(patch, lambda n: error if n > 3 else 0)
        for _ in range(5):  # the slots that were meant for them are not lost
            with pytest.raises(StorageError, match=r"\.bin cannot be read at byte \d+.* disk well"):
                cache.fetch(np.arange(0, 6000, 10))
        before = cache.figures
    table.check(cache, known[::10])
    assert cache.figures.hits - before.hits == 50
    table.check(cache, np.arange(0, 6000, 10))
    table.check(cache, np.arange(700, 1300))


def test_a_failure_is_told_when_nothing_is_written_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, plain, over = Table(tmp_path, 90, [3000]), os.preadv, []

    def slow(fd: int, into: Any, at: int) -> int:
        if at < 2 * 4096:
            raise OSError(errno.EIO, "Input/output error")
        sleep(0.05)
        over.append(at)
        return plain(fd, into, at)

    monkeypatch.setattr(os, "preadv", slow)
    cache = table.cache(3000)
    with pytest.raises(StorageError):
        cache.fetch(np.arange(3000))
    count = len(over)
    sleep(0.15)
    assert len(over) == count > 0


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    table = Table(tmp_path, 90, [4000])
    cache = table.cache(4000)
    path = table.parts[0].path
    os.truncate(path, table.parts[0].offset + 2000 * 90)
    table.check(cache, np.arange(2000))
    with pytest.raises(StorageError, match="whole"):
        cache.fetch(np.arange(1990, 2010))


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    table = Table(tmp_path, 90, [10])
    table.parts[0].path.unlink()
    with pytest.raises(StorageError, match=r"cannot open .*\.bin: No such file"):
        table.cache(10)


@pytest.mark.parametrize("where", ["open", "preadv"])
def test_where_direct_reads_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    table, dropped, direct = Table(tmp_path, 90, [3000, 3000]), [], set()
    opened, read = os.open, os.preadv

    def open_(path: Any, flags: int, *mode: int) -> int:
        if flags & os.O_DIRECT and where == "open":
            raise OSError(errno.EINVAL, "Invalid argument")
        fd = opened(path, flags & ~os.O_DIRECT, *mode)
        direct.add(fd) if flags & os.O_DIRECT else direct.discard(fd)
        return fd

    def preadv(fd: int, into: Any, at: int) -> int:
        if fd in direct:
            raise OSError(errno.EINVAL, "Invalid argument")
        return read(fd, into, at)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(os, "posix_fadvise", lambda *what: dropped.append(what))
    cache = table.cache(1000, at_once=600)
    for rows in np.arange(6000).reshape(-1, 600):
        table.check(cache, rows)
    assert sum(length for _, _, length, advice in dropped if advice == os.POSIX_FADV_DONTNEED) > (
        6000 * 90
    )
