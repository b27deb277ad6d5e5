"""The fingerprint of a model: whether records were made from these very experts.

Names, types, shapes and sizes of all tensors, and some bytes of the experts: reading all of a
large model would take minutes. Two models differ in it unless all bytes looked at are the same,
which neither a new training nor another quantisation leaves as they are.
"""

from __future__ import annotations

import hashlib

import numpy as np

from strata.experts.layout import Layers
from strata.files import ModelFile
from strata.memory.mapped import done_with

_EXPERTS = 8  # looked at in each mixture
_BYTES = 4096  # looked at in each of their matrices


def fingerprint_of(file: ModelFile, layers: Layers) -> str:
    """64 hexadecimal digits. `layers` are the mixtures of the model in `file`."""
    seen = hashlib.sha256()
    for name, entry in sorted(file.tensors.items()):
        seen.update(f"{name} {entry.format} {entry.shape} {entry.data.nbytes}\n".encode())
    for _, experts in layers:
        passed = []
        for number in np.unique(np.linspace(0, len(experts) - 1, _EXPERTS).astype(int)):
            expert = experts[number]
            # Somewhere else in each expert, so that all of a tensor's length is looked at.
            part = number / len(experts)
            for data in (expert.gate.data, expert.up.data, expert.down.data):
                start = int(part * max(data.numel() - _BYTES, 0))
                seen.update(data[start : start + _BYTES].numpy().tobytes())
                passed.append(data)  # of which the system has read more than that
        done_with(passed)
    return seen.hexdigest()
