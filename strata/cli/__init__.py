"""The command `strata` and its commands, wired from the layers below.

Knows every layer and is known by none. What a user can mend ends as one sentence on standard
error and exit status 2; an interrupt as 130; anything else is our mistake and shows its trace.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import strata
from strata.cli.flags import sentence
from strata.types import StrataError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the process's exit status."""
    chosen = _parser().parse_args(argv)
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


def _parser() -> argparse.ArgumentParser:
    from strata.cli import bench, calibrate, chat, demo, pack, pull, serve, synth, trace

    parser = argparse.ArgumentParser(
        prog="strata", description="An LLM inference server: exact, fast, no prefix read twice."
    )
    parser.add_argument("--version", action="version", version=f"strata {strata.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    modules = {"serve": serve, "demo": demo, "pull": pull, "chat": chat, "bench": bench}
    modules |= {"calibrate": calibrate, "pack": pack, "synth": synth, "trace": trace}
    for name, module in modules.items():
        about = module.ABOUT
        command = commands.add_parser(name, help=about, description=sentence(about))
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser
