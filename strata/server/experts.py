"""What is told of experts: in usage and records, at GET /v1/experts and among the metrics.

A lookup is one token's choice of one expert; a hit is one that no bus and no disk had to serve.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from typing import Any

import orjson
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from strata.figures import ExpertFigures, ExpertUse, RowFigures, Snapshot
from strata.types import Usage


def stats(usages: Sequence[Usage]) -> dict[str, Any]:
    """The `strata` object of a usage: sums over the choices of one HTTP request."""
    return {
        "queue_ms": _ms(sum(usage.queue_s for usage in usages)),
        "prefill_ms": _ms(sum(usage.prefill_s for usage in usages)),
        "decode_ms": _ms(sum(usage.decode_s for usage in usages)),
        "experts": use(added([u.experts for u in usages if u.experts is not None])),
    }


def use(told: ExpertUse | None) -> dict[str, Any] | None:
    """A use as JSON has it; null where no store has the experts."""
    if told is None:
        return None
    row: dict[str, Any] = asdict(told)
    for lane in ("bus", "disk"):
        row[f"{lane}_stall_ms"] = _ms(row.pop(f"{lane}_stall_s"))
    row["hit_rate"] = _part(told.device + told.host, told.lookups)
    return row


def added(uses: Sequence[ExpertUse]) -> ExpertUse | None:
    """Their sum; None of none."""
    return reduce(ExpertUse.__add__, uses) if uses else None


def page(now: Snapshot) -> bytes:
    """GET /v1/experts: totals since start, each layer's, and the rows of n-gram tables."""
    layers = now.experts
    total = _told(layers) if layers else None
    own = [{"layer": one.layer, "record_bytes": one.record_bytes, **_told([one])} for one in layers]
    return orjson.dumps(
        {"object": "experts", "total": total, "layers": own, "ngram_rows": _rows(now.rows)}
    )


def _rows(told: RowFigures | None) -> dict[str, Any] | None:
    """null where no cache has them."""
    if told is None:
        return None
    row = asdict(told)
    row["stall_ms"] = _ms(row.pop("stall_s"))
    row["bytes"] = row.pop("nbytes")
    row["bytes_held"], row["bytes_budget"] = row.pop("held"), row.pop("room")
    return {**row, "hit_rate": _part(told.hits, told.lookups)}


def _told(layers: Sequence[ExpertFigures]) -> dict[str, Any]:
    """Sums over layers, of which there are some."""
    names = ("experts", "on_device", "on_host", "active", "evicted")
    sums = {name: sum(getattr(layer, name) for layer in layers) for name in names}
    uses = use(added([layer.use for layer in layers])) or {}
    return {**sums, "prefetch": _prefetch(layers), **uses}


def _prefetch(layers: Sequence[ExpertFigures]) -> dict[str, Any]:
    """`precision` is the used part of those whose fate is known."""
    used, wasted = sum(one.used for one in layers), sum(one.wasted for one in layers)
    started = sum(one.prefetched for one in layers)
    precision = _part(used, used + wasted)
    return {"started": started, "used": used, "wasted": wasted, "precision": precision}


def families(now: Snapshot) -> Iterator[Metric]:
    """The metrics; all 0 without a store."""
    layers, total = now.experts, added([ExpertUse(), *(layer.use for layer in now.experts)])
    assert total is not None
    for name, label, text, counts in (
        ("lookups", "tier", "Lookups of experts, by what served them.", _of(total, "", _TIERS)),
        ("bytes", "lane", "Bytes of experts moved.", _of(total, "_bytes", _LANES)),
        ("stall_seconds", "lane", "Seconds waited for them.", _of(total, "_stall_s", _LANES)),
        (
            "prefetch",
            "result",
            "Experts read on a guess that came out so.",
            {name: sum(getattr(one, name) for one in layers) for name in ("used", "wasted")},
        ),
    ):
        counter = CounterMetricFamily(f"strata_expert_{name}", text, labels=[label])
        for key, count in counts.items():
            counter.add_metric([key], count)
        yield counter
    text = "Experts that lie in slots."
    slots = GaugeMetricFamily("strata_expert_slots", text, labels=["tier"])
    slots.add_metric(["device"], sum(one.on_device for one in layers))
    slots.add_metric(["host"], sum(one.on_host for one in layers))
    yield slots
    text = "Experts that lost their slot."
    evicted = sum(one.evicted for one in layers)
    yield CounterMetricFamily("strata_expert_evictions", text, value=evicted)


_TIERS, _LANES = ("device", "bus", "host", "disk"), ("bus", "disk")


def _of(total: ExpertUse, suffix: str, names: Sequence[str]) -> Mapping[str, float]:
    return {name: getattr(total, name + suffix) for name in names}


def _part(count: int, whole: int) -> float | None:
    return round(count / whole, 6) if whole else None


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)
