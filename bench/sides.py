"""The programs that are compared, each in a process of its own, and what both are given.

Knows how a program is started and asked; not what is measured with it.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import venv
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PEER = "xllamacpp==2026.10.11549"


def prompt(length: int, seed: int) -> list[int]:
    """Random token ids: no two prompts share a prefix."""
    source = random.Random(seed)
    return [source.randrange(1000, 30_000) for _ in range(length)]


class Side:
    """One program in a process of its own, asked by JSON lines."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.facts: dict[str, str] = self._read()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def ask(self, op: str, **what: Any) -> Any:
        """Have one measurement made."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op} | what) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args!r} ended: see its message above")
        return json.loads(line)

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def peer_python(folder: Path) -> Path:
    """The interpreter of a venv that holds llama.cpp; made the first time."""
    at = folder / "bench" / PEER.replace("==", "-")
    python = at / "bin" / "python"
    if not (at / "ready").exists():
        print(f"installing {PEER} into {at}", file=sys.stderr)
        venv.create(at, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", PEER], check=True)
        (at / "ready").touch()
    return python


@cache
def _read_rate_program() -> Path | None:
    """`read_rate.c`, compiled for this machine; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    program = Path(tempfile.mkdtemp(prefix="strata-bench-")) / "read_rate"
    flags = ["-O3", "-march=native", "-pthread"]
    subprocess.run([compiler, *flags, HERE / "read_rate.c", "-o", program], check=True)
    return program


def read_rate(threads: int) -> float | None:
    """Bytes a second that memory delivers to so many threads now; None without a compiler."""
    program = _read_rate_program()
    if program is None:
        return None
    command = [str(program), str(threads)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
