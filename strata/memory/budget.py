"""The memory plan: bytes into pages and states. Pure arithmetic, printed at start.

Knows sizes, not what they hold. A plan that cannot work is a ConfigError that
says, with numbers, which setting to change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil

from strata.types import ConfigError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(%|[kmgt]?i?b?)\s*$", re.IGNORECASE)
# A sequence at full context beside one page that is being copied from a partial leaf.
_SPARE_PAGES = 1
# A state of a hybrid model is worth some thousand tokens of pages. Chats of 8,000 to 16,000 tokens,
# with the handful of checkpoints each lives by, take about as much for the one as for the other.
_STATE_SHARE = 0.5
# The live one and the rolling checkpoint.
_ROW_STATES = 2
_MIB = 2**20


def parse_size(text: str, total: int) -> int:
    """Bytes meant by "2GiB", "500MB", "4096" or "25%" (of `total`). Raises ConfigError."""
    match = _SIZE.match(text)
    if match is None:
        raise ConfigError(f"{text!r} is not a size: write 2GiB, 500MB or 25% (of the RAM)")
    number, unit = float(match[1]), match[2].lower()
    if unit == "%":
        if number > 100:
            raise ConfigError(f"{text!r} is more than the whole memory")
        return int(total * number / 100)
    return int(number * _UNITS[unit.removesuffix("b")])


def show_bytes(count: int) -> str:
    """A number of bytes for people: 98.4 MB is written as 93.8 MiB."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


@dataclass(frozen=True, slots=True)
class SlotShare:
    """`slots` of `nbytes` each, for `records` records of that size, in a tier's memory."""

    tier: str
    nbytes: int
    slots: int
    records: int

    @property
    def total(self) -> int:
        """Bytes of all slots."""
        return self.slots * self.nbytes

    def __str__(self) -> str:
        place = f"{self.tier}: {self.slots} of {self.records} in slots of"
        return f"{place} {show_bytes(self.nbytes)}"


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """How the memory is shared out. Sizes in bytes; `block` in tokens. `experts`: slots
    for them, where they do not come with the weights; `rows`: cached ones of tables.
    """

    weights: int
    block: int
    page_bytes: int
    pages: int
    state_bytes: int
    states: int
    memory: int
    experts: tuple[SlotShare, ...] = ()
    rows: int = 0

    @property
    def cache_bytes(self) -> int:
        """Bytes of all pages and states."""
        return self.pages * self.page_bytes + self.states * self.state_bytes

    @property
    def cache_tokens(self) -> int:
        """How many tokens the pages hold."""
        return self.pages * self.block

    def __str__(self) -> str:
        lines = [f"weights  {show_bytes(self.weights):>10}"]
        for share in self.experts:
            lines.append(f"experts  {show_bytes(share.total):>10}   {share}")
        if self.rows:
            lines.append(f"rows     {show_bytes(self.rows):>10}   of tables that stay on disk")
        lines.append(
            f"pages    {show_bytes(self.pages * self.page_bytes):>10}"
            f"   {self.pages} of {show_bytes(self.page_bytes)} ({self.block} tokens each,"
            f" {self.cache_tokens} tokens)"
        )
        if self.states:
            lines.append(
                f"states   {show_bytes(self.states * self.state_bytes):>10}"
                f"   {self.states} of {show_bytes(self.state_bytes)}"
            )
        total = self.weights + self.rows + self.cache_bytes
        total += sum(share.total for share in self.experts)
        lines.append(f"total    {show_bytes(total):>10}   of {show_bytes(self.memory)}")
        return "\n".join(lines)


def plan_memory(
    *,
    weights: int,
    page_bytes: int,
    state_bytes: int,
    block: int,
    cache_bytes: int,
    context: int,
    batch: int,
    memory: int,
    experts: tuple[SlotShare, ...] = (),
    rows: int = 0,
) -> MemoryPlan:
    """Share `cache_bytes` out to pages and, where the model keeps a state, to states.

    `context` (tokens) of one sequence must fit into the pages, a live and a tail
    state of `batch` rows into the states. Beyond that, states get half of the bytes as
    long as the context fits. `memory` is what the process may use. `experts` are slots
    for those that do not come with the weights, `rows` bytes for rows of tables. Raises
    ConfigError.
    """
    slots = sum(share.total for share in experts)
    if weights + rows + slots + cache_bytes > memory:
        raise ConfigError(_beyond_memory(weights + rows, slots, cache_bytes, memory))
    need = -(-context // block) + _SPARE_PAGES if page_bytes else 0
    least = _ROW_STATES * batch if state_bytes else 0
    states = least
    if state_bytes:
        share = int(cache_bytes * _STATE_SHARE) // state_bytes
        spare = (cache_bytes - need * page_bytes) // state_bytes
        states = max(least, min(share, spare))
    left = cache_bytes - states * state_bytes
    pages = max(left, 0) // page_bytes if page_bytes else 0
    plan = MemoryPlan(weights, block, page_bytes, pages, state_bytes, states, memory, experts, rows)
    if left < 0 or pages < need:
        raise ConfigError(_too_small(plan, cache_bytes, need, context, batch))
    return plan


def _too_small(plan: MemoryPlan, cache_bytes: int, need: int, context: int, batch: int) -> str:
    """What does not fit, and what would: `need` pages are wanted."""
    rows = _ROW_STATES * plan.state_bytes  # bytes of the states of one row
    holds = f"a cache of {show_bytes(cache_bytes)} holds {plan.cache_tokens} tokens"
    if rows:
        size = show_bytes(plan.state_bytes)
        holds += f" beside the {plan.states} states of {size} of running rows"
    wanted = need * plan.page_bytes + batch * rows
    advice = [f"--cache-size to at least {ceil(wanted / _MIB)}MiB"]
    shorter = (plan.pages - _SPARE_PAGES) * plan.block
    if shorter > 0:
        advice.append(f"--ctx-size to at most {shorter}")
    fewer = (cache_bytes - need * plan.page_bytes) // rows if rows else 0
    if fewer > 0:
        advice.append(f"--batch to at most {fewer}")
    wants = f"--ctx-size {context} with --batch {batch} needs more"
    return f"{holds}, but {wants}: set {' or '.join(advice)}"


def _beyond_memory(weights: int, experts: int, cache_bytes: int, memory: int) -> str:
    spare = (memory - weights - experts) // _MIB
    fewer = (memory - weights - cache_bytes) // _MIB
    advice = "the weights alone do not fit: take a smaller model"
    if spare >= 1:
        advice = f"set --cache-size to at most {spare}MiB"
    elif experts and fewer >= 1:
        advice = f"set --expert-ram to at most {fewer}MiB"
    beside = f", experts of {show_bytes(experts)}" if experts else ""
    return (
        f"weights of {show_bytes(weights)}{beside} and a cache of {show_bytes(cache_bytes)} exceed"
        f" the memory of {show_bytes(memory)}: {advice}"
    )
