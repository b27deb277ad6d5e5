"""arm64: every native source compiles, and NEON gives the bits of the portable kernels, which are
those of this machine's portable kernels: under an emulator, where there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from arm64 import CPU, NATIVE, compile_all, link

pytest.importorskip("ziglang", reason="the cross compiler is the wheel `ziglang`")


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    # Unoptimised: a third of the time, and no instruction is chosen otherwise.
    return compile_all(tmp_path_factory.mktemp("arm64"), "-O0")


def checked(command: list[str]) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_every_source_compiles_without_a_warning(objects: list[str]) -> None:
    sources = len(list(CPU.glob("simd/*.cpp")))
    assert len(objects) > 2 * sources + 20  # one that does not is an error of the fixture


def portable_here(folder: Path) -> str:
    """The checksum of the portable products, by this machine's own compiler."""
    program = folder / "portable"
    own = ["isa", "linear", "pack", "pack_codes", "codes", "dequantise", "rows", "kv"]
    sources = [CPU / f"{name}.cpp" for name in own] + [*sorted(CPU.glob("simd/*.cpp"))]
    sources += [NATIVE / "selfcheck.cpp", NATIVE / "row_checks.cpp"]
    flags = ["-std=c++20", "-O0", "-ffp-contract=off", f"-I{CPU}"]
    flags += ["-DSTRATA_ISA=portable", "-DSTRATA_ISA_portable=1"]
    checked(["c++", *flags, *map(str, sources), "-o", str(program)])
    return checked([str(program)])[-1]


def test_neon_gives_the_bits_of_the_portable_kernels(objects: list[str], tmp_path: Path) -> None:
    emulator = shutil.which("qemu-aarch64")
    if emulator is None:
        pytest.skip("NEON is compiled but not run: no qemu-aarch64 (Debian: qemu-user) on the PATH")
    program = str(link(tmp_path, objects))
    with_dot_products = checked([emulator, "-cpu", "max", program])
    assert with_dot_products[:2] == [
        "chosen: neon",
        "neon: 0 formats and 0 row functions differ from portable",
    ]
    assert checked([emulator, "-cpu", "cortex-a53", program])[0] == "chosen: portable"
    assert with_dot_products[-1] == portable_here(tmp_path)
