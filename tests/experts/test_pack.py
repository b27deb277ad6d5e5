"""Packing: all of the file or a clear message, whatever happens, and nothing done twice."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packing import EXPERTS, PRINT, SIZES, CopyingKernels, contents, model

from strata.experts.layout import INDEX, RECORDS, ExpertLayout
from strata.experts.pack import pack, records_for
from strata.files import ModelFile
from strata.memory.arena import SlotArena
from strata.types import StorageError

ALL = EXPERTS * len(SIZES)
PART, JOURNAL = RECORDS + ".part", "experts.journal"
pwrite = os.pwrite


def write(folder: Path, **changes: object) -> int:
    """Packs the model; how many experts that took."""
    kernels = CopyingKernels()
    pack(model()[1], kernels, folder, PRINT, **changes)
    assert (folder / RECORDS).read_bytes() == contents(model()[1])
    assert not (folder / PART).exists() and not (folder / JOURNAL).exists()
    return kernels.packed


def stop_at(folder: Path, monkeypatch: pytest.MonkeyPatch, place: int, code: int) -> None:
    """Fails packing with an error in the second expert of a place."""
    layout = ExpertLayout.of(model()[1], CopyingKernels())
    limit = layout.places[place].offset + layout.places[place].record

    def failing(fd: int, view: memoryview, at: int) -> int:
        if at >= limit:
            raise OSError(code, os.strerror(code))
        return pwrite(fd, view, at)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", failing)
        pack(model()[1], CopyingKernels(), folder, PRINT)


def test_progress_goes_from_nothing_to_all(tmp_path: Path) -> None:
    told, said = list[tuple[str, int, int | None]](), list[str]()
    folder = tmp_path / "new" / "folder"
    write(folder, progress=lambda *one: told.append(one), report=said.append)
    size = (folder / RECORDS).stat().st_size
    assert told[0] == ("packing experts", 0, size) and told[-1] == ("packing experts", size, size)
    assert [one[1] for one in told] == sorted(one[1] for one in told) and len(told) > len(SIZES)
    (only,) = said
    assert f"{size / 1024:.1f} KiB into {folder}" in only and "are free" in only


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "disk is full.*is kept.*make room"),
        (errno.EDQUOT, "disk is full"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_disk_that_fails_in_the_middle_and_then_goes_on(
    tmp_path: Path, code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageError, match=words) as raised:
        stop_at(tmp_path, monkeypatch, 2, code)
    assert str(tmp_path) in str(raised.value)
    said = list[str]()
    assert write(tmp_path, report=said.append) == EXPERTS  # those of the last place
    assert "that are there" in said[0]


def test_a_real_limit_in_the_middle(tmp_path: Path) -> None:
    """The system itself refuses to let the file grow."""
    code = (
        "import resource, packing, pathlib\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.RLIM_INFINITY))\n"
        f"at = pathlib.Path({str(tmp_path)!r})\n"
        "packing.pack(packing.model()[1], packing.CopyingKernels(), at, packing.PRINT)\n"
    )
    done = run("-c", code)
    assert done.returncode and "StorageError: the disk is full" in done.stderr
    assert write(tmp_path) == 2 * EXPERTS


def test_too_little_room_is_said_before_anything_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need = len(contents(model()[1]))

    class Small:
        f_frsize = 512
        f_bavail = need // 512 - 1

    kernels = CopyingKernels()
    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", lambda path: Small)
        with pytest.raises(StorageError, match=r"takes [\d.]+ KiB .* only [\d.]+ KiB free.*--out"):
            pack(model()[1], kernels, tmp_path, PRINT)
        assert kernels.packed == 0
        Small.f_bavail += 1
        write(tmp_path)


def test_killed_anywhere_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    done = run(str(Path(__file__).with_name("packing.py")), str(tmp_path))
    assert done.returncode == 0, done.stderr
    packed = list(map(int, done.stdout.split()))
    assert len(packed) > ALL + 3 * len(SIZES)  # places to be killed at
    # Never more than what was not finished: a mixture's records are packed once.
    assert set(packed) == {ALL, ALL - EXPERTS, ALL - 2 * EXPERTS, 0}
    assert packed[0] == ALL and packed[-1] == 0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    here = Path(__file__).parent
    env = {**os.environ, "PYTHONPATH": f"{here.parents[1]}:{here}"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, env=env
    )


def test_a_mixture_is_noted_only_after_it_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a crash of the machine: whatever a line of the journal speaks of was synced before."""
    events, fsync, replace = list[str](), os.fsync, os.replace

    def synced(fd: int) -> None:
        events.append("sync " + Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        fsync(fd)

    def written(fd: int, view: memoryview, at: int) -> int:
        events.append("write")
        return pwrite(fd, view, at)

    def named(source: Path, target: Path) -> None:
        events.append(f"name {target.name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", named)
    monkeypatch.setattr(os, "pwrite", written)
    write(tmp_path)
    one = ["write"] * EXPERTS + [f"sync {PART}", f"sync {JOURNAL}"]
    first = events.index("write")
    last = [f"sync {INDEX}.part", f"name {INDEX}", f"name {RECORDS}", f"sync {tmp_path.name}"]
    assert events[first:] == one * len(SIZES) + last


@pytest.mark.parametrize("place", range(2))
def test_what_is_gone_on_from_is_checked(
    tmp_path: Path, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last noted mixture's bytes changed: it is packed again, the one before it is not."""
    with pytest.raises(StorageError):
        stop_at(tmp_path, monkeypatch, place + 1, errno.ENOSPC)
    layout = ExpertLayout.of(model()[1], CopyingKernels())
    with open(tmp_path / PART, "r+b") as file:
        file.seek(layout.places[place].offset + 9)
        file.write(b"???")
    assert write(tmp_path) == ALL - place * EXPERTS


@pytest.mark.parametrize("cut", [1, 30])
def test_a_torn_line_of_the_journal_is_not_believed(
    tmp_path: Path, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageError):
        stop_at(tmp_path, monkeypatch, 2, errno.ENOSPC)
    whole = (tmp_path / JOURNAL).read_bytes()
    (tmp_path / JOURNAL).write_bytes(whole[:-cut])
    assert write(tmp_path) == ALL - EXPERTS


def test_what_was_begun_for_something_else_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageError):
        stop_at(tmp_path, monkeypatch, 2, errno.ENOSPC)
    kernels = CopyingKernels()
    pack(model(seed=1)[1], kernels, tmp_path, "e" * 64)
    assert kernels.packed == ALL
    assert (tmp_path / RECORDS).read_bytes() == contents(model(seed=1)[1])


# ------------------------------------------------------------------ records_for


def read_all(file: ModelFile, layers: list, folder: Path | None, **changes: object) -> int:
    """Opens the records, checks every one; how many experts were packed for that."""
    kernels = CopyingKernels()
    layout, records = records_for(file, layers, kernels, folder, **changes)
    slots, whole = SlotArena(1, 1 << 16).data[0], b""
    for number, size in enumerate(layout.sizes().tolist()):
        records.read(number, slots[:size])
        whole += slots[:size].numpy().tobytes()
    assert whole == contents(layers)
    records.close()
    return kernels.packed


def test_records_are_packed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert read_all(*model(), None) == ALL
    assert read_all(*model(), None) == 0
    assert read_all(*model(seed=1), None) == ALL  # of the same name, beside the first
    assert read_all(*model(), None) == 0
    assert read_all(*model(), None, again=True) == ALL
    folders = [path.name for path in (tmp_path / "strata" / "records").iterdir()]
    assert len(folders) == 2 and all(name.startswith("toy-") for name in folders)


def test_another_models_records_are_refused_until_told(tmp_path: Path) -> None:
    assert read_all(*model(), tmp_path) == ALL
    with pytest.raises(StorageError, match="of another model"):
        read_all(*model(seed=1), tmp_path)
    assert read_all(*model(), tmp_path) == 0  # nothing was lost
    assert read_all(*model(seed=1), tmp_path, again=True) == ALL


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot pack the experts into .*file"):
        read_all(*model(), tmp_path / "file")
