"""How figures are written: counts, rates, sizes, times, states. A dash where there is none."""

from __future__ import annotations

import time

from strata.cli.monitor.told import Entry, Experts, Snapshot

NONE = "–"

# Short enough for a column, and in full.
_STATUS = {
    "queued": ("Queued", "Queued"),
    "waiting": ("Waiting", "Waiting for a prefix"),
    "loading": ("Loading", "Loading experts"),
    "reading": ("Reading", "Reading"),
    "decoding": ("Decoding", "Decoding"),
    "stop": ("Finished", "Finished"),
    "length": ("Max tokens", "Max tokens"),
    "repetition": ("Repeated", "Repeated itself"),
    "cancelled": ("Closed", "Closed"),
    "failed": ("Failed", "Failed"),
}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def count(value: float | None) -> str:
    """10,242"""
    return NONE if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """1,067 from 100 on, 44.1 below; 0 is exact."""
    if value is None:
        return NONE
    return count(value) if value >= 99.95 or value == 0 else f"{value:.1f}"


def percent(part: float | None) -> str:
    """87.4 %, from a part of 1."""
    return NONE if part is None else f"{100 * part:.1f} %"


def size(value: float | None) -> str:
    """3.5 GiB"""
    if value is None:
        return NONE
    unit = 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit and value < 100 else f"{value:,.0f} {_UNITS[unit]}"


def seconds(value: float | None) -> str:
    """340 ms, 5.8 s, then as `span`."""
    if value is None:
        return NONE
    if value == 0:
        return "0 s"
    if value < 0.9995:
        return f"{1000 * value:.0f} ms"
    return f"{value:.1f} s" if value < 99.95 else span(value)


def span(value: float) -> str:
    """37 s, 2 min 5 s, 3 h 12 min, 4 d 2 h."""
    whole = round(value)
    minutes, hours, days = whole // 60 % 60, whole // 3600 % 24, whole // 86400
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def clock(when: float, short: bool = False) -> str:
    """The time of day here."""
    return time.strftime("%H:%M" if short else "%H:%M:%S", time.localtime(when))


def hit_rate(experts: Experts | None) -> str:
    """87.4 % +3.7 % PCIe: found in the tier, and what the bus brought besides."""
    if experts is None or experts.hit_rate is None:
        return NONE
    bus = f" +{percent(experts.bus_share)} PCIe" if experts.bus_share else ""
    return percent(experts.hit_rate) + bus


def status(entry: Entry, short: bool = False) -> str:
    """What a request does or how it ended; of a reading one how far it is."""
    brief, full = _STATUS.get(entry.status, (entry.status, entry.status))
    if entry.status == "reading" and entry.read is not None and entry.prompt:
        full = f"{full} {100 * entry.read // entry.prompt} %"
        return full.replace(" %", "%") if short else full
    return brief if short else full


def lives(entry: Entry) -> bool:
    """Whether it still runs or waits."""
    return entry.duration_s is None


def headline(now: Snapshot) -> str:
    """What the server is doing: "Reading for 2 clients, 1 waiting"."""
    reason = now.server.reason
    if now.server.state == "failed":
        return f"Stopped: {reason or 'the engine failed'}"
    if now.server.state == "loading":
        return _sentence(reason or "the model is being loaded")
    states = [row.status for row in now.rows]
    reading = states.count("reading") + states.count("loading")
    answering = states.count("decoding")
    waiting = len(states) - reading - answering
    parts = []
    if reading:
        parts.append(f"reading for {_clients(reading)}")
    if answering:
        parts.append(f"answering {answering if reading else _clients(answering)}")
    if waiting:
        parts.append(f"{waiting} waiting")
    return _sentence(", ".join(parts) or "idle")


def _clients(number: int) -> str:
    return f"{number} client" if number == 1 else f"{number} clients"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
