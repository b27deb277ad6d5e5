"""`strata synth ARCH --out PATH`: makes a model with random weights; or, with --upcycle MODEL, a
mixture of experts out of a dense one.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path

from strata.cli.terminal import Progress
from strata.config import model_folder
from strata.files import fetch
from strata.synth import blocks, folder, gguf_file, upcycle
from strata.synth.shape import FAMILIES, Shape
from strata.types import ModelError

ABOUT = "make a model with random weights, to measure a machine with"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "family", nargs="?", choices=FAMILIES, metavar="ARCH", help=", ".join(FAMILIES)
    )
    parser.add_argument("--out", type=Path, required=True, metavar="PATH", help="what to write")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--gguf", action="store_true", help="write a GGUF file (default)")
    kinds.add_argument("--safetensors", action="store_true", help="write a Hugging Face folder")
    parser.add_argument(
        "--quant",
        choices=(*blocks.FORMATS, *gguf_file.MIXES),
        metavar="TYPE",
        help=f"type of the matrices: {', '.join((*blocks.FORMATS, *gguf_file.MIXES))}"
        " (default: Q4_K; BF16 in a folder)",
    )
    parser.add_argument(
        "--upcycle",
        metavar="MODEL",
        help="instead of ARCH: a dense GGUF model ('' is the default model), of whose feed-forward"
        " the experts are copies; takes --experts, --top-k, --noise and --seed",
    )
    parser.add_argument(
        "--noise",
        type=float,
        default=0.0,
        metavar="X",
        help="relative noise on each copy's weights; 0 answers as the dense model (default: 0)",
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
    if (chosen.family is None) == (chosen.upcycle is None):
        raise ModelError("name an architecture, or a dense model with --upcycle")
    progress = Progress()
    try:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        odd = (_random if chosen.upcycle is None else _mixture)(chosen, progress)
    except OSError as error:
        raise ModelError(f"cannot write {chosen.out}: {error.strerror or error}") from error
    finally:
        progress.close()
    if odd:
        some = ", ".join(odd[:3]) + (f" and {len(odd) - 3} more" if len(odd) > 3 else "")
        print(f"stored in another type, since theirs does not fit: {some}", file=sys.stderr)
    print(chosen.out)
    return 0


def _random(chosen: argparse.Namespace, progress: Progress) -> list[str]:
    family = FAMILIES[chosen.family]
    shape = Shape(**{**family.sizes, **_given(chosen)})
    shape.check(family)
    write = folder.write if chosen.safetensors else gguf_file.write
    kind = chosen.quant or ("BF16" if chosen.safetensors else "Q4_K")
    return write(chosen.out, family, shape, kind, chosen.seed, progress)


def _mixture(chosen: argparse.Namespace, progress: Progress) -> list[str]:
    given = _given(chosen)
    stray = given.keys() - {"experts", "top_k"}
    if stray or chosen.quant or chosen.safetensors:
        raise ModelError("--upcycle takes sizes and types from its model, and writes a GGUF file")
    source = fetch.locate(chosen.upcycle, model_folder(), progress)
    experts = given.get("experts", 8)
    mixture = upcycle.Mixture(experts, given.get("top_k", min(2, experts)), chosen.noise)
    return upcycle.write(source, chosen.out, mixture, chosen.seed, progress)


def _given(chosen: argparse.Namespace) -> dict[str, int]:
    """The sizes on the command line."""
    return {key: value for key, value in vars(chosen).items() if hasattr(Shape, key)}
