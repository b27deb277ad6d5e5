"""`strata calibrate MODEL`: measures the settings of the expert store, and keeps the faster ones.

End to end: for each value the model is loaded, a prompt is read and an answer decoded, values in
turn, round after round. What is kept lies beside the record file; serving uses it wherever the
setting itself is left automatic.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from strata.cli import assemble, flags
from strata.cli.log import set_up_log
from strata.cli.terminal import Progress
from strata.config import model_folder
from strata.settings import Config
from strata.types import ConfigError

ABOUT = "measure the settings of the expert store on this machine, and keep the faster ones"
_CHUNKS = (512, 1024, 2048)
_ANSWER = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes beside settings."""
    text = "tokens of the prompt that is read (default: 2048)"
    parser.add_argument("--pp", type=int, default=max(_CHUNKS), metavar="N", help=text)
    text = "how often each value is measured; medians count (default: 3)"
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help=text)
    flags.add_settings(parser, without=flags.SERVER_ONLY)


def run(chosen: argparse.Namespace) -> int:
    """Measure, say what was found, keep it."""
    if chosen.pp < 1 or chosen.rounds < 1:
        raise ConfigError("--pp and --rounds must be 1 or more")
    resolved = flags.resolve(chosen)
    assemble.check(resolved)
    set_up_log("error")
    needed = chosen.pp + _ANSWER
    config = replace(resolved.config, batch=1, ctx_size=needed, expert_trace="", expert_profile="")
    bench = Trials(chosen.pp, chosen.rounds)
    chunks = [chunk for chunk in _CHUNKS if chunk < 2 * chosen.pp]
    chunk = bench.best(config, "prefill_chunk", chunks, 0)
    config = replace(config, prefill_chunk=chunk)
    prefetch = bench.best(config, "expert_prefetch", ["on", "off"], 1)

    from strata.experts.calibration import Calibration

    assert bench.folder is not None
    Calibration(prefetch == "on", chunk).save(bench.folder)
    print(f"kept in {bench.folder}: --prefill-chunk {chunk}, --expert-prefetch {prefetch}")
    return 0


class Trials:
    """Runs of one prompt and its answer. `folder` is where the records of the model lie."""

    def __init__(self, pp: int, rounds: int) -> None:
        self.folder: Path | None = None
        self._pp, self._rounds = pp, rounds
        self._progress = Progress()

    def best(self, config: Config, name: str, values: list[Any], figure: int) -> Any:
        """The value of a setting whose median of a figure (0 reading, 1 decoding) is highest."""
        rates: dict[Any, list[float]] = {value: [] for value in values}
        for _ in range(self._rounds):
            for value in values:
                rates[value].append(self._run(replace(config, **{name: value}))[figure])
        medians = {value: median(found) for value, found in rates.items()}
        what = ("reading", "decoding")[figure]
        for value, rate in medians.items():
            flag = "--" + name.replace("_", "-")
            print(f"{flag} {value:<6} {what} {rate:8.1f} tokens/s", flush=True)
        return max(medians, key=lambda value: medians[value])

    def _run(self, config: Config) -> tuple[float, float]:
        plant = assemble.build(config, model_folder(), self._progress, lambda text: None)
        self._progress.close()
        try:
            if plant.store is None:
                raise ConfigError(
                    "all experts of this model are held in memory, so there is nothing to measure;"
                    " say --expert-ram to hold fewer"
                )
            self.folder = plant.store.folder

            from strata.engine.bench import Load, measure, warm_up

            warm_up(plant.engine)
            (phase,) = measure(plant.engine, Load(0, self._pp, _ANSWER), 1, 0, self._progress)
            return phase.read_total, phase.decode_total
        finally:
            self._progress.close()
            plant.stop()
