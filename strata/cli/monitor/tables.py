"""The table of requests as lines of text, what a row has beside it, and both as CSV.

A table that is wider than its place is written closer: heads on two lines, no seconds.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

from strata.cli.monitor import wording
from strata.cli.monitor.told import Entry, Experts
from strata.cli.terminal import columns

# Head, and the text of a row; True asks for the short form.
_COLUMNS: tuple[tuple[str, Callable[[Entry, bool], str]], ...] = (
    ("TIME", lambda one, short: wording.clock(one.time, short)),
    ("STATUS", wording.status),
    ("PROMPT", lambda one, short: wording.count(one.prompt)),
    ("REUSED", lambda one, short: wording.count(one.reused)),
    ("OUTPUT", lambda one, short: wording.count(one.output)),
    ("PREFILL T/S", lambda one, short: wording.rate(one.prefill_rate)),
    ("DECODE T/S", lambda one, short: wording.rate(one.decode_rate)),
    ("HIT RATE", lambda one, short: _close(wording.hit_rate(one.experts), short)),
    ("DURATION", lambda one, short: wording.seconds(_age(one))),
)
_LEFT = 2  # columns that begin at the left
_HITS = 7
# What is beside a row: its name, its text.
_DETAILS: tuple[tuple[str, Callable[[Entry], str]], ...] = (
    ("Request", lambda one: one.id),
    ("Status", wording.status),
    ("Time", lambda one: wording.clock(one.time)),
    ("Prompt", lambda one: f"{wording.count(one.prompt)} tokens"),
    ("Reused", lambda one: f"{wording.count(one.reused)} tokens"),
    ("Output", lambda one: f"{wording.count(one.output)} tokens"),
    ("Prefill", lambda one: f"{wording.rate(one.prefill_rate)} t/s"),
    ("Decode", lambda one: f"{wording.rate(one.decode_rate)} t/s"),
    ("First token", lambda one: wording.seconds(one.first_token_s)),
    ("Queue wait", lambda one: wording.seconds(one.queue_s)),
    ("Duration", lambda one: wording.seconds(_age(one))),
    ("Stop reason", lambda one: one.reason or wording.NONE),
    ("Hit rate", lambda one: wording.hit_rate(one.experts)),
    ("Experts", lambda one: _lanes(one.experts)),
)
_LANES = {"device": "on the GPU", "bus": "over PCIe", "host": "from RAM", "disk": "from the disk"}
_CSV: tuple[str, ...] = (
    "time",
    "id",
    "status",
    "prompt",
    "reused",
    "output",
    "prefill_rate",
    "decode_rate",
)
_CSV += ("first_token_s", "queue_s", "duration_s", "reason")
_CSV_EXPERTS = ("tier", "hit_rate", "bus_share", "lookups", "device", "bus", "host", "disk")


def table(
    entries: Sequence[Entry], tier: str | None, width: int | None = None
) -> tuple[list[str], list[str]]:
    """Lines of the head, and one for each entry. `width` None is wide enough for anything."""
    wide = _laid(entries, tier, short=False)
    if width is None or len(wide[0][0]) <= width:
        return wide
    return _laid(entries, tier, short=True)


def _laid(entries: Sequence[Entry], tier: str | None, short: bool) -> tuple[list[str], list[str]]:
    names = [name for name, _ in _COLUMNS]
    if tier:
        names[_HITS] = f"{tier} {names[_HITS]}"
    heads = [names]
    if short:
        split = [name.partition(" T/S") for name in names]
        heads = [[first for first, _, _ in split], [unit.strip() for _, unit, _ in split]]
    rows = [[text(entry, short) for _, text in _COLUMNS] for entry in entries]
    gap = " " if short else "  "
    lines = [gap.join(cells) for cells in columns([*heads, *rows], _LEFT)]
    return lines[: len(heads)], lines[len(heads) :]


def _close(text: str, short: bool) -> str:
    return text.replace(" %", "%") if short else text


def _age(entry: Entry) -> float | None:
    return entry.age_s if entry.duration_s is None else entry.duration_s


def matches(entry: Entry, wanted: str) -> bool:
    """Whether all words of `wanted` are somewhere in what is told of a request."""
    cells = [text(entry, False) for _, text in _COLUMNS]
    said = " ".join([entry.id, entry.status, entry.reason or "", *cells]).lower()
    return all(word in said for word in wanted.lower().split())


def details(entry: Entry) -> list[str]:
    """All that is known of a request, a line each."""
    wide = max(len(name) for name, _ in _DETAILS)
    return [f"{name:<{wide}}  {text(entry)}" for name, text in _DETAILS]


def _lanes(use: Experts | None) -> str:
    if use is None:
        return wording.NONE
    found = [(getattr(use, lane), where) for lane, where in _LANES.items()]
    return ", ".join(f"{wording.count(n)} {where}" for n, where in found if n) or wording.NONE


def exported(entries: Sequence[Entry]) -> str:
    """CSV (RFC 4180) with a head, in the names of the JSON; what is unknown is empty."""
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow([*_CSV, *(f"experts_{name}" for name in _CSV_EXPERTS)])
    for one in entries:
        own = [getattr(one, name) for name in _CSV]
        lines.writerow([*own, *(getattr(one.experts, name, None) for name in _CSV_EXPERTS)])
    return text.getvalue()
