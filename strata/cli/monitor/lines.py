"""What stands above the table, as lines of text for a width: speeds, memory, machine, totals.

Also all of it at once, as plain text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from strata.cli.monitor import tables, wording
from strata.cli.monitor.seen import SPAN_S, Sample, Seen
from strata.cli.monitor.told import Gpu, Snapshot, Tier
from strata.cli.monitor.wording import count, rate, size

_BARS = "▁▂▃▄▅▆▇█"
_GAP = "  "
_CHART = 23  # characters before a sparkline
# Name, text now, value of a sample.
_SPEEDS: tuple[tuple[str, Callable[[Snapshot], str], Callable[[Sample], float | None]], ...] = (
    ("Read", lambda now: f"{rate(now.speed.read)} t/s", lambda one: one.read),
    ("Decode", lambda now: f"{rate(now.speed.decode)} t/s", lambda one: one.decode),
    ("Step", lambda now: f"{rate(now.speed.step_ms)} ms", lambda one: one.step_ms),
    ("Queue", lambda now: _queue(now), lambda one: one.requests),
)


def title(now: Snapshot, url: str) -> str:
    """Who answers, and where."""
    server = now.server
    up = f"up {wording.span(server.uptime_s)}"
    return " · ".join([f"Strata {server.version}", server.model or "no model yet", url, up])


def speeds(seen: Seen, width: int) -> list[str]:
    """Each speed now and its sparkline, two on a line."""
    if seen.now is None:
        return []
    half = (width - len(_GAP)) // 2
    cells = [
        f"{name:<7}{text(seen.now):<{_CHART - 7}}"
        + spark([(one.time, value(one)) for one in seen.samples], seen.now.time, half - _CHART)
        for name, text, value in _SPEEDS
    ]
    return [_GAP.join(cells[at : at + 2]) for at in range(0, len(cells), 2)]


def spark(points: Iterable[tuple[float, float | None]], now: float, width: int) -> str:
    """The last minutes in `width` characters: the mean of each stretch, by the highest of all.

    `points` are times and values; a stretch without any is a blank.
    """
    stretches: list[list[float]] = [[] for _ in range(max(width, 0))]
    for time, value in points:
        at = width - 1 - int((now - time) * width / SPAN_S)
        if value is not None and 0 <= at < width:
            stretches[at].append(value)
    means = [sum(found) / len(found) if found else None for found in stretches]
    top = max((mean for mean in means if mean is not None), default=0.0) or 1.0
    last = len(_BARS) - 1
    return "".join(" " if m is None else _BARS[round(last * max(m, 0) / top)] for m in means)


def facts(now: Snapshot, width: int) -> list[str]:
    """Memory by tier, the machine, and the totals since start; as many on a line as fit."""
    return [
        *_flow([_tier(tier) for tier in now.memory if tier.total], width),
        *_filled(_machine(now), width),
        *_filled(_totals(now), width),
    ]


def plain(seen: Seen, url: str) -> str:
    """Everything as text for a script or a log."""
    assert seen.now is not None
    now, entries = seen.now, [*seen.live(), *seen.finished()]
    lines = [title(now, url), wording.headline(now), ""]
    lines += [f"{name:<7}{text(now)}" for name, text, _ in _SPEEDS]
    lines += [_tier(tier) for tier in now.memory if tier.total]
    lines += [" · ".join(_machine(now)), " · ".join(_totals(now)), ""]
    heads, rows = tables.table(entries, seen.tier())
    return "\n".join(line.rstrip() for line in [*lines, *heads, *rows])


def _queue(now: Snapshot) -> str:
    queue = now.queue
    waiting = queue.queued + queue.waiting
    return f"{queue.running} of {queue.batch}" + (f", {waiting} wait" if waiting else "")


def _tier(tier: Tier) -> str:
    part = 100 * tier.used / tier.total
    text = f"{tier.tier[:1].upper()}{tier.tier[1:]} {part:.0f} % of {size(tier.total)}"
    if tier.reusable is None:
        return text
    return f"{text}, {100 * tier.reusable / tier.total:.0f} % reusable"


def _machine(now: Snapshot) -> list[str]:
    machine = now.machine
    found = [_gpu(gpu) for gpu in machine.gpus]
    if machine.cpu is not None:
        found.append(f"CPU {machine.cpu:.0f} %")
    if machine.ram is not None:
        found.append(f"RAM {size(machine.ram.used)} of {size(machine.ram.total)}")
    if machine.process is not None:
        found.append(f"Strata's part {size(machine.process)}")
    if machine.disk is not None:
        disk = machine.disk
        found.append(f"Disk {size(disk.read)}/s read, {size(disk.write)}/s written")
    return found


def _gpu(gpu: Gpu) -> str:
    parts = [] if gpu.use is None else [f"{gpu.use:.0f} %"]
    if gpu.memory_used is not None:
        parts.append(f"{size(gpu.memory_used)} of {size(gpu.memory_total)}")
    return f"{gpu.name} {', '.join(parts)}"


def _totals(now: Snapshot) -> list[str]:
    totals = now.totals
    ended = sum(totals.requests.values())
    bad = [
        f"{count(number)} {name}"
        for status, name in (("cancelled", "closed"), ("failed", "failed"))
        if (number := totals.requests.get(status, 0))
    ]
    part = f" ({wording.percent(totals.reused / totals.prompt)})" if totals.prompt else ""
    found = [
        f"{count(ended)} request{'' if ended == 1 else 's'}"
        + (f" ({', '.join(bad)})" if bad else ""),
        f"{count(totals.prompt)} prompt",
        f"{count(totals.reused)} reused{part}",
        f"{count(totals.output)} output",
    ]
    if totals.saved_s is not None:
        found.append(f"{wording.seconds(totals.saved_s)} saved")
    if totals.experts is not None and totals.experts.hit_rate is not None:
        found.append(f"experts {wording.hit_rate(totals.experts)}")
    return found


def _flow(items: Sequence[str], width: int) -> list[str]:
    """Items in columns of one width, as many as fit."""
    if not items:
        return []
    wide = max(map(len, items))
    across = max(1, (width + len(_GAP)) // (wide + len(_GAP)))
    rows = [items[at : at + across] for at in range(0, len(items), across)]
    return [_GAP.join(item.ljust(wide) for item in row).rstrip() for row in rows]


def _filled(items: Sequence[str], width: int) -> list[str]:
    """Items one after another, a new line where the next one does not fit."""
    lines = list[str]()
    for item in items:
        joined = f"{lines[-1]} · {item}" if lines else item
        if lines and len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(item)
    return lines
