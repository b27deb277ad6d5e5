"""The shape of the code: who may import whom, how long a module may be, where the environment is.

Parses the sources; imports nothing of strata, but for the checks that say so.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "strata"
LEVELS = [
    {"figures"},
    {"types", "settings"},
    {"config", "files"},
    {"memory", "kernels", "text"},
    {"cache", "experts", "synth"},
    {"models"},
    {"engine"},
    {"server"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
LONGEST = 400
TOTAL = 28_700
MODULES = sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    """`strata.engine.loop` for its file."""
    parts = list(path.relative_to(ROOT.parent).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    """Modules of strata that a file imports, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            assert node.module is not None
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return {name for name in found if name.split(".")[0] == "strata"}


def breaches(importer: str, imported: set[str]) -> list[str]:
    """Imports that the table of layers forbids."""
    own = importer.split(".")[1] if "." in importer else None
    wrong = []
    for target in sorted(imported):
        package = target.split(".")[1] if "." in target else None
        if package == own or package is None or package not in LEVEL:
            continue
        if own is None or LEVEL[package] >= LEVEL[own]:
            wrong.append(f"{importer} imports {target}")
        sees = target == "strata.engine" or target.startswith("strata.engine.client")
        if own == "server" and package == "engine" and not sees:
            wrong.append(f"{importer} sees {target}: of the engine only engine.client")
    return wrong


def test_every_package_has_a_level() -> None:
    packages = {path.stem for path in ROOT.glob("*.py")} | {
        path.parent.name for path in ROOT.glob("*/__init__.py")
    }
    assert packages - {"__init__"} == set(LEVEL)


def test_the_check_finds_breaches() -> None:
    assert breaches("strata.cache.trie", {"strata.engine.loop"})
    assert breaches("strata.text.stream", {"strata.kernels"})
    assert breaches("strata.files.gguf", {"strata.config"})
    assert breaches("strata.server.app", {"strata.engine.loop"})
    assert breaches("strata", {"strata.cli"})
    assert not breaches(
        "strata.server.app", {"strata.engine.client", "strata.types", "strata.figures", "strata"}
    )
    assert not breaches("strata.engine.loop", {"strata.engine.core", "strata.cache.trie"})


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_down_only(path: Path) -> None:
    assert breaches(name_of(path), imports(path)) == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= LONGEST
    assert ast.get_docstring(ast.parse(source)), "a module opens with a docstring"


def test_the_whole_stays_readable() -> None:
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES) <= TOTAL


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_the_environment_is_read_in_one_place(path: Path) -> None:
    if path == ROOT / "config.py":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("environ", "environb", "getenv", "putenv"), path
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            assert not {alias.name for alias in node.names} & {"environ", "getenv"}, path


@pytest.mark.parametrize(
    "package",
    ["types", "figures", "settings", "config", "files", "text", "cache", "synth", "server"],
)
def test_these_import_without_torch(package: str) -> None:
    """In a fresh interpreter where torch cannot be imported, every module of the package loads."""
    at = ROOT / package
    names = [name_of(path) for path in sorted(at.rglob("*.py"))] if at.is_dir() else []
    code = "import sys; sys.modules['torch'] = None\n"
    code += "".join(f"import {name}\n" for name in names or [f"strata.{package}"])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT.parent
    )
    assert done.returncode == 0, done.stderr
