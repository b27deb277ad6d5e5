"""Strata against llama.cpp: the same file, the same threads, in turns within one run.

Both programs are loaded beside each other and measured alternately, round after round, so that a
machine that slows down slows both. Every single measurement is a line of the --log at once, and
what is in the log is not measured again: a run that was stopped goes on. Prints medians and
ratios as Markdown tables. See README.md.

    python bench/compare_llama.py [--rounds 5] [--threads 2 ...] [--model FILE ...] [--log FILE]
    python bench/compare_llama.py --log FILE --table
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from http_cells import first_token, http_rate
from llama_table import MACHINE, SIDES, Log, tables
from requantise import requantise
from sides import HERE, Side, peer_python, prompt, read_rate
from touched import touched

from strata.cli.machine import usable_cores
from strata.cli.terminal import Progress
from strata.config import cache_folder, environment
from strata.files import fetch, open_model, type_name

SHORT_PROMPT = 4  # of a row at depth 0, and of its own behind the prefix
HTTP_ROWS, HTTP_LENGTH = 8, 128
CELLS = ("read", "decode", "http")


def default_files(folder: Path) -> list[Path]:
    """The default model as it ships and requantised to what llama.cpp is best at."""
    shipped = fetch.locate("", folder / "models", Progress())
    other = folder / "bench" / "SmolLM2-135M-Instruct.Q4_0.gguf"
    if not other.exists():
        print(f"requantising to {other}", file=sys.stderr)
        other.parent.mkdir(parents=True, exist_ok=True)
        requantise(shipped, other, "Q4_0")
    return [shipped, other]


def kind_of(path: Path) -> tuple[str, str]:
    """The architecture, and the format of most of a file's weights."""
    file = open_model(path)
    counts: Counter[str] = Counter()
    for tensor in file.tensors.values():
        counts[type_name(tensor.format)] += tensor.data.nbytes
    return file.architecture, counts.most_common(1)[0][0]


def wanted(options: argparse.Namespace) -> list[str]:
    """The cells that both sides measure in a round."""
    chosen, depths = options.cells, (0, max(options.prompts))
    cells = [f"read {n}" for n in options.prompts if "read" in chosen or n == depths[1]]
    cells = cells if {"read", "decode"} & set(chosen) else []
    if "decode" in chosen:
        cells += [f"decode {rows} at {depth}" for depth in depths for rows in options.rows]
    return [*cells, "first token, cold", "first token, hit"] if "http" in chosen else cells


