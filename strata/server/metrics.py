"""Counters of the server and of the engine, as Prometheus text.

`Meters` is written by the event-loop thread alone and read there, so it needs no lock;
a histogram's `observe` runs for each token and costs well under a microsecond. The
engine's own counters come with its Snapshot. Every metric is in docs/metrics.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from strata.figures import RowFigures, Snapshot
from strata.server import experts

FIRST_TOKEN_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
INTER_TOKEN_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 5)
DURATION_BOUNDS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
KIND = b"text/plain; version=0.0.4; charset=utf-8"

# name, text, field of Snapshot
_GAUGES = (
    ("ready", "1 when requests are accepted.", "ready"),
    ("rows_running", "Sequences in the running batch.", "running"),
    ("requests_queued", "Sequences waiting for a row.", "queued"),
    ("requests_parked", "Sequences waiting for a prefix that another reads.", "parked"),
    ("page_bytes", "Bytes of one page.", "page_bytes"),
    ("state_bytes", "Bytes of one state slot.", "state_bytes"),
)
_COUNTERS = (
    ("steps", "Forward steps run.", "steps"),
    ("prompt_tokens", "Prompt tokens of admitted sequences.", "prompt_tokens"),
    ("cached_tokens", "Prompt tokens not computed: their prefix was cached.", "cached_tokens"),
    ("computed_tokens", "Prompt tokens computed, replays included.", "prefill_tokens"),
    ("output_tokens", "Tokens generated.", "decode_tokens"),
    ("prefill_seconds", "Seconds of steps spent on prompts.", "prefill_s"),
    ("decode_seconds", "Seconds of steps spent on generating.", "decode_s"),
    ("preemptions", "Sequences sent back to the queue.", "preemptions"),
    ("cache_lookups", "Sequences that looked for a cached prefix.", "lookups"),
    ("cache_hits", "Those that found one.", "hits"),
    ("cache_hit_tokens", "Tokens they found.", "hit_tokens"),
    ("evicted_pages", "Cached pages given up.", "evicted_pages"),
    ("evicted_states", "Cached states given up.", "evicted_states"),
)


class Histogram:
    """Counts of observations per bucket; `bounds` are upper limits, in seconds."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self, name: str, text: str) -> HistogramMetricFamily:
        """The histogram as Prometheus has it: cumulative buckets."""
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        buckets = list(zip(names, accumulate(self._counts), strict=True))
        return HistogramMetricFamily(name, text, buckets=buckets, sum_value=self._sum)


class Meters:
    """What the server counts itself."""

    def __init__(self) -> None:
        self.first_token = Histogram(FIRST_TOKEN_BOUNDS)
        self.inter_token = Histogram(INTER_TOKEN_BOUNDS)
        self.duration = Histogram(DURATION_BOUNDS)
        self.responses: Counter[tuple[str, int]] = Counter()  # by route and status
        self.finishes: Counter[str] = Counter()  # choices by finish reason
        self.disconnects = 0
        self.open = 0

    def families(self) -> Iterator[Metric]:
        """The server's metrics."""
        text = "HTTP requests answered, by route and status (499: the client left first)."
        responses = CounterMetricFamily("strata_http_requests", text, labels=["route", "status"])
        for (route, status), count in sorted(self.responses.items()):
            responses.add_metric([route, str(status)], count)
        yield responses
        text = "Choices ended, by finish reason."
        family = CounterMetricFamily("strata_choices", text, labels=["finish"])
        yield _labelled(family, self.finishes)
        text = "Clients that left early."
        yield CounterMetricFamily("strata_client_disconnects", text, value=self.disconnects)
        text = "HTTP requests being answered now."
        yield GaugeMetricFamily("strata_http_requests_open", text, value=self.open)
        text = "From a request's arrival to the first token of each of its choices."
        yield self.first_token.family("strata_time_to_first_token_seconds", text)
        text = "Between two tokens of one choice."
        yield self.inter_token.family("strata_inter_token_seconds", text)
        text = "From arrival to the last byte, generating routes only."
        yield self.duration.family("strata_http_request_duration_seconds", text)


def engine_families(now: Snapshot) -> Iterator[Metric]:
    """The engine's metrics, from one snapshot."""
    for name, text, field in _GAUGES:
        yield GaugeMetricFamily(f"strata_{name}", text, value=getattr(now, field))
    for name, text, field in _COUNTERS:
        yield CounterMetricFamily(f"strata_{name}", text, value=getattr(now, field))
    text = "Sequences ended, by the engine's reason."
    yield _labelled(CounterMetricFamily("strata_sequences", text, labels=["finish"]), now.requests)
    text = "Pages by state; cached ones can be given up."
    pages = {"total": now.pages_total, "free": now.pages_free, "cached": now.pages_cached}
    yield _labelled(GaugeMetricFamily("strata_cache_pages", text, labels=["state"]), pages)
    text = "State slots by state."
    states = {"total": now.states_total, "free": now.states_free, "cached": now.states_cached}
    yield _labelled(GaugeMetricFamily("strata_cache_states", text, labels=["state"]), states)
    yield from experts.families(now)
    rows = now.rows or RowFigures()
    text = "Rows of n-gram tables looked up, by whether they had to be read."
    results = {"hit": rows.hits, "miss": rows.lookups - rows.hits}
    yield _labelled(CounterMetricFamily("strata_ngram_rows", text, labels=["result"]), results)
    text = "Bytes read for them."
    yield CounterMetricFamily("strata_ngram_bytes", text, value=rows.nbytes)
    text = "Seconds that steps waited for them."
    yield CounterMetricFamily("strata_ngram_stall_seconds", text, value=rows.stall_s)


F = TypeVar("F", CounterMetricFamily, GaugeMetricFamily)


def _labelled(family: F, counts: Mapping[str, int]) -> F:
    for label, count in sorted(counts.items()):
        family.add_metric([str(label)], count)
    return family


@dataclass(frozen=True, slots=True)
class _Page(Collector):
    meters: Meters
    snapshot: Snapshot

    def collect(self) -> Iterator[Metric]:
        return chain(self.meters.families(), engine_families(self.snapshot))


def render(meters: Meters, snapshot: Snapshot) -> bytes:
    """The page of GET /metrics."""
    return generate_latest(_Page(meters, snapshot))
