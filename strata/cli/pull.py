"""`strata pull NAME`: brings a model onto this machine, so that serving it needs no network."""

from __future__ import annotations

import argparse
from pathlib import Path

from strata.cli.terminal import Progress
from strata.config import model_folder
from strata.files import fetch, hub

ABOUT = "download a model"
_NAME = (
    "hub name: owner/name, or owner/name:part to choose one GGUF file by (a piece of) its"
    f" name, as in owner/name:Q8_0 (default: {fetch.DEFAULT.name})"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help=_NAME)


def run(chosen: argparse.Namespace) -> int:
    """Download, or go on with a download; print where the model is."""
    print(pull(chosen.name, model_folder(), Progress()))
    return 0


def pull(name: str, folder: Path, progress: Progress) -> Path:
    """The model's path; the newest version where the hub may have changed. ModelError."""
    if hub.is_name(name) and not Path(name).exists():
        return hub.pull(name, folder, progress)
    return fetch.locate(name, folder, progress)
