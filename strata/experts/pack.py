"""Packing: the experts of a model, each laid out as the kernels want it, into one record file.

`records_for` opens the record file of a model, and packs it first where there is none. Packing
can be killed at any moment and goes on where it was: `journal.py` tells how. A record for each
thread is in memory at a time, and neither the source nor the records stay in the page cache.
"""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strata.config import records_folder
from strata.experts.fingerprint import fingerprint_of
from strata.experts.journal import Journal
from strata.experts.layout import INDEX, RECORDS, VERSION, ExpertLayout, Index, Layers, Place
from strata.files import ModelFile
from strata.kernels import Kernels
from strata.kernels.moe import Expert
from strata.memory.arena import SlotArena
from strata.memory.budget import show_bytes
from strata.memory.disk import RecordFile, RecordWriter
from strata.memory.mapped import done_with, will_need
from strata.types import ProgressSink, StorageError, silent

_PART, _JOURNAL, _LOCK = f"{RECORDS}.part", "experts.journal", "experts.lock"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PASSED = 64 << 20  # bytes of the source that may lie behind us in memory
Report = Callable[[str], None]


def records_for(
    file: ModelFile,
    layers: Layers,
    kernels: Kernels,
    folder: Path | None = None,
    progress: ProgressSink = silent,
    report: Report = lambda text: None,
    again: bool = False,
) -> tuple[ExpertLayout, RecordFile]:
    """The records of the model in `file`, whose mixtures are `layers` (one at least).

    `folder` None is one in the user's cache. `report` is told how much disk is needed before it
    is used. `again` packs even if there are records. StorageError when those that are there cannot
    be used, or none can be written.
    """
    fingerprint = fingerprint_of(file, layers)
    if folder is None:
        stem = file.path.stem if file.kind == "gguf" else file.path.resolve().name
        folder = records_folder() / f"{stem}-{fingerprint[:16]}"
    if again:
        _remove(folder)
    if not (folder / RECORDS).exists():
        pack(layers, kernels, folder, fingerprint, progress, report)
    layout = ExpertLayout.of(layers, kernels)
    return layout, Index.load(folder).open(folder, fingerprint, layout, kernels.packing)


def pack(
    layers: Layers,
    kernels: Kernels,
    folder: Path,
    fingerprint: str,
    progress: ProgressSink = silent,
    report: Report = lambda text: None,
) -> None:
    """Writes the record file and its index into `folder`, or goes on with that; tells `progress`
    of bytes. StorageError when the disk is too small or broken; what was written by then stays, to
    go on with.
    """
    layout = ExpertLayout.of(layers, kernels)
    head = {"version": VERSION, "fingerprint": fingerprint, "packing": kernels.packing}
    head["places"] = [asdict(place) for place in layout.places]

    def tell(done: int) -> None:
        progress("packing experts", done, layout.nbytes)

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            if (folder / RECORDS).exists():
                # Another process packed it while we waited, or we were killed a moment too early.
                (folder / _JOURNAL).unlink(missing_ok=True)
                return
            journal = Journal(folder / _JOURNAL, head, layout.experts)
            start = _checked(journal, layout, folder / _PART)
            with RecordWriter(folder / _PART, start) as out:
                _sync_folder(folder)
                _announce(folder, layout.nbytes, start, report)
                for place, (_, experts) in islice(
                    zip(layout.places, layers, strict=True), len(journal.sums), None
                ):
                    journal.add(_write(place, experts, kernels, out, tell))
            Index(layout, _flat(journal), fingerprint, kernels.packing).save(folder)
            os.replace(folder / _PART, folder / RECORDS)
            _sync_folder(folder)
            journal.remove()
    except OSError as error:
        raise _failed(folder, error) from error
    tell(layout.nbytes)


def _remove(folder: Path) -> None:
    """Deletes the records in a folder, finished or not. StorageError."""
    try:
        for name in (RECORDS, INDEX, _PART, _JOURNAL):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"cannot delete the records in {folder}: {error.strerror}") from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits for any other process that packs into this folder."""
    with open(folder / _LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # closing gives it back
        yield


def _sync_folder(folder: Path) -> None:
    """Makes the names of the files in it durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _checked(journal: Journal, layout: ExpertLayout, path: Path) -> int:
    """Where to go on writing. Drops mixtures from the journal until the last one's records, on the
    disk, are what was noted: the only ones that a crash can have hit.
    """
    while journal.sums:
        last = layout.places[len(journal.sums) - 1]
        try:
            _read_last(layout.open(path, _flat(journal)), last)
        except StorageError:
            journal.drop_last()
        else:
            return last.offset + last.count * last.record
    return 0


def _read_last(records: RecordFile, place: Place) -> None:
    """Reads, and so checks, the records of the last place. StorageError."""
    record, count = SlotArena(1, place.record).data[0], len(records.sizes)
    try:
        for number in range(count - place.count, count):
            records.read(number, record)
    finally:
        records.close()


def _flat(journal: Journal) -> npt.NDArray[np.uint32]:
    return np.array(journal.sums, np.uint32).reshape(-1)


def _announce(folder: Path, nbytes: int, start: int, report: Report) -> None:
    """Says what is needed. StorageError when there is less."""
    disk = os.statvfs(folder)
    free, need = disk.f_bavail * disk.f_frsize, nbytes - start
    if need > free:
        raise StorageError(
            f"packing the experts takes {show_bytes(need)} of disk, but {folder} has only"
            f" {show_bytes(free)} free: make room, or choose a folder on another disk with"
            " `strata pack --out`"
        )
    if need:
        done = f", after {show_bytes(start)} that are there" if start else ""
        report(f"packing   {show_bytes(need)} into {folder}{done} ({show_bytes(free)} are free)")


def _write(
    place: Place,
    experts: Sequence[Expert],
    kernels: Kernels,
    out: RecordWriter,
    tell: Callable[[int], None],
) -> list[int]:
    """Appends the records of one mixture, durably; their checksums. `tell`s of bytes written."""
    threads = torch.get_num_threads()
    # All zeros; each expert leaves the same gaps in it.
    records = SlotArena(threads, place.record).data

    def fill(expert: Expert, record: Tensor) -> int:
        assert kernels.expert_form(expert) == place.form
        kernels.pack_expert(expert, record[: place.form.nbytes])
        return zlib.crc32(record.numpy().data)

    sums, passed = list[int](), list[Tensor]()
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, place.count, threads):
            tell(place.offset + first * place.record)
            some = experts[first : first + threads]
            will_need(_matrices(experts[first + threads : first + 2 * threads]))
            sums += pool.map(fill, some, records[: len(some)])
            for record in records[: len(some)]:
                out.write(record)
            passed += _matrices(some)
            if sum(matrix.nbytes for matrix in passed) > _PASSED or len(sums) == place.count:
                done_with(passed)
                passed.clear()
    out.sync()
    return sums


def _matrices(experts: Sequence[Expert]) -> list[Tensor]:
    """What is mapped of them."""
    held = [q.held for one in experts for q in (one.gate, one.up, one.down)]
    return [data for data in held if isinstance(data, Tensor)]


def _failed(folder: Path, error: OSError) -> StorageError:
    if error.errno not in _FULL:
        return StorageError(f"cannot pack the experts into {folder}: {error.strerror or error}")
    return StorageError(
        f"the disk is full: cannot write all of the experts into {folder}. What is there is kept:"
        " make room and try again, or choose a folder on another disk with `strata pack --out`"
    )
