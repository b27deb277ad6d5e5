"""Record files: the bytes that were written or an error, whatever the disk does."""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from strata.memory.arena import SlotArena
from strata.memory.disk import ALIGN, RecordFile, RecordWriter, best_depth
from strata.types import StorageError

PAGES = (3, 1, 7, 1, 2, 16, 5)  # of each record
SIZES = np.array(PAGES, np.int64) * ALIGN
OFFSETS = np.cumsum(SIZES) - SIZES
DATA = np.random.default_rng(0).integers(0, 256, int(SIZES.sum()), np.uint8)
preadv, open_, pwrite = os.preadv, os.open, os.pwrite


def record(number: int) -> bytes:
    return DATA[OFFSETS[number] : OFFSETS[number] + SIZES[number]].tobytes()


def slot(nbytes: int) -> torch.Tensor:
    return SlotArena(1, nbytes).data[0]


def is_direct(fd: int) -> bool:
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "records"
    path.write_bytes(DATA.tobytes())
    return path


def opened(path: Path) -> RecordFile:
    sums = [zlib.crc32(record(i)) for i in range(len(PAGES))]
    return RecordFile(path, OFFSETS, SIZES, np.array(sums, np.uint32))


def got(file: RecordFile, number: int) -> bytes:
    into = slot(int(SIZES[number]))
    file.read(number, into)
    return into.numpy().tobytes()


def refuse_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(path, flags, *rest, **more):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return open_(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refusing)


def refuse_transfers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(call: Callable) -> Callable:
        def wrapped(fd, *rest):
            if is_direct(fd):
                raise OSError(errno.EINVAL, "Invalid argument")
            return call(fd, *rest)

        return wrapped

    monkeypatch.setattr(os, "preadv", refusing(preadv))
    monkeypatch.setattr(os, "pwrite", refusing(pwrite))


@pytest.mark.parametrize("refuse", [lambda m: None, refuse_open, refuse_transfers])
def test_records_are_what_was_written(
    path: Path, refuse: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = set[tuple[int, int]]()
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, at, size, how: dropped.add((at, size)))
    refuse(monkeypatch)
    file = opened(path)
    numbers = [*range(len(PAGES)), *reversed(range(len(PAGES)))] * 4
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda n: got(file, n), numbers)) == list(map(record, numbers))
    if refuse in (refuse_open, refuse_transfers):
        assert not file._file.current[1]
        assert dropped == set(zip(OFFSETS.tolist(), SIZES.tolist(), strict=True))
    file.close()


def test_a_file_that_cannot_be_opened(path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere: No such file"):
        opened(path.with_name("nowhere"))


class Disk:
    """Stands for os.preadv: `faults` are what the next reads do, then all is well."""

    def __init__(self, faults: list[object]) -> None:
        self.faults, self.reads = faults, 0

    def __call__(self, fd: int, buffers: list[memoryview], offset: int) -> int:
        self.reads += 1
        count = preadv(fd, buffers, offset)
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, OSError):
            raise fault
        if fault == "short":
            buffers[0][-ALIGN:] = bytes(ALIGN)
            return count - ALIGN
        if fault == "garbled":
            buffers[0][5] ^= 16
        return count


