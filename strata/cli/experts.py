"""A model's expert store, from settings: records, slots, policy, profile and trace.

Decides whether there is one at all. Torch is imported late, as in assemble.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strata.files import ModelFile
from strata.memory.budget import SlotShare
from strata.memory.expert_budget import DEVICE, HOST, automatic, share, size_or_auto
from strata.memory.machine import available_memory, machine_memory
from strata.settings import Config
from strata.types import ProgressSink, StorageError

_log = logging.getLogger(__name__)
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Store:
    """`experts` is a `strata.experts.store.ExpertStore` on `slots`."""

    experts: Any
    slots: tuple[SlotShare, ...]
    ends: tuple[Callable[[], None], ...]  # what is to be done when the engine has stopped

    def close(self) -> None:
        """Once the engine has stopped. What cannot be written is logged."""
        for end in self.ends:
            try:
                end()
            except StorageError as error:
                _log.error("%s", error)


def open_store(
    config: Config,
    file: ModelFile,
    model: Any,
    kernels: Any,
    cache: int,
    progress: ProgressSink,
    report: Report,
) -> Store | None:
    """The store of a `model` that is not yet bound; None when its experts are to be held with the
    other weights, or it has none. `cache` are bytes that pages and states will take. Packs the
    records on first use. Raises StrataError.
    """
    mixtures = model.mixtures()
    if not mixtures:
        return None

    from strata.experts.layout import ExpertLayout
    from strata.experts.pack import records_for

    layers = [(number, weights.experts) for number, weights in mixtures]
    layout = ExpertLayout.of(layers, kernels)
    others = model.weight_bytes - model.expert_bytes + cache
    slots = _slots(config, layout.sizes().tolist(), others, mixtures[0][1].top_k)
    if slots is None:
        return None
    folder = Path(config.expert_records).expanduser() if config.expert_records else None
    layout, records = records_for(file, layers, kernels, folder, progress, report)
    raise NotImplementedError(records)  # the store comes with the next merge


def _slots(
    config: Config, records: list[int], others: int, least: int
) -> tuple[SlotShare, ...] | None:
    """Slots for records of these sizes beside `others` bytes; None when all may simply be held."""
    memory = machine_memory()
    device = size_or_auto(config.expert_cache, memory) or 0  # auto: no CPU has memory of that kind
    ram = size_or_auto(config.expert_ram, memory)
    if ram is None:
        ram = automatic(sum(records), others + device, available_memory())
        if ram is None and not device:
            return None
        ram = sum(records) if ram is None else ram
    fast = share(DEVICE, device, records, least) if device else ()
    return share(HOST, ram, records, least) + fast
