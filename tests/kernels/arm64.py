"""Cross-compiles the native sources for arm64 with zig (the `ziglang` wheel), which needs no root.

`python tests/kernels/arm64.py FOLDER -O2` builds tests/native/selfcheck.cpp there with NEON and
portable kernels, optimised as told, to be run on an arm64 Linux or by `qemu-aarch64`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
CPU = ROOT / "strata/kernels/cpu"
NATIVE = ROOT / "tests/native"
TARGET = ["-target", "aarch64-linux-musl"]
ISAS = {"portable": [], "neon": ["-mcpu=generic+v8_2a+dotprod"]}
FLAGS = [
    *("-std=c++20", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
    *("-fno-sanitize=all", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"),
    *("-Wno-unused-const-variable", f"-I{CPU}", "-DSTRATA_BUILT_neon=1"),
]


def zig(*arguments: str) -> None:
    """Runs zig; what it complains about is the assertion's text."""
    command = [sys.executable, "-m", "ziglang", *arguments]
    # Its cache is no concern of the user's home, which a test may not even have.
    cache = os.environ.get("ZIG_GLOBAL_CACHE_DIR") or str(ROOT / "build/zig")
    environment = os.environ | {"ZIG_GLOBAL_CACHE_DIR": cache}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{' '.join(arguments[-4:])}\n{done.stderr}"


def without_python() -> list[Path]:
    """The sources that need no header of Python or nanobind."""
    return [p for p in sorted(CPU.glob("*.cpp")) if "nanobind" not in p.read_text()]


def compile_all(folder: Path, optimise: str) -> list[str]:
    """Objects of every source, those of simd/ for each instruction set."""
    jobs: list[tuple[Path, list[str]]] = [(source, []) for source in without_python()]
    jobs += [(NATIVE / name, []) for name in ("selfcheck.cpp", "row_checks.cpp")]
    jobs.append((NATIVE / "bare.cpp", ["-fno-builtin"]))
    for isa, flags in ISAS.items():
        named = [*flags, f"-DSTRATA_ISA={isa}", f"-DSTRATA_ISA_{isa}=1"]
        jobs += [(source, named) for source in sorted((CPU / "simd").glob("*.cpp"))]

    def compile_one(number: int) -> str:
        source, flags = jobs[number]
        target = str(folder / f"{number}-{source.stem}.o")
        zig("c++", *TARGET, *FLAGS, *flags, optimise, "-c", str(source), "-o", target)
        return target

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(compile_one, range(len(jobs))))


def link(folder: Path, objects: list[str]) -> Path:
    """The program of selfcheck.cpp, without any library. Members that it does not need stay out."""
    program = folder / "selfcheck"
    needed = [o for o in objects if o.endswith(("-bare.o", "-selfcheck.o"))]
    rest = [o for o in objects if o not in needed]
    zig("ar", "rcs", str(folder / "rest.a"), *rest)
    zig("cc", *TARGET, "-nostdlib", "-static", *needed, str(folder / "rest.a"), "-o", str(program))
    return program


if __name__ == "__main__":
    into = Path(sys.argv[1])
    into.mkdir(parents=True, exist_ok=True)
    print(link(into, compile_all(into, sys.argv[2])))
