"""One snapshot of everything, as the Monitor's JSON has it. Pure functions of frozen data.

Times in seconds, `time` since 1970, rates in tokens per second, sizes in bytes. What each figure
means is in definitions.py.
"""

from __future__ import annotations

from typing import Any

import strata
from strata.figures import ExpertUse, LiveRow, Record, Snapshot, View
from strata.server import experts
from strata.server.monitor.rates import Rates
from strata.server.service import Lobby

_STATUS = {"parked": "waiting"}
_GPU, _RAM = "GPU", "RAM"


def server(lobby: Lobby, view: View, started: float, now: float) -> dict[str, Any]:
    """Who answers, and what it is doing."""
    service = lobby.present
    failed = service is not None and service.engine.error is not None
    return {
        "version": strata.__version__,
        "started": started,
        "state": "failed" if failed else "loading" if lobby.reason else _doing(view),
        "reason": lobby.reason,
        "model": service.model.id if service else None,
        "uptime_s": now - started,
    }


def _doing(view: View) -> str:
    if any(row.status == "decoding" for row in view.rows):
        return "answering"
    return "reading" if view.rows else "idle"


def speed(rates: Rates, view: View) -> dict[str, Any]:
    """All rows together, over the last second."""
    now = rates.speed
    step_ms = None if now.step_s is None else 1000 * now.step_s
    return {"read": now.read, "decode": now.decode, "step_ms": step_ms, "steps": view.steps}


def queue(view: View, batch: int) -> dict[str, int]:
    """How many requests run, and how many wait for what."""
    states = [row.status for row in view.rows]
    queued, waiting = states.count("queued"), states.count("parked")
    running = len(states) - queued - waiting
    return {"running": running, "queued": queued, "waiting": waiting, "batch": batch}


def memory(now: Snapshot) -> list[dict[str, Any]]:
    """Each tier that is there: what is used of it, and what of that others can use again."""
    tiers = []
    for tier, size, total, free, cached in (
        ("pages", now.page_bytes, now.pages_total, now.pages_free, now.pages_cached),
        ("states", now.state_bytes, now.states_total, now.states_free, now.states_cached),
    ):
        if total:
            tiers.append(_tier(tier, size * (total - free), size * total, size * cached))
    layers = now.experts
    on_device = sum(one.on_device * one.record_bytes for one in layers)
    on_host = sum(one.on_host * one.record_bytes for one in layers)
    tiers += [
        _tier(name, used, total, None)
        for name, used, total in (
            ("experts on GPU", on_device, sum(one.device_room for one in layers)),
            ("experts in RAM", on_host, sum(one.host_room for one in layers)),
            ("n-gram rows", now.rows.held if now.rows else 0, now.rows.room if now.rows else 0),
        )
        if total
    ]
    return tiers


def _tier(tier: str, used: int, total: int, reusable: int | None) -> dict[str, Any]:
    return {"tier": tier, "used": used, "total": total, "reusable": reusable}


def totals(now: Snapshot) -> dict[str, Any]:
    """Since the start. `saved_s`: what was reused, at the mean rate of what was read."""
    saved = None
    if now.prefill_tokens:
        saved = now.cached_tokens * now.prefill_s / now.prefill_tokens
    return {
        "requests": dict(now.requests),
        "prompt": now.prompt_tokens,
        "reused": now.cached_tokens,
        "output": now.decode_tokens,
        "read": now.prefill_tokens,
        "saved_s": saved,
        "experts": use(experts.added([layer.use for layer in now.experts]), tier(now)),
    }


def tier(now: Snapshot) -> str | None:
    """The fastest tier that experts have slots in; None without a store."""
    if not now.experts:
        return None
    return _GPU if any(layer.device_room for layer in now.experts) else _RAM


def use(told: ExpertUse | None, tier: str | None) -> dict[str, Any] | None:
    """Where experts came from; None where no store has them."""
    row = experts.use(told)
    if told is None or row is None:
        return None
    hits = told.device if tier == _GPU else told.device + told.host
    share = (lambda count: count / told.lookups) if told.lookups else (lambda count: None)
    return {**row, "tier": tier, "hit_rate": share(hits), "bus_share": share(told.bus)}


def rows(view: View, rates: Rates, counts: Snapshot, now: float) -> list[dict[str, Any]]:
    """Who has not ended, in the order of arrival."""
    living = sorted(view.rows, key=lambda row: row.arrived)
    return [_row(row, view, rates, counts, now) for row in living]


def _row(row: LiveRow, view: View, rates: Rates, counts: Snapshot, now: float) -> dict[str, Any]:
    begun = view.wall + row.arrived - view.at
    loading = counts.loading and row.stepping
    return {
        "id": row.id,
        "status": "loading" if loading else _STATUS.get(row.status, row.status),
        "time": begun,
        "age_s": now - begun,
        "prompt": row.prompt,
        "reused": row.reused,
        "read": row.read,
        "output": row.output,
        "prefill_rate": _prefill_rate(row, view.at),
        "decode_rate": rates.decode.get(row.id),
        "experts": use(row.experts, tier(counts)),
    }


def _prefill_rate(row: LiveRow, at: float) -> float | None:
    """Of what it computed itself, since it began to run."""
    if row.admitted is None or not row.computed:
        return None
    seconds = (at if row.first is None else row.first) - row.admitted
    return row.computed / seconds if seconds > 0 else None


def finished(record: Record, tier: str | None) -> dict[str, Any]:
    """A request that has ended."""
    return {
        "id": record.id,
        "number": record.number,
        "time": record.time,
        "status": record.status,
        "reason": record.reason,
        "prompt": record.prompt,
        "reused": record.reused,
        "output": record.output,
        "prefill_rate": record.prefill_rate,
        "decode_rate": record.decode_rate,
        "first_token_s": record.first_token_s,
        "queue_s": record.queue_s,
        "wait_s": record.wait_s,
        "prefill_s": record.prefill_s,
        "decode_s": record.decode_s,
        "duration_s": record.duration_s,
        "experts": use(record.experts, tier),
    }
