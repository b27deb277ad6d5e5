"""How many bytes a model's file makes a program read for one token.

Weights: every matrix of the layers and the output matrix once, of the routed experts only the
share that a token takes; of embeddings and n-gram tables, which are read by the row, nothing.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

import strata.kernels._cpu as _cpu
from strata.files import ModelFile, TensorEntry, open_model
from strata.kernels import quant
from strata.kernels.native_pack import Packer

_ROWWISE = ("token_embd.weight", "per_layer_token_embd.weight")


@dataclass(frozen=True)
class Touched:
    """Bytes for one token: weights as in the file and as Strata packs them; keys and values
    (float16) for each token before it; states (float32), read and written. `most_keys`: so many
    tokens' keys at most, where attention chooses. Of `packed`, `experts` are a token's routed
    ones, which are `share` of a layer's.
    """

    file: int
    packed: int
    keys: int
    states: int
    most_keys: int | None
    experts: int
    share: float


def touched(path: Path) -> Touched:
    """Of a GGUF file."""
    file, packer = open_model(path), Packer(_cpu.isas()[0], 1)
    _cpu.use_isa(_cpu.isas()[0])
    tied = "output.weight" not in file.tensors
    plain = packed = experts = keys = states = 0.0
    for name, tensor in file.tensors.items():
        if name in _ROWWISE and not (tied and name == "token_embd.weight"):
            continue
        routed = "_exps." in name
        share = _share(file) if routed else 1.0
        plain += share * tensor.data.nbytes
        size = share * _packed(tensor, packer)
        packed += size
        experts += size if routed else 0
        if name.endswith(("attn_k.weight", "attn_v.weight")):
            keys += 2 * tensor.shape[0]
        if name.endswith("ssm_out.weight"):  # cols: value heads x width of a head
            width = int(file.metadata[f"{file.architecture}.ssm.state_size"])
            states += 2 * 4 * tensor.shape[1] * width
    budget = file.metadata.get(f"{file.architecture}.attention.indexer.top_k")
    return Touched(
        int(plain),
        int(packed),
        int(keys),
        int(states),
        None if budget is None else int(budget),
        int(experts),
        _share(file) if experts else 1.0,
    )


def _share(file: ModelFile) -> float:
    """Of a layer's experts, those that a token takes."""
    at = file.architecture
    count = int(file.metadata[f"{at}.expert_used_count"])
    return count / int(file.metadata[f"{at}.expert_count"])


def _packed(tensor: TensorEntry, packer: Packer) -> int:
    """Bytes in memory. Vectors and the taps of convolutions stay as they are."""
    if len(tensor.shape) < 2 or "conv1d" in tensor.name:
        return int(tensor.data.nbytes)
    rows, cols = tensor.data.nbytes, tensor.shape[-1]
    format = quant.Format(tensor.format)
    rows //= cols // format.block * format.block_bytes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of read-only memory: nobody writes
        whole = quant.QTensor(torch.from_numpy(tensor.data), format, rows, cols)
    return packer.nbytes(whole)
