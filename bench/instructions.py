"""Instructions per token of Strata and llama.cpp: figures that no noise of a machine touches.

Each program runs in valgrind's callgrind with one thread (others would spin, and count). It is
asked for answers, and for prompts, of two lengths; what lies between, divided by the difference,
is a token's share: loading, requests and everything else that is done once falls out. valgrind
knows no AVX-512, so Strata runs its AVX2 kernels, as the wheel of llama.cpp does anyway.

    python bench/instructions.py [--model FILE] [--prompts 64 192] [--lengths 8 24] [--depth 32]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from sides import HERE, Side, peer_python, prompt

from strata.cli.terminal import Progress
from strata.config import cache_folder, environment
from strata.files import fetch


class Counted:
    """A program under callgrind, which counts only while it is asked something."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._out = folder / "callgrind.out"
        tool = ["valgrind", "--tool=callgrind", "--quiet", "--instr-atstart=no"]
        tool += ["--smc-check=all-non-file", f"--callgrind-out-file={self._out}"]
        self._side = Side([*tool, *command])
        self._dumps = 0

    def count(self, op: str, **what: object) -> int:
        """Instructions of one measurement."""
        self._control("--instr=on")
        self._control("--zero")
        self._side.ask(op, **what)
        self._control("--dump")
        self._dumps += 1
        self._control("--instr=off")
        text = Path(f"{self._out}.{self._dumps}").read_text(encoding="ascii", errors="replace")
        (totals,) = (line for line in text.splitlines() if line.startswith("totals:"))
        return int(totals.split()[1])

    def warm(self) -> None:
        """Everything that is done once."""
        self._side.ask("decode", prompts=[prompt(16, 0)], length=2)

    def stop(self) -> None:
        """End the program."""
        self._side.stop()

    def _control(self, order: str) -> None:
        command = ["callgrind_control", order, str(self._side.pid)]
        subprocess.run(command, check=True, capture_output=True)


def measure(program: Counted, options: argparse.Namespace) -> dict[str, float]:
    """Instructions of a token read, and of one decoded."""
    program.warm()
    few, many = options.prompts
    short, long = options.lengths
    read = [program.count("prompt", tokens=prompt(n, n)) for n in (few, many)]
    start = [prompt(options.depth, 1)]
    decode = [program.count("decode", prompts=start, length=n) for n in (short, long)]
    return {
        f"read, from token {few} to {many}": (read[1] - read[0]) / (many - few),
        f"decode, behind {options.depth + short} to {options.depth + long}": (decode[1] - decode[0])
        / (long - short),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="GGUF file (default: the default model)")
    parser.add_argument("--prompts", type=int, nargs=2, default=[64, 192], metavar="TOKENS")
    parser.add_argument("--lengths", type=int, nargs=2, default=[8, 24], metavar="TOKENS")
    parser.add_argument("--depth", type=int, default=32, help="tokens before an answer")
    parser.add_argument("--llama-python", type=Path, help="an interpreter that has xllamacpp")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    folder = cache_folder(environment())
    model = options.model or fetch.locate("", folder / "models", Progress())
    peer = options.llama_python or peer_python(folder)
    common = [str(model), "1", "1", "1024"]
    ours = [sys.executable, str(HERE / "strata_side.py"), *common, "native", "isa=avx2"]
    theirs = [str(peer), str(HERE / "llama_side.py"), *common]
    figures: dict[str, dict[str, float]] = {}
    for name, command in (("strata", ours), ("llama", theirs)):
        with tempfile.TemporaryDirectory() as place:
            program = Counted(command, Path(place))
            try:
                figures[name] = measure(program, options)
                print(f"{name}: {figures[name]}", file=sys.stderr, flush=True)
            finally:
                program.stop()
    print(f"{Path(model).name}, one thread, AVX2, millions of instructions for a token\n")
    print("| | Strata | llama.cpp | llama.cpp / Strata |\n|---|---:|---:|---:|")
    for what, own in figures["strata"].items():
        other = figures["llama"][what]
        print(f"| {what} | {own / 1e6:.2f} | {other / 1e6:.2f} | {other / own:.2f} |")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
