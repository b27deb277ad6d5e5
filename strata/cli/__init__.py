"""The command `strata` and its commands, wired from the layers below.

Knows every layer and is known by none. What a user can mend ends as one sentence on standard
error and exit status 2; an interrupt as 130; anything else is our mistake and shows its trace.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

import strata
from strata.cli.flags import sentence
from strata.types import StrataError

COMMANDS = (
    "serve",
    "demo",
    "pull",
    "chat",
    "monitor",
    "bench",
    "calibrate",
    "pack",
    "synth",
    "trace",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the process's exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    chosen = _parser(argv).parse_args(argv)
    try:
        status: int = chosen.run(chosen)
        return status
    except StrataError as error:
        print(f"strata: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has left: flushing at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _parser(argv: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="strata", description="An LLM inference server: exact, fast, no prefix read twice."
    )
    parser.add_argument("--version", action="version", version=f"strata {strata.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    # What is not asked for is not imported: some commands take long.
    asked = argv[:1] if argv[:1] in ([name] for name in COMMANDS) else COMMANDS
    for name in () if argv[:1] == ["--version"] else asked:
        module = importlib.import_module(f"strata.cli.{name}")
        about = module.ABOUT
        command = commands.add_parser(name, help=about, description=sentence(about))
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser
