"""`strata pull NAME`: brings a model onto this machine, so that serving it needs no network."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from strata.cli.terminal import Progress
from strata.config import cache_folder, environment
from strata.files import fetch, hub


def add(commands: Any) -> None:
    """Adds the command to argparse's subparsers."""
    text = "download a model"
    parser = commands.add_parser("pull", help=text, description=f"{text.capitalize()}.")
    parser.add_argument(
        "name",
        nargs="?",
        default="",
        metavar="NAME",
        help="hub name: owner/name, or owner/name:part to choose one GGUF file by (a piece of) its"
        f" name, as in owner/name:Q8_0 (default: {fetch.DEFAULT.name})",
    )
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Download, or go on with a download; print where the model is."""
    progress = Progress()
    print(pull(chosen.name, cache_folder(environment()) / "models", progress))
    return 0


def pull(name: str, folder: Path, progress: Progress) -> Path:
    """The model's path; the newest version where the hub may have changed. ModelError."""
    if hub.is_name(name) and not Path(name).exists():
        return hub.pull(name, folder, progress)
    return fetch.locate(name, folder, progress)
