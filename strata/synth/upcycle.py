"""Makes a mixture of experts out of a dense GGUF model: copies of its feed-forward, and a router
of random weights.

The chosen experts' shares add up to one, so exact copies answer as the dense model does, whichever
experts a token takes; with noise they differ, and the model still speaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader, GGUFValueType, GGUFWriter, Keys, ReaderTensor, quants

from strata.files import open_model
from strata.synth import blocks
from strata.synth.gguf_file import Part, write_parts
from strata.types import ModelError, ProgressSink

# dense architecture -> the one with the same attention whose experts' shares add up to one
_TARGETS = {"llama": "llama", "qwen3": "qwen3moe"}
_COPIED = {f"ffn_{name}": f"ffn_{name}_exps" for name in ("gate", "up", "down")}
# What noise is stored in where the package cannot quantise: Q4_1 unless it is one of these.
_NEAREST = {Type.Q5_K: Type.Q5_1, Type.Q6_K: Type.Q8_0}
_NO_QUANTISER = {
    Type[name] for name in blocks.FORMATS if "_K" in name or "IQ" in name or name == "NVFP4"
}
_VALUES = 1 << 20  # made at a time


@dataclass(frozen=True, slots=True)
class Mixture:
    """`experts` copies, of which a token takes `top_k`; each weight is multiplied by a normally
    distributed number around 1 of standard deviation `noise`, other ones for each copy.
    """

    experts: int
    top_k: int
    noise: float

    def __post_init__(self) -> None:
        if not 0 < self.top_k <= self.experts:
            raise ModelError(f"a token cannot take {self.top_k} of {self.experts} experts")
        if not 0 <= self.noise < 1:
            raise ModelError("--noise must be at least 0 and below 1")


def write(
    source: Path, target: Path, mixture: Mixture, seed: int, progress: ProgressSink
) -> list[str]:
    """Write the mixture of `source`; the names of tensors stored in another type than before.

    ModelError when `source` is no dense model of a kind that has a mixture.
    """
    file = open_model(source)
    dense = file.architecture
    if file.kind != "gguf" or dense not in _TARGETS or f"{dense}.expert_count" in file.metadata:
        raise ModelError(
            f"{source} cannot become a mixture of experts: that takes a dense GGUF model of the"
            f" architecture {' or '.join(_TARGETS)}"
        )
    if "split.count" in file.metadata:
        raise ModelError(f"{source} is a split file: join its parts with llama-gguf-split first")
    reader, architecture = GGUFReader(source), _TARGETS[dense]
    writer = GGUFWriter(None, architecture)
    _copy_keys(reader, writer, dense, architecture)
    writer.add_expert_count(mixture.experts)
    writer.add_expert_used_count(mixture.top_k)
    if architecture != dense:
        writer.add_expert_feed_forward_length(file.metadata[f"{dense}.feed_forward_length"])
    parts, odd = [], []
    for tensor in reader.tensors:
        made = list(_parts(tensor, mixture, seed))
        odd += [
            f"{one.name} ({one.kind.name})" for one in made[:1] if one.kind != tensor.tensor_type
        ]
        parts += made
    write_parts(writer, target, parts, progress)
    return odd


def _copy_keys(reader: GGUFReader, writer: GGUFWriter, dense: str, architecture: str) -> None:
    """Every key but those that the writer sets itself, the architecture's renamed."""
    for key, item in reader.fields.items():
        if key.startswith("GGUF.") or key == Keys.General.ARCHITECTURE:
            continue
        kind = item.types[0]
        inner = item.types[-1] if kind == GGUFValueType.ARRAY else None
        if key.startswith(dense + "."):
            key = architecture + key.removeprefix(dense)
        writer.add_key_value(key, item.contents(), kind, sub_type=inner)


def _parts(tensor: ReaderTensor, mixture: Mixture, seed: int) -> Iterator[Part]:
    """What a tensor becomes: itself, or copies of it, and a router beside the first."""
    kind, shape = tensor.tensor_type, tuple(int(n) for n in reversed(tensor.shape))
    at, _, stem = tensor.name.removesuffix(".weight").rpartition(".")
    if stem not in _COPIED:
        yield Part(tensor.name, shape, kind, lambda: iter([tensor.data.view(np.uint8)]))
        return
    if mixture.noise and kind in _NO_QUANTISER:
        kind = _NEAREST.get(kind, Type.Q4_1)
    name = f"{at}.{_COPIED[stem]}.weight"
    yield Part(
        name,
        (mixture.experts, *shape),
        kind,
        lambda: _copies(tensor, kind, mixture, np.random.default_rng((seed, crc32(name.encode())))),
    )
    if stem == "ffn_gate":
        yield _router(f"{at}.ffn_gate_inp.weight", mixture.experts, shape[-1], seed)


def _router(name: str, experts: int, hidden: int, seed: int) -> Part:
    random = np.random.default_rng((seed, crc32(name.encode())))
    spread = np.full(experts, hidden**-0.5, np.float32)
    weights = blocks.rows(Type.F32, hidden, spread, 0.0, random)
    return Part(name, (experts, hidden), Type.F32, lambda: iter([weights]))


def _copies(
    tensor: ReaderTensor, kind: Type, mixture: Mixture, random: np.random.Generator
) -> Iterator[npt.NDArray[np.uint8]]:
    """The bytes of all copies in pieces of whole rows."""
    rows = tensor.data.reshape(-1, tensor.data.shape[-1])
    step = max(1, _VALUES // int(tensor.shape[0]))
    for _ in range(mixture.experts):
        for first in range(0, len(rows), step):
            piece = rows[first : first + step]
            if mixture.noise:
                plain = quants.dequantize(piece, tensor.tensor_type).astype(np.float32)
                plain *= 1 + mixture.noise * random.standard_normal(plain.shape, np.float32)
                piece = quants.quantize(plain, kind)
            yield np.ascontiguousarray(piece).view(np.uint8)
