"""What the engine tells of itself: finished requests, counters at a moment, what was freed.

Plain frozen data that crosses layers, like `strata.types`. Knows no torch, no text and no JSON.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True)
class ExpertUse:
    """Where experts were served from, counted in routed entries: one token's choice of one expert.

    Each of the `lookups` is in one of four: `device` (already in fast memory), `bus` (copied there
    for this), `host` (computed from main memory), `disk` (read from the disk for this). Bytes
    moved and seconds waited, by lane; a request gets its entries' part of both.
    """

    lookups: int = 0
    device: int = 0
    bus: int = 0
    host: int = 0
    disk: int = 0
    bus_bytes: int = 0
    disk_bytes: int = 0
    bus_stall_s: float = 0.0
    disk_stall_s: float = 0.0

    def __add__(self, other: ExpertUse) -> ExpertUse:
        return ExpertUse(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class ExpertFigures:
    """One layer's experts since start. `prefetched` were started on a guess, of which `used` were
    then wanted and `wasted` left without. Slots that several layers share are told by the first
    of them, as `device_room` and `host_room` bytes.
    """

    layer: int
    experts: int
    on_device: int
    on_host: int
    record_bytes: int
    use: ExpertUse
    active: int = 0  # experts that a step used, summed over steps
    evicted: int = 0
    prefetched: int = 0
    used: int = 0
    wasted: int = 0
    device_room: int = 0
    host_room: int = 0


@dataclass(frozen=True, slots=True)
class RowFigures:
    """Rows of tables that stay in their file, looked up since start: `hits` needed no read.
    `nbytes` were read, in whole blocks of the disk, and `stall_s` seconds waited for them. `held`
    of `room` bytes hold rows now.
    """

    lookups: int = 0
    hits: int = 0
    nbytes: int = 0
    stall_s: float = 0.0
    held: int = 0
    room: int = 0

    def __add__(self, other: RowFigures) -> RowFigures:
        return RowFigures(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class Record:
    """One finished request as `GET /v1/requests` shows it. Rates in tokens/s. `reason` says why it
    ended, in words; `number` counts the finished requests from 1. `waits` for a prefix began and
    ended so many seconds after it arrived; `trace` is the request's.
    """

    id: str
    time: float
    status: str
    prompt: int
    reused: int
    output: int
    prefill_rate: float | None
    decode_rate: float | None
    first_token_s: float | None
    queue_s: float
    duration_s: float
    experts: ExpertUse | None = None
    reason: str | None = None
    number: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    waits: tuple[tuple[float, float], ...] = ()
    trace: str | None = None

    @property
    def wait_s(self) -> float:
        """How long it waited for prefixes that others read."""
        return sum(end - begin for begin, end in self.waits)


@dataclass(frozen=True, slots=True)
class LiveRow:
    """One request that has not ended. `status` is queued, parked (it waits for a prefix that
    another is reading), reading or decoding; `stepping`: it has a part in the step now running.

    `read` tokens of its prompt are there, `reused` were before, `computed` it computed before its
    first token. Moments in seconds of the engine's clock, None while they have not come.
    """

    id: str
    status: str
    prompt: int
    reused: int
    read: int
    computed: int
    output: int
    arrived: float
    admitted: float | None
    first: float | None
    last: float | None
    stepping: bool = False
    experts: ExpertUse | None = None


@dataclass(frozen=True, slots=True)
class View:
    """The engine between two steps, `at` a moment of its clock, `wall` seconds since 1970.

    `stepped` is when the last step ended; from `steps` on, totals since start, as of that step.
    `ended` is the number of the last record by then.
    """

    at: float = 0.0
    wall: float = 0.0
    rows: tuple[LiveRow, ...] = ()
    ended: int = 0
    stepped: float = 0.0
    steps: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Spread:
    """How often a figure of requests came out how large: `counts` up to each of `bounds`, and the
    rest; `total` is its sum.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float = 0.0

    @classmethod
    def of(cls, *bounds: float) -> Spread:
        """Nothing yet."""
        return cls(bounds, (0,) * (len(bounds) + 1))

    def add(self, value: float) -> Spread:
        """With one more."""
        at = bisect_left(self.bounds, value)
        counts = (*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :])
        return Spread(self.bounds, counts, self.total + value)


@dataclass(frozen=True, slots=True)
class Freed:
    """What emptying the cache gave back: pages, states, and the bytes of both."""

    pages: int
    states: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Cached tokens between two branches of the tree of prefixes, `end` of them and what is above.

    `number` names it while it is cached, `parent` is the stretch above. `hits`: requests that
    resumed from it or beyond; `idle_s` since it was last used; `running` requests that use it now.
    """

    number: int
    parent: int | None
    namespace: str
    end: int
    tokens: int
    bytes: int
    states: int
    hits: int
    idle_s: float
    running: int


@dataclass(frozen=True, slots=True)
class Survey:
    """A look at the cache: some of its stretches, which have `pages` of all `total` pages."""

    stretches: tuple[Stretch, ...]
    pages: int
    total: int


@dataclass(frozen=True, slots=True)
class Prefix:
    """The tokens of a stretch and all above it; the last `own` are the stretch's."""

    tokens: tuple[int, ...]
    own: int


_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5)
# Empty: in seconds, and in tokens.
SPREADS: Mapping[str, Spread] = {
    **dict.fromkeys(("queue_s", "prefill_s", "decode_s", "duration_s"), Spread.of(*_SECONDS)),
    **dict.fromkeys(("prompt", "output"), Spread.of(*_TOKENS)),
}


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """The prefix cache at one moment; from `lookups` on, totals since start."""

    block: int = 0  # tokens in a page
    pages_total: int = 0
    pages_free: int = 0
    pages_cached: int = 0  # whether a running row uses them or not
    page_bytes: int = 0
    states_total: int = 0
    states_free: int = 0
    states_cached: int = 0  # checkpoints
    state_bytes: int = 0
    running: int = 0
    parked: int = 0
    lookups: int = 0  # by rows that may share
    hits: int = 0  # of them, those that resumed beyond their first token
    hit_tokens: int = 0
    queried_tokens: int = 0  # in the prompts of those rows
    evicted_pages: int = 0
    evicted_states: int = 0
    gone: dict[str, int] = field(default_factory=dict)  # pages and states that left it, by why


@dataclass(frozen=True, slots=True)
class Snapshot(CacheFigures):
    """The engine and its cache at one moment. Totals since start unless said."""

    ready: bool = False
    queued: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    requests: dict[str, int] = field(default_factory=dict)  # by Finish value
    # Of finished requests, by a figure of Record or Usage.
    spreads: Mapping[str, Spread] = field(default_factory=lambda: SPREADS)
    preemptions: int = 0
    experts: tuple[ExpertFigures, ...] = ()  # one for each mixture; none without a store
    loading: bool = False  # the step now running waits for experts
    rows: RowFigures | None = None  # None where no table is read by the row
