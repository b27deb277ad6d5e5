"""Runs the tests against injected bugs: each must be caught.

    python tests/mutate.py [GROUP ...] [--jobs 2] [--limit 60] [--every N] [--list]

Each mutant of `mutants.py` runs in a process of its own, in which the one module is loaded from
changed source text; nothing on disk changes. A mutant that makes its tests fail, crash or take
more processor time than the limit is caught. Prints a line for each and the score; exit 1 when
one was missed.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from mutants import MUTANTS, Mutant  # noqa: E402


class Source(importlib.abc.Loader):
    """Loads a module from source text."""

    def __init__(self, text: str, path: str) -> None:
        self.text, self.path = text, path

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.text, self.path, "exec"), module.__dict__)


class Finder(importlib.abc.MetaPathFinder):
    """Finds one module in another's place; comes before any editable install."""

    def __init__(self, name: str, loader: Source) -> None:
        self.name, self.loader = name, loader

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        return importlib.util.spec_from_loader(name, self.loader, origin=self.loader.path)


def path_of(mutant: Mutant) -> Path:
    """The module's source file."""
    base = ROOT.joinpath(*mutant.module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def mutated(mutant: Mutant) -> str:
    """The module's source with the bug in it."""
    path = path_of(mutant)
    text = path.read_text()
    found = text.count(mutant.old)
    assert found == 1, f"{mutant.module}: {mutant.why}: the text occurs {found} times"
    text = text.replace(mutant.old, mutant.new)
    compile(text, str(path), "exec")
    return text


def attempt(mutant: Mutant) -> int:
    """Run the tests with the mutant in place: pytest's exit status. For a child process."""
    import pytest

    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    sys.meta_path.insert(0, Finder(mutant.module, Source(mutated(mutant), str(path_of(mutant)))))
    for tests in mutant.tests:
        options = ["-x", "-q", "-p", "no:cacheprovider", "--props-scale=0.5", str(ROOT / tests)]
        status = int(pytest.main([*options, f"--rootdir={ROOT}"]))
        if status:
            return status
        for name in [name for name in sys.modules if name.startswith("test_")]:
            del sys.modules[name]
    return 0


def start(mutant: Mutant, limit: int) -> int:
    """Fork a child that tries one mutant; its process id."""
    child = os.fork()
    if child:
        return child
    status = 99
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        status = attempt(mutant)
    finally:
        os._exit(status)


def run(mutants: Sequence[Mutant], jobs: int, limit: int) -> list[Mutant]:
    """Try them all, `jobs` at once; those that were missed."""
    todo, missed, running = list(mutants), [], {}
    while todo or running:
        while todo and len(running) < jobs:
            mutant = todo.pop(0)
            running[start(mutant, limit)] = (mutant, time.monotonic())
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            time.sleep(0.05)
            continue
        mutant, begun = running.pop(child)
        code = os.waitstatus_to_exitcode(status)
        caught = code not in (0, 5)  # 5: no test was found
        if not caught:
            missed.append(mutant)
        verdict = ("caught" if code > 0 else "killed") if caught else "MISSED"
        seconds = time.monotonic() - begun
        print(f"{verdict} {seconds:5.1f}s  {mutant.module}: {mutant.why}", flush=True)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "groups", nargs="*", help="what to change, as cache or cache.seal; all when none is named"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--limit", type=int, default=60, help="processor seconds for one mutant")
    parser.add_argument("--every", type=int, default=1, help="only every n-th: a sample")
    parser.add_argument("--list", action="store_true", help="say what there is")
    wanted = parser.parse_args()
    names = tuple(f"strata.{group}" for group in wanted.groups) or ("strata",)
    chosen = [mutant for mutant in MUTANTS if mutant.module.startswith(names)][:: wanted.every]
    for mutant in chosen:
        mutated(mutant)
        if wanted.list:
            print(f"{mutant.module}: {mutant.why}")
    if wanted.list:
        return 0
    import hypothesis  # noqa: F401  (loaded once, for all children)
    import pytest  # noqa: F401

    begun = time.monotonic()
    missed = run(chosen, wanted.jobs, wanted.limit)
    caught = len(chosen) - len(missed)
    print(f"mutation score {caught}/{len(chosen)} in {time.monotonic() - begun:.0f} s")
    for mutant in missed:
        print(f"missed: {mutant.module}: {mutant.why}")
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
