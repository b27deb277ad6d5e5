"""Counters of the server and of the engine, as Prometheus text.

`Meters` is written by the event-loop thread alone and read there, so it needs no lock;
a histogram's `observe` runs for each token and costs well under a microsecond. The
engine's own counters come with its Snapshot. Every metric is in docs/metrics.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest

from strata.types import Snapshot

FIRST_TOKEN_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
INTER_TOKEN_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 5)
DURATION_BOUNDS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
KIND = b"text/plain; version=0.0.4; charset=utf-8"


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
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), total))
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
        yield from self._counters()
        yield _gauge("http_requests_open", "HTTP requests being answered now.", self.open)
        yield self.first_token.family(
            "strata_time_to_first_token_seconds",
            "From a request's arrival to the first token of each of its choices.",
        )
        yield self.inter_token.family(
            "strata_inter_token_seconds", "Between two tokens of one choice."
        )
        yield self.duration.family(
            "strata_http_request_duration_seconds",
            "From arrival to the last byte, generating routes only.",
        )

    def _counters(self) -> Iterator[Metric]:
        responses = CounterMetricFamily(
            "strata_http_requests",
            "HTTP requests answered, by route and status (499: the client left first).",
            labels=["route", "status"],
        )
        for (route, status), count in sorted(self.responses.items()):
            responses.add_metric([route, str(status)], count)
        yield responses
        finishes = CounterMetricFamily(
            "strata_choices", "Choices ended, by finish reason.", labels=["finish"]
        )
        for finish, count in sorted(self.finishes.items()):
            finishes.add_metric([finish], count)
        yield finishes
        yield _counter("client_disconnects", "Clients that left early.", self.disconnects)


def engine_families(now: Snapshot) -> Iterator[Metric]:
    """The engine's metrics, from one snapshot."""
    yield _gauge("ready", "1 when requests are accepted.", int(now.ready))
    yield _gauge("rows_running", "Sequences in the running batch.", now.running)
    yield _gauge("requests_queued", "Sequences waiting for a row.", now.queued)
    yield _gauge(
        "requests_parked", "Sequences waiting for a prefix that another reads.", now.parked
    )
    yield from _memory(now)
    yield _counter("steps", "Forward steps run.", now.steps)
    yield _counter("prompt_tokens", "Prompt tokens of admitted sequences.", now.prompt_tokens)
    yield _counter(
        "cached_tokens", "Prompt tokens not computed: their prefix was cached.", now.cached_tokens
    )
    yield _counter(
        "computed_tokens", "Prompt tokens computed, replays included.", now.prefill_tokens
    )
    yield _counter("output_tokens", "Tokens generated.", now.decode_tokens)
    yield _counter("prefill_seconds", "Seconds of steps spent on prompts.", now.prefill_s)
    yield _counter("decode_seconds", "Seconds of steps spent on generating.", now.decode_s)
    yield _counter("preemptions", "Sequences sent back to the queue.", now.preemptions)
    yield _counter("evicted_pages", "Cached pages given up.", now.evicted_pages)
    yield _counter("evicted_states", "Cached states given up.", now.evicted_states)
    ended = CounterMetricFamily(
        "strata_sequences", "Sequences ended, by the engine's reason.", labels=["finish"]
    )
    for finish, count in sorted(now.requests.items()):
        ended.add_metric([str(finish)], count)
    yield ended


def _memory(now: Snapshot) -> Iterator[Metric]:
    pages = GaugeMetricFamily(
        "strata_cache_pages", "Pages by state; cached ones can be given up.", labels=["state"]
    )
    for state, count in (
        ("total", now.pages_total),
        ("free", now.pages_free),
        ("cached", now.pages_cached),
    ):
        pages.add_metric([state], count)
    yield pages
    yield _gauge("page_bytes", "Bytes of one page.", now.page_bytes)
    states = GaugeMetricFamily("strata_cache_states", "State slots by state.", labels=["state"])
    states.add_metric(["total"], now.states_total)
    states.add_metric(["free"], now.states_free)
    yield states
    yield _gauge("state_bytes", "Bytes of one state slot.", now.state_bytes)


class _Page:
    """A collector of one scrape."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def render(meters: Meters, snapshot: Snapshot) -> bytes:
    """The page of GET /metrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page([*meters.families(), *engine_families(snapshot)]))
    return generate_latest(registry)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"strata_{name}", text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"strata_{name}", text, value=value)