EIO = OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize(
    ("faults", "reads"),
    [
        (["short"], 2),
        ([EIO], 2),
        ([EIO, "short", EIO], 4),
        (["garbled"], 2),
        ([EIO, "garbled", "short"], 4),
    ],
)
def test_what_passes_is_tried_again(
    path: Path, faults: list, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, disk = opened(path), Disk(list(faults))
    monkeypatch.setattr(os, "preadv", disk)
    assert got(file, 2) == record(2)
    assert disk.reads == reads


@pytest.mark.parametrize(
    ("fault", "said", "reads"),
    [
        ("short", rf"only {6 * ALIGN} of {7 * ALIGN} bytes", 4),
        (EIO, "Input/output error", 4),
        ("garbled", "checksum", 2),
    ],
)
def test_what_does_not_pass_is_an_error(
    path: Path, fault: object, said: str, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, disk = opened(path), Disk([fault] * 99)
    monkeypatch.setattr(os, "preadv", disk)
    with pytest.raises(StorageError, match=said) as raised:
        got(file, 2)
    assert f"record 2 of {path}" in str(raised.value)
    assert "strata pack --force" in str(raised.value)
    assert disk.reads == reads
    monkeypatch.undo()
    assert got(file, 2) == record(2)  # the failure left no trace


def test_a_flipped_byte_is_found_on_the_first_read(path: Path) -> None:
    file = opened(path)
    assert got(file, 1) == record(1)
    with open(path, "r+b") as raw:
        raw.seek(int(OFFSETS[5]) + 1000)
        raw.write(bytes([record(5)[1000] ^ 1]))
    for _ in range(2):  # a record that failed is not taken for a checked one
        with pytest.raises(StorageError, match=r"record 5 of .* is damaged"):
            got(file, 5)
    assert got(file, 4) == record(4) and got(file, 6) == record(6)


def test_a_file_that_is_cut_short_while_it_is_open(path: Path) -> None:
    file = opened(path)
    os.truncate(path, int(OFFSETS[6]) + ALIGN)
    assert got(file, 5) == record(5)
    with pytest.raises(StorageError, match=f"only {ALIGN} of {5 * ALIGN} bytes"):
        got(file, 6)


def test_rates_are_those_of_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(fd: int, buffers: list[memoryview], offset: int) -> int:
        waiting.wait(len(buffers[0]) / (64 * ALIGN) * 0.02)  # 64 pages in 20 ms, at any depth
        return preadv(fd, buffers, offset)

    import threading

    waiting = threading.Event()
    file = opened(path)
    monkeypatch.setattr(os, "preadv", slow)
    rates = file.rates((1, 3), 0.2)
    nominal = 64 * ALIGN / 0.02
    assert 0.4 * nominal < rates[1] < 1.05 * nominal
    assert 2 * rates[1] < rates[3] < 3.2 * nominal
    monkeypatch.setattr(os, "preadv", Disk([EIO] * 999))
    with pytest.raises(StorageError):
        file.rates((2,), 0.1)


def test_the_depth_is_the_smallest_that_is_about_as_fast() -> None:
    assert best_depth({1: 50.0, 2: 96.0, 4: 100.0, 8: 98.0}) == 2
    assert best_depth({1: 50.0, 2: 94.0, 4: 98.0, 8: 100.0}) == 4
    assert best_depth({1: 100.0, 2: 60.0}) == 1


# ------------------------------------------------------------------ writing


def write(path: Path, first: int = 0) -> None:
    with RecordWriter(path, int(OFFSETS[first])) as out:
        for number in range(first, len(PAGES)):
            data = slot(int(SIZES[number]))
            data.numpy()[:] = np.frombuffer(record(number), np.uint8)
            out.write(data)
        out.sync()


@pytest.mark.parametrize("refuse", [lambda m: None, refuse_open, refuse_transfers])
def test_records_are_written_in_order(
    tmp_path: Path, refuse: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch)
    write(tmp_path / "new")
    assert (tmp_path / "new").read_bytes() == DATA.tobytes()


def test_writing_goes_on_and_cuts_off_what_lay_behind(tmp_path: Path) -> None:
    path = tmp_path / "half"
    half = bytearray(DATA.tobytes() + b"behind")
    half[int(OFFSETS[3]) :] = b"x" * (len(half) - int(OFFSETS[3]))
    path.write_bytes(half)
    write(path, first=3)
    assert path.read_bytes() == DATA.tobytes()


def test_short_writes_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not whole pages at a time: what is left may be refused by direct I/O.
    monkeypatch.setattr(os, "pwrite", lambda fd, view, at: pwrite(fd, view[:5000], at))
    write(tmp_path / "new")
    assert (tmp_path / "new").read_bytes() == DATA.tobytes()


def test_a_full_disk_is_an_oserror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, view: memoryview, at: int) -> int:
        if at >= OFFSETS[4]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(fd, view, at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / "new")
    assert (tmp_path / "new").read_bytes() == DATA.tobytes()[: int(OFFSETS[4])]
