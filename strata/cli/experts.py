"""A model's expert store, from settings: records, slots, policy, profile and trace.

Decides whether there is one at all. Torch is imported late, as in assemble.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strata.files import ModelFile
from strata.memory.budget import SlotShare
from strata.memory.expert_budget import DEVICE, HOST, automatic, share, size_or_auto
from strata.memory.machine import available_memory, machine_memory
from strata.settings import Config
from strata.types import ProgressSink, StrataError

if TYPE_CHECKING:
    from strata.experts.layout import ExpertLayout
    from strata.experts.policy import Policy
    from strata.experts.trace import TraceWriter
    from strata.memory.disk import RecordFile

_log = logging.getLogger(__name__)
Report = Callable[[str], None]
_MEASURE_S = 0.1  # at each depth of reading
_LEAST_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Store:
    """`experts` is a `strata.experts.store.ExpertStore`. `folder` holds its records,
    `chunk` is how many tokens of a prompt are best read in a step.
    """

    experts: Any
    ends: tuple[Callable[[], None], ...]  # what is to be done when the engine has stopped
    folder: Path
    chunk: int

    def close(self) -> None:
        """Once the engine has stopped. What cannot be written is logged."""
        for end in self.ends:
            try:
                end()
            except StrataError as error:
                _log.error("%s", error)


def slots_for(
    config: Config, model: Any, kernels: Any, beside: int
) -> tuple[SlotShare, ...] | None:
    """Slots for the experts of a `model` that is not yet bound; None when they are to be held with
    the other weights, or it has none. `beside` are bytes that others will take. ConfigError.
    """
    mixtures = model.mixtures()
    if not mixtures:
        return None

    from strata.experts.layout import ExpertLayout

    layout = ExpertLayout.of(_layers(mixtures), kernels)
    records, least = layout.sizes().tolist(), _top_k(mixtures)
    memory = machine_memory()
    device = size_or_auto(config.expert_cache, memory) or 0  # auto: no CPU has memory of that kind
    ram = size_or_auto(config.expert_ram, memory)
    if ram is None:
        others = model.weight_bytes - model.expert_bytes + beside
        ram = automatic(sum(records), others + device, available_memory())
        if ram is None and not device and not config.expert_trace:
            return None  # a trace is a store's, so that wanting one is wanting a store
        ram = sum(records) if ram is None else ram
    fast = share(DEVICE, device, records, least) if device else ()
    return share(HOST, ram, records, least) + fast


def open_store(
    config: Config,
    file: ModelFile,
    model: Any,
    kernels: Any,
    slots: tuple[SlotShare, ...],
    progress: ProgressSink,
    report: Report,
) -> Store:
    """The store of a model that is not yet bound. Packs the records on first use. StrataError."""
    from strata.experts.pack import records_for

    mixtures = model.mixtures()
    folder = Path(config.expert_records).expanduser() if config.expert_records else None
    layout, records = records_for(file, _layers(mixtures), kernels, folder, progress, report)
    return _stocked(config, file.path.name, layout, records, slots, _top_k(mixtures))


def _layers(mixtures: Any) -> list[tuple[int, Any]]:
    return [(number, weights.experts) for number, weights in mixtures]


def _top_k(mixtures: Any) -> int:
    most: int = max(weights.top_k for _, weights in mixtures)
    return most


def _stocked(
    config: Config,
    name: str,
    layout: ExpertLayout,
    records: RecordFile,
    slots: tuple[SlotShare, ...],
    top_k: int,
) -> Store:
    """The store over a record file."""
    from strata.experts.calibration import Calibration
    from strata.experts.lanes import Rates
    from strata.experts.store import ExpertStore, TierPlan
    from strata.memory.disk import best_depth
    from strata.memory.transfer import ThreadCopier

    found = Calibration.load(records.path.parent)
    policies, keep = _policies(config, layout, {one.tier for one in slots})
    trace = _trace(config, name, layout)
    rates = records.rates(seconds=_MEASURE_S)
    # A short measurement may flatter few reads; first reads also wait for their checksums.
    depth = max(_LEAST_DEPTH, best_depth(rates))
    copiers = {HOST: ThreadCopier(depth, "strata-disk"), DEVICE: ThreadCopier(1, "strata-bus")}
    plans = {
        tier: TierPlan(
            {one.nbytes: one.slots for one in slots if one.tier == tier}, policy, copiers[tier]
        )
        for tier, policy in policies.items()
    }
    wish = config.expert_prefetch
    store = ExpertStore(
        layout,
        records.read,
        plans[HOST],
        plans.get(DEVICE),
        top_k=top_k,
        prefetch=found.prefetch if wish == "auto" else wish == "on",
        trace=trace,
        rates=Rates(disk=rates[depth]),
    )
    ends = [*(copier.close for copier in copiers.values()), records.close, keep]
    ends += [] if trace is None else [trace.close]
    return Store(store, tuple(ends), records.path.parent, found.prefill_chunk)


def _policies(
    config: Config, layout: ExpertLayout, tiers: set[str]
) -> tuple[dict[str, Policy], Callable[[], None]]:
    """One for each tier, with what the profile knows; and what keeps that for the next time."""
    from strata.experts import profile
    from strata.experts.policies import make

    places, experts = len(layout.places), layout.experts
    name, floor = config.expert_policy, config.expert_floor
    policies = {tier: make(name, places, experts, floor) for tier in tiers}
    if not config.expert_profile:
        return policies, lambda: None
    path = Path(config.expert_profile).expanduser()
    if (known := profile.load(path, places, experts)) is not None:
        for policy in policies.values():
            policy.learn(known)
    # The fastest tier sees every lookup, the other one what that lacks.
    first = policies.get(DEVICE, policies[HOST])
    return policies, lambda: profile.save(path, first.popularity(), places)


def _trace(config: Config, name: str, layout: ExpertLayout) -> TraceWriter | None:
    from strata.experts.trace import TraceHead, TraceWriter

    if not config.expert_trace:
        return None
    head = TraceHead(name, layout.experts, tuple(place.record for place in layout.places))
    return TraceWriter(Path(config.expert_trace).expanduser(), head)
