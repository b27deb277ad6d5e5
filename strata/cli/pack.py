"""`strata pack MODEL`: lays the experts of a model out on the disk as a server reads them.

Which serving does by itself when it first needs it; this does it beforehand, or somewhere else.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path

from strata.cli import flags
from strata.cli.machine import usable_cores
from strata.cli.terminal import Progress
from strata.config import model_folder
from strata.files import fetch, open_model
from strata.settings import Config
from strata.types import Backend, ModelError

ABOUT = "pack the experts of a model, to serve it with less memory than they take"
_SETTINGS = {"model", "threads", "kernels", "isa"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    text = "where to write (default: a folder of the model in ~/.cache/strata/records)"
    parser.add_argument("--out", type=Path, metavar="DIR", help=text)
    text = "delete what was packed before, finished or not"
    parser.add_argument("--force", action="store_true", help=text)
    flags.add_settings(parser, without={one.name for one in fields(Config)} - _SETTINGS)


def run(chosen: argparse.Namespace) -> int:
    """Pack, or go on packing; print where the records are."""
    config, progress = flags.resolve(chosen).config, Progress()
    file = open_model(fetch.locate(config.model, model_folder(), progress))

    # torch is imported here and not before: `strata --help` must not wait for it.
    from strata import kernels
    from strata.experts.pack import records_for
    from strata.models import loader

    def report(text: str) -> None:
        progress.close()
        print(text, file=sys.stderr, flush=True)

    isa = None if config.isa == "auto" else config.isa
    threads = config.threads or usable_cores()
    own = kernels.choose(Backend(config.kernels), "cpu", threads, isa)
    mixtures = loader.load(file, own).mixtures()
    if not mixtures:
        raise ModelError(f"{file.path} has no experts: there is nothing to pack")
    layers = [(number, weights.experts) for number, weights in mixtures]
    try:
        _, records = records_for(file, layers, own, chosen.out, progress, report, chosen.force)
    finally:
        progress.close()
    print(records.path.parent)
    records.close()
    return 0
