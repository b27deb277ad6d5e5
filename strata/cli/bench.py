"""`strata bench`: reads contexts, answers, appends, answers again, and prints the rates.

The model is loaded into this process and measured without HTTP. What is printed of each number of
clients is what a benchmark of servers prints: phase one reads `--depth` tokens of each
client, phase two sends them again with `--pp` more.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import strata
from strata.cli import assemble, flags
from strata.cli.log import set_up_log
from strata.cli.terminal import Progress, columns
from strata.config import Resolved, model_folder
from strata.settings import Config
from strata.types import ConfigError

if TYPE_CHECKING:
    from strata.engine.bench import Phase

ABOUT = "measure a model on this machine"
_HEAD = ("test", "t/s (total)", "t/s (request)", "first token (s)", "reused")
_FORMATS = ("table", "markdown", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes beside settings."""
    for name, default, text in (
        ("depth", 2048, "tokens of each client's context"),
        ("pp", 512, "prompt tokens that phase two appends"),
        ("tg", 64, "tokens of each answer"),
    ):
        about = f"{text} (default: {default})"
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=about)
    text = "clients at the same time; several numbers, separated by commas (default: 1,2)"
    parser.add_argument("--concurrency", type=_numbers, default=(1, 2), metavar="N", help=text)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the prompts")
    text = "how to print the figures (default: table)"
    parser.add_argument("--format", choices=_FORMATS, default="table", help=text)
    text = "write the figures here too, as JSON"
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help=text)
    flags.add_settings(parser, without=flags.SERVER_ONLY)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def run(chosen: argparse.Namespace) -> int:
    """Load, measure, print."""
    resolved = flags.resolve(chosen)
    config = _settings(chosen, resolved)
    assemble.check(resolved)
    set_up_log("error" if config.log_level == "info" else config.log_level)
    progress, facts = Progress(), list[str]()
    plant = assemble.build(config, model_folder(), progress, facts.append)
    progress.close()
    print("\n".join(facts), file=sys.stderr)

    from strata.engine.bench import Load, measure, warm_up

    load, phases = Load(chosen.depth, chosen.pp, chosen.tg), list[Any]()
    try:
        warm_up(plant.engine)
        for count in chosen.concurrency:
            phases += measure(plant.engine, load, count, chosen.seed, progress)
    finally:
        progress.close()
        plant.stop()
    document = _document(config, plant.service.model.id, facts, phases)
    if chosen.json is not None:
        _write(chosen.json, document)
    print(document if chosen.format == "json" else _show(phases, chosen.format))
    return 0


def _settings(chosen: argparse.Namespace, resolved: Resolved) -> Config:
    """Rows for every client and a context as long as is needed, unless told otherwise."""
    for name, least in (("depth", 0), ("pp", 1), ("tg", 1)):
        if getattr(chosen, name) < least:
            raise ConfigError(f"--{name}: {getattr(chosen, name)} must be {least} or more")
    if chosen.json is not None and not chosen.json.absolute().parent.is_dir():
        raise ConfigError(f"--json: there is no folder {chosen.json.absolute().parent}")
    most = max(chosen.concurrency)
    if min(chosen.concurrency) < 1:
        raise ConfigError(f"--concurrency: {min(chosen.concurrency)} must be 1 or more")
    config = resolved.config
    needed = chosen.depth + chosen.pp + chosen.tg
    if config.ctx_size and config.ctx_size < needed:
        raise ConfigError(f"--ctx-size: {config.ctx_size} is less than the {needed} tokens wanted")
    batch = most if resolved.sources["batch"] == "default" else config.batch
    return replace(config, batch=batch, ctx_size=config.ctx_size or needed, max_queue=max(most, 64))


# ---------------------------------------------------------------- figures


def _figures(phase: Phase) -> Iterator[dict[str, Any]]:
    """The two lines of a phase: its reading and its decoding."""
    name = "ctx_" if phase.context else ""
    place = f" @ d{phase.prompt - (0 if phase.context else phase.new)}"
    pp, tg = ("pp", "tg") if phase.context else (f"pp{phase.new}", f"tg{phase.tg}")
    common = {"concurrency": phase.concurrency, "prompt_tokens": phase.prompt}
    yield {
        "test": f"{name}{pp}{place} (c{phase.concurrency})",
        **common,
        "tokens": phase.new,
        "rate_total": phase.read_total,
        "rate_request": phase.read_each,
        "first_token_s": list(phase.first_tokens),
        "reused_tokens": list(phase.reused),
    }
    yield {
        "test": f"{name}{tg}{place} (c{phase.concurrency})",
        **common,
        "tokens": phase.tg,
        "rate_total": phase.decode_total,
        "rate_request": phase.decode_each,
    }


def _document(config: Config, model: str, facts: Sequence[str], phases: Sequence[Phase]) -> str:
    """All figures and what they were measured with, as JSON."""
    return json.dumps(
        {
            "strata": strata.__version__,
            "model": model,
            "facts": list(facts),
            "batch": config.batch,
            "results": [line for phase in phases for line in _figures(phase)],
        },
        indent=2,
    )


def _show(phases: Sequence[Phase], form: str) -> str:
    """The figures for people, in columns; as Markdown with bars."""
    lines = (_cells(line) for phase in phases for line in _figures(phase))
    head, *rows = columns([_HEAD, *lines], left=1)
    if form == "table":
        return "\n".join("  ".join(row).rstrip() for row in [head, *rows])
    rule = ["-" * len(head[0]), *("-" * (len(cell) - 1) + ":" for cell in head[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])


def _cells(line: dict[str, Any]) -> tuple[str, ...]:
    firsts, reused = line.get("first_token_s"), line.get("reused_tokens")
    return (
        line["test"],
        f"{line['rate_total']:.1f}",
        f"{line['rate_request']:.1f}",
        _span([f"{first:.3f}" for first in sorted(firsts)]) if firsts else "",
        _span([str(count) for count in sorted(reused)]) if reused else "",
    )


def _span(values: Sequence[str]) -> str:
    """The least and the greatest, or the one."""
    return values[0] if values[0] == values[-1] else f"{values[0]} to {values[-1]}"


def _write(path: Path, document: str) -> None:
    try:
        path.write_text(document + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--json: cannot write {path}: {error.strerror or error}") from None