class Run:
    """One file on so many threads: both programs, loaded."""

    def __init__(
        self, log: Log, file: Path, threads: int, options: argparse.Namespace, peer: Path
    ) -> None:
        self.log, self.name, self.threads, self.options = log, file.stem, threads, options
        self.depth = max(options.prompts)
        # Answers of small models are longer: a measurement should take some tenths of a second.
        self.length = options.length or (96 if file.stat().st_size < 3e8 else 32)
        context = max(self.depth + SHORT_PROMPT + self.length, HTTP_LENGTH) + 64
        common = [str(file), str(threads), str(max(options.rows)), str(context)]
        ours = [sys.executable, str(HERE / "strata_side.py"), *common, options.kernels]
        theirs = [str(peer), str(HERE / "llama_side.py"), *common]
        self.sides = {"strata": Side(ours)}
        try:
            self.sides["llama"] = Side(theirs)
        except SystemExit:
            self.stop()
            raise
        said = {n: f"{s.facts['program']}: {s.facts['system']}" for n, s in self.sides.items()}
        architecture, format = kind_of(file)
        facts = {"architecture": architecture, "format": format, "programs": said}
        log.note(self.name, threads, facts | {"touched": asdict(touched(file))})
        for side in self.sides.values():  # warm up: pages of the file, first use of each path
            side.ask("prompt", tokens=prompt(64, 0))
            side.ask("decode", prompts=self.short(2, 0), length=8)

    def stop(self) -> None:
        """End both programs."""
        for side in self.sides.values():
            side.stop()

    def short(self, rows: int, seed: int) -> list[list[int]]:
        """What each row begins with, or goes on with behind the prefix."""
        return [prompt(SHORT_PROMPT, 10_000 + 100 * seed + n) for n in range(rows)]

    def both(self, number: int, cell: str, run: Callable[[Side], float]) -> None:
        """One cell on both sides, unless the log has it; who begins changes."""
        turn = number + self.log.count(self.name, self.threads)
        for side in list(self.sides)[:: 1 if turn % 2 == 0 else -1]:
            if not self.log.has(self.name, self.threads, number, cell, side):
                value = run(self.sides[side])
                self.log.add(self.name, self.threads, number, cell, side, value)

    def round(self, number: int) -> None:
        """Every cell once."""
        chosen, rows = self.options.cells, self.options.rows
        if not self.log.has(self.name, self.threads, number, MACHINE, MACHINE):
            rate = read_rate(self.threads)
            if rate is not None:
                self.log.add(self.name, self.threads, number, MACHINE, MACHINE, rate)
        for length in self.options.prompts if "read" in chosen else ():
            if length != self.depth or "decode" not in chosen:
                tokens = prompt(length, 10 * number + length)
                self.both(number, f"read {length}", lambda s, t=tokens: s.ask("prompt", tokens=t))  # type: ignore[misc]
        if "decode" in chosen:
            self.decode(number, 0, "decode")
            deep = [f"decode {n} at {self.depth}" for n in rows]
            if any(self.missing(number, cell) for cell in (*deep, f"read {self.depth}")):
                tokens = prompt(self.depth, 10 * number + self.depth)
                filled = {
                    name: side.ask("fill", tokens=tokens, rows=max(rows))
                    for name, side in self.sides.items()
                }
                by_side = {id(side): filled[name] for name, side in self.sides.items()}
                self.both(number, f"read {self.depth}", lambda s: by_side[id(s)])
                self.decode(number, self.depth, "deep")
        if "http" in chosen:
            self.http(number)

    def missing(self, number: int, cell: str) -> bool:
        """Whether a side has not measured it."""
        has = self.log.has
        return not all(has(self.name, self.threads, number, cell, side) for side in self.sides)

    def decode(self, number: int, depth: int, op: str) -> None:
        """Rows side by side behind `depth` tokens."""
        for rows in self.options.rows:
            own = self.short(rows, 100 * number + rows + (50 if depth else 0))
            self.both(
                number,
                f"decode {rows} at {depth}",
                lambda s, p=own: s.ask(op, prompts=p, length=self.length),  # type: ignore[misc]
            )

    def http(self, number: int) -> None:
        """The first token, cold and again; streams against the bare engine."""
        strata = self.sides["strata"]
        short = self.short(HTTP_ROWS, 1000 + number)
        order: dict[str, Callable[[], float]] = {
            "bare": lambda: strata.ask("wall", prompts=short, length=HTTP_LENGTH),
            "http": lambda: http_rate(strata, short, HTTP_LENGTH),
        }
        for cell in list(order)[:: 1 if number % 2 == 0 else -1]:
            if not self.log.has(self.name, self.threads, number, cell, "strata"):
                self.log.add(self.name, self.threads, number, cell, "strata", order[cell]())
        tokens = prompt(self.depth, 5000 + number)
        for cell in ("first token, cold", "first token, hit"):
            self.both(number, cell, lambda side: first_token(side, tokens))


def done(log: Log, file: Path, threads: int, options: argparse.Namespace) -> bool:
    """Whether the log has every round of a file."""
    return all(
        log.has(file.stem, threads, number, cell, side)
        for number in range(options.rounds)
        for cell in wanted(options)
        for side in SIDES
    )


def measure(log: Log, file: Path, threads: int, options: argparse.Namespace, peer: Path) -> bool:
    """All rounds of one file; whether both programs got through. The next file has its turn."""
    try:
        run = Run(log, file, threads, options, peer)
        try:
            for number in range(options.rounds):
                run.round(number)
        finally:
            run.stop()
    except SystemExit as error:
        print(f"{file.name}, {threads} threads: {error}", file=sys.stderr)
        return False
    return True


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[usable_cores()])
    parser.add_argument("--model", type=Path, action="append", help="GGUF file; repeat for several")
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=CELLS, help="what to measure")
    parser.add_argument("--prompts", type=int, nargs="+", default=[512, 4096], metavar="TOKENS")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16], metavar="N")
    parser.add_argument(
        "--length", type=int, default=0, help="tokens of an answer (default: by the file's size)"
    )
    parser.add_argument("--kernels", default="auto", help="as in strata serve")
    parser.add_argument("--llama-python", type=Path, help="an interpreter that has xllamacpp")
    parser.add_argument("--log", type=Path, help="keeps every measurement, and is gone on with")
    parser.add_argument("--table", action="store_true", help="print the tables of the log, no more")
    options = parser.parse_args()
    if options.table and not options.log:
        parser.error("--table needs --log")
    return options


def main() -> None:
    options = parse()
    if not options.log:
        handle, name = tempfile.mkstemp(suffix=".jsonl", prefix="strata-bench-")
        os.close(handle)
        options.log = Path(name)
        print(f"measurements go to {name}", file=sys.stderr)
    log, failed = Log(options.log), 0
    if not options.table:
        folder = cache_folder(environment())
        peer = options.llama_python or peer_python(folder)
        for file in options.model or default_files(folder):
            for threads in options.threads:
                if not done(log, file, threads, options):
                    failed += not measure(log, file, threads, options, peer)
    print(tables(log))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
