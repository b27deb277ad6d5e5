"""`strata synth ARCH --out PATH`: makes a model with random weights."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path

from strata.cli.terminal import Progress
from strata.synth import blocks, folder, gguf_file
from strata.synth.shape import FAMILIES, Shape
from strata.types import ModelError

ABOUT = "make a model with random weights, to measure a machine with"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("family", choices=FAMILIES, metavar="ARCH", help=", ".join(FAMILIES))
    parser.add_argument("--out", type=Path, required=True, metavar="PATH", help="what to write")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--gguf", action="store_true", help="write a GGUF file (default)")
    kinds.add_argument("--safetensors", action="store_true", help="write a Hugging Face folder")
    parser.add_argument(
        "--quant",
        choices=blocks.FORMATS,
        metavar="TYPE",
        help=f"type of the matrices: {', '.join(blocks.FORMATS)} (default: Q4_K; BF16 in a folder)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="(default: 0)")
    for one in fields(Shape):
        parser.add_argument(
            "--" + one.name.replace("_", "-"),
            type=int,
            default=argparse.SUPPRESS,
            metavar="N",
            help=f"{one.metadata['help']} (default: {one.default})",
        )


def run(chosen: argparse.Namespace) -> int:
    """Make the model; print where it is and what was stored otherwise than asked."""
    family = FAMILIES[chosen.family]
    given = {key: value for key, value in vars(chosen).items() if hasattr(Shape, key)}
    shape = Shape(**{**family.sizes, **given})
    shape.check(family)
    write = folder.write if chosen.safetensors else gguf_file.write
    kind = chosen.quant or ("BF16" if chosen.safetensors else "Q4_K")
    progress = Progress()
    try:
        odd = write(chosen.out, family, shape, kind, chosen.seed, progress)
    except OSError as error:
        raise ModelError(f"cannot write {chosen.out}: {error.strerror or error}") from error
    finally:
        progress.close()
    if odd:
        some = ", ".join(odd[:3]) + (f" and {len(odd) - 3} more" if len(odd) > 3 else "")
        print(f"rows that do not fit {kind}: {some}", file=sys.stderr)
    print(chosen.out)
    return 0
