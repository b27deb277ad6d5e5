"""The measurements of `compare_llama.py`: a log of single ones, and the tables made of it."""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

MACHINE = "memory"  # cell and side of the speed of memory, bytes a second
SIDES = ("strata", "llama")

# What llama.cpp's wheel repacks on a processor with AVX2.
REPACKED = {"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"}
ONE_ROW, BANDWIDTH = 1.4, 0.85
ROWS_DENSE, ROWS_MIXTURE = 2.0, 1.6  # from 2 to 8 rows
READ, READ_NOT_REPACKED = 1.5, 2.5
HTTP_GOAL, HIT_GOAL = 0.95, 0.02
LAST_LEVEL = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")

Key = tuple[str, int]  # a file, and threads


class Log:
    """Lines of JSON: facts of a run, or one measurement. Written at once, read at the start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.facts: dict[Key, dict[str, Any]] = {}
        self.values: dict[Key, dict[tuple[str, str], dict[int, float]]] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            self._take(json.loads(line))

    def note(self, model: str, threads: int, facts: dict[str, Any]) -> None:
        """What a run is about; the last note of a run counts."""
        self._write({"model": model, "threads": threads, "facts": facts})

    def add(
        self, model: str, threads: int, number: int, cell: str, side: str, value: float
    ) -> None:
        """One measurement: tokens a second, or as the cell's name says."""
        line = {"model": model, "threads": threads, "round": number, "cell": cell}
        self._write(line | {"side": side, "value": value})
        place = f"{model}, {threads} threads, round {number}"
        print(f"{place}: {cell}, {side}: {value:.4g}", file=sys.stderr, flush=True)

    def has(self, model: str, threads: int, number: int, cell: str, side: str) -> bool:
        """Whether it was measured."""
        return number in self.values.get((model, threads), {}).get((cell, side), {})

    def count(self, model: str, threads: int) -> int:
        """Cells of a run so far."""
        return len({cell for cell, _ in self.values.get((model, threads), {})})

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
        self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        key = line["model"], line["threads"]
        if "facts" in line:
            self.facts[key] = line["facts"]
            return
        cells = self.values.setdefault(key, {})
        cells.setdefault((line["cell"], line["side"]), {})[line["round"]] = line["value"]


def tables(log: Log) -> str:
    """All of them, and how many goals were missed."""
    texts = [table(log, key) for key in log.values]
    missed, reached = ("".join(texts).count(word) for word in ("MISSED", "reached"))
    return "\n\n".join([*texts, f"Goals reached: {reached}; missed: {missed}."])


def table(log: Log, key: Key) -> str:
    """Medians, ratios and goals of one file on so many threads."""
    facts, cells = log.facts[key], log.values[key]
    lines = [f"### {key[0]} ({facts['architecture']}, {facts['format']}), {key[1]} threads", ""]
    lines += [f"{name}: {text}  " for name, text in facts["programs"].items()]
    speed = memory_rate(log, key[1])
    if speed:
        lines.append(_about_bytes(facts["touched"], speed))
    head = "| tokens/s | Strata | llama.cpp | ratio | rounds | goal | most | file | packed | all |"
    lines += ["", head, "|---" * 10 + "|"]
    for cell in _paired(cells):
        if cell.startswith(("read", "decode")):
            lines.append(_row(cell, cells, facts, speed))
    return "\n".join([*lines, *_http(cells)])


def memory_rate(log: Log, threads: int) -> float | None:
    """Bytes a second: what this machine's memory gave so many threads at best, in any round."""
    runs = (
        cells.get((MACHINE, MACHINE), {}) for (_, t), cells in log.values.items() if t == threads
    )
    return max((rate for run in runs for rate in run.values()), default=None)


def _about_bytes(touched: dict[str, Any], speed: float) -> str:
    """Explains the last three columns."""
    states = f", states {touched['states'] / 1e6:.1f} MB" if touched["states"] else ""
    return (
        f"Memory was read at {speed / 1e9:.1f} GB/s at best."
        f" One token reads {touched['file'] / 1e6:.1f} MB of the file's weights,"
        f" {touched['packed'] / 1e6:.1f} MB packed{states}; and"
        f" {touched['keys'] / 1e3:.1f} KB of keys and values for each token before it."
        " most: the ratio that reading just these at that speed would be, each row's experts drawn"
        " at random. The last columns: what share of that speed one row of Strata reaches.  "
    )


def _paired(cells: dict[tuple[str, str], dict[int, float]]) -> Iterator[str]:
    """Cells that both sides have: reading first, then by depth and rows."""
    both: dict[str, set[str]] = defaultdict(set)
    for cell, side in cells:
        both[cell].add(side)
    paired = [cell for cell, sides in both.items() if sides >= set(SIDES)]
    yield from sorted(paired, key=_place)


