"""What the clients need: their packages, installed once under build/clients, and a server."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from clients.script import script
from clients.world import World, serving

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "clients"


def installed(kind: str, pins: Path, install: Callable[[Path], None]) -> Path:
    """A folder made by `install` from the file of pins, once for each state of that file."""
    folder = BUILD / f"{kind}-{hashlib.sha256(pins.read_bytes()).hexdigest()[:12]}"
    if not (folder / "whole").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        install(folder)
        (folder / "whole").touch()
    return folder


def command(*words: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, f"{words[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter of an environment with the Python clients: pinned to the last, since
    resolving all of them at once can take pip very long."""
    pins = HERE / "requirements.txt"

    def install(folder: Path) -> None:
        command(sys.executable, "-m", "venv", folder)
        pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
        command(*pip, "install", "--quiet", "--no-deps", "--no-compile", "-r", pins)

    return installed("python", pins, install) / "bin" / "python"


@pytest.fixture(scope="session")
def node() -> Path:
    """A folder with the Node clients and the flows beside them."""
    npm, pins = shutil.which("npm"), HERE / "package-lock.json"
    if npm is None or shutil.which("node") is None:
        pytest.skip("no node and npm here: the Node clients are not tried")

    def install(folder: Path) -> None:
        for name in ("package.json", pins.name):
            shutil.copy(HERE / name, folder)
        command(npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", cwd=folder)

    folder = installed("node", pins, install)
    for flow in HERE.glob("flows/*.mjs"):
        shutil.copy(flow, folder)
    return folder


@pytest.fixture
def world(default_model: Path) -> Iterator[World]:
    with serving(default_model, script) as made:
        yield made