def _place(cell: str) -> tuple[bool, list[int]]:
    numbers = [int(word) for word in cell.split() if word.isdigit()]
    return cell.startswith("decode"), numbers[::-1]


def _row(
    cell: str,
    cells: dict[tuple[str, str], dict[int, float]],
    facts: dict[str, Any],
    speed: float | None,
) -> str:
    ours, theirs = (cells[cell, side] for side in SIDES)
    medians = [statistics.median(one.values()) for one in (ours, theirs)]
    ratio = medians[0] / medians[1]
    single = [ours[n] / theirs[n] for n in ours.keys() & theirs.keys()]
    spread = f"{min(single):.2f}-{max(single):.2f}" if single else ""
    shares = ["", "", "", ""]
    if speed and cell.startswith("decode"):
        rows, depth = int(cell.split()[1]), int(cell.split()[-1])
        shares[0] = f"{rows * speed / _read(rows, depth, facts['touched']) / medians[1]:.2f}"
        if rows == 1:
            shares[1:] = _shares(depth, medians[0], facts["touched"], speed)
    row = [cell, *(f"{one:.4g}" for one in medians), f"{ratio:.2f}", spread]
    return f"| {' | '.join([*row, verdict(ratio, goal(cell, facts)), *shares])} |"


def goal(cell: str, facts: dict[str, Any]) -> float | None:
    """The least ratio for a cell; None where there is no goal."""
    what, number, *_ = cell.split()
    if what == "read":
        return READ if facts["format"] in REPACKED else READ_NOT_REPACKED
    if number == "1":
        return ONE_ROW
    mixture = facts["architecture"].endswith(("moe", "next", "exp"))
    return (ROWS_MIXTURE if mixture else ROWS_DENSE) if int(number) <= 8 else None


def _read(rows: int, depth: int, touched: dict[str, Any]) -> float:
    """Bytes of a step of so many rows, each expert that any of them takes counted once."""
    seen = depth if touched["most_keys"] is None else min(depth, touched["most_keys"])
    some = (1 - (1 - touched["share"]) ** rows) / touched["share"]  # experts, in those of one row
    own = rows * (touched["keys"] * seen + touched["states"])
    return float(touched["packed"] + (some - 1) * touched["experts"] + own)


def _shares(depth: int, rate: float, touched: dict[str, Any], speed: float) -> list[str]:
    """Of memory's speed: weights as in the file, as packed, and with keys and states."""
    sizes = touched["file"], touched["packed"], _read(1, depth, touched)
    plain, packed, whole = (rate * size / speed for size in sizes)
    text = f"{packed:.2f}"
    if depth == 0 and touched["packed"] > last_level_cache():
        text = f"{packed:.2f} (goal {verdict(packed, BANDWIDTH)})"
    return [f"{plain:.2f}", text, f"{whole:.2f}"]


def last_level_cache() -> int:
    """Bytes; 32 MiB where the system does not say."""
    try:
        text = LAST_LEVEL.read_text(encoding="ascii").strip()
        return int(text.rstrip("K")) << (10 if text.endswith("K") else 0)
    except (OSError, ValueError):
        return 32 << 20


def _http(cells: dict[tuple[str, str], dict[int, float]]) -> Sequence[str]:
    """The first token, and streams against the bare engine."""
    medians = {key: statistics.median(values.values()) for key, values in cells.items()}
    lines = [""]
    cold, hit = (medians.get((f"first token, {kind}", "strata")) for kind in ("cold", "hit"))
    if cold and hit:
        for kind in ("cold", "hit"):
            one, two = (1000 * medians[f"first token, {kind}", side] for side in SIDES)
            lines.append(f"First token, {kind}: Strata {one:.0f} ms, llama.cpp {two:.0f} ms.  ")
        within = "reached" if hit / cold < HIT_GOAL else "MISSED"
        limit = f"goal: less than {100 * HIT_GOAL:.0f} %, {within}"
        lines.append(f"A full hit takes {100 * hit / cold:.2f} % of the cold time ({limit}).  ")
    bare, http = (medians.get((kind, "strata")) for kind in ("bare", "http"))
    if bare and http:
        share = f"{http / bare:.3f} (goal {verdict(http / bare, HTTP_GOAL)})"
        lines.append(
            f"Eight rows over HTTP: {http:.0f} tokens/s of the bare engine's {bare:.0f}: {share}."
        )
    return lines if len(lines) > 1 else []


def verdict(ratio: float, goal: float | None) -> str:
    """`1.5, reached`."""
    return "" if goal is None else f"{goal}, {'reached' if ratio >= goal else 'MISSED'}"
