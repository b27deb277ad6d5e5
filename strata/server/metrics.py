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

from strata.figures import RowFigures, Snapshot, Spread
from strata.server import experts

FIRST_TOKEN_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
INTER_TOKEN_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 5)
DURATION_BOUNDS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
KIND = b"text/plain; version=0.0.4; charset=utf-8"

# name, text, field of Snapshot. Where vLLM has a metric of the same meaning, its name is taken,
# with its labels, so that what reads the one reads the other.
_GAUGES = (
    ("strata_ready", "1 when requests are accepted.", "ready"),
    ("vllm:num_requests_running", "Requests in the running batch.", "running"),
    ("strata_requests_parked", "Those that wait for a prefix that another reads.", "parked"),
    ("strata_page_bytes", "Bytes of one page.", "page_bytes"),
    ("strata_state_bytes", "Bytes of one state slot.", "state_bytes"),
)
_COUNTERS = (
    ("strata_steps", "Forward steps run.", "steps"),
    ("vllm:prompt_tokens", "Prompt tokens of admitted requests.", "prompt_tokens"),
    ("strata_cached_tokens", "Of them not computed: their prefix was cached.", "cached_tokens"),
    ("strata_computed_tokens", "Prompt tokens computed, replays included.", "prefill_tokens"),
    ("vllm:generation_tokens", "Tokens generated.", "decode_tokens"),
    ("strata_prefill_seconds", "Seconds of steps spent on prompts.", "prefill_s"),
    ("strata_decode_seconds", "Seconds of steps spent on generating.", "decode_s"),
    ("vllm:num_preemptions", "Requests sent back to the queue.", "preemptions"),
    ("strata_cache_lookups", "Requests that looked for a cached prefix.", "lookups"),
    ("strata_cache_hits", "Those that found one.", "hits"),
    ("vllm:prefix_cache_queries", "Tokens of the prompts that looked.", "queried_tokens"),
    ("vllm:prefix_cache_hits", "Tokens they found.", "hit_tokens"),
    ("strata_evicted_pages", "Cached pages given up.", "evicted_pages"),
    ("strata_evicted_states", "Cached states given up.", "evicted_states"),
)
# name, text, key of Snapshot.spreads
_SPREADS = (
    ("request_queue_time_seconds", "From arrival until a request began to run.", "queue_s"),
    ("request_prefill_time_seconds", "From there to its first token.", "prefill_s"),
    ("request_decode_time_seconds", "From its first token to its last.", "decode_s"),
    ("e2e_request_latency_seconds", "From arrival to the end.", "duration_s"),
    ("request_prompt_tokens", "Prompt tokens of finished requests.", "prompt"),
    ("request_generation_tokens", "Tokens of their answers.", "output"),
)
# The engine's reasons in vLLM's words, where it has one.
FINISHED = {"cancelled": "abort", "failed": "error"}


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

    def spread(self) -> Spread:
        """What was observed so far."""
        return Spread(self._bounds, tuple(self._counts), self._sum)


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
        text = "From arrival to the last byte, generating routes only."
        yield _histogram("strata_http_request_duration_seconds", text, self.duration.spread())

    def token_families(self, model: str) -> Iterator[Metric]:
        """The server's metrics that vLLM has too."""
        text = "From a request's arrival to the first token of each of its choices."
        told = self.first_token.spread()
        yield _histogram("vllm:time_to_first_token_seconds", text, told, model)
        text = "Between two tokens of one choice."
        yield _histogram("vllm:inter_token_latency_seconds", text, self.inter_token.spread(), model)


def engine_families(now: Snapshot, model: str) -> Iterator[Metric]:
    """The engine's metrics, from one snapshot."""
    for name, text, field in _GAUGES:
        yield _plain(GaugeMetricFamily, name, text, getattr(now, field), model)
    name, text = "vllm:num_requests_waiting", "Requests that wait for a row, memory or a prefix."
    yield _plain(GaugeMetricFamily, name, text, now.queued + now.parked, model)
    for name, text, field in _COUNTERS:
        yield _plain(CounterMetricFamily, name, text, getattr(now, field), model)
    for name, text, key in _SPREADS:
        yield _histogram(f"vllm:{name}", text, now.spreads[key], model)
    text = "Requests ended, by why."
    family = CounterMetricFamily("vllm:request_success", text, labels=[*_LABELS, "finished_reason"])
    for finish, count in now.requests.items():
        family.add_metric([model, _ENGINE, FINISHED.get(finish, finish)], count)
    yield family
    text = "Pages by state; cached ones can be given up."
    pages = {"total": now.pages_total, "free": now.pages_free, "cached": now.pages_cached}
    yield _labelled(GaugeMetricFamily("strata_cache_pages", text, labels=["state"]), pages)
    text = "State slots by state."
    states = {"total": now.states_total, "free": now.states_free, "cached": now.states_cached}
    yield _labelled(GaugeMetricFamily("strata_cache_states", text, labels=["state"]), states)
    yield from experts.families(now)
    yield from _row_families(now.rows or RowFigures())


def _row_families(rows: RowFigures) -> Iterator[Metric]:
    text = "Rows of n-gram tables looked up, by whether they had to be read."
    results = {"hit": rows.hits, "miss": rows.lookups - rows.hits}
    yield _labelled(CounterMetricFamily("strata_ngram_rows", text, labels=["result"]), results)
    text = "Bytes read for them."
    yield CounterMetricFamily("strata_ngram_bytes", text, value=rows.nbytes)
    text = "Seconds that steps waited for them."
    yield CounterMetricFamily("strata_ngram_stall_seconds", text, value=rows.stall_s)


_LABELS, _ENGINE = ("model_name", "engine"), "0"  # vLLM's; there is one engine


def _plain(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    text: str,
    value: float,
    model: str,
) -> Metric:
    if not name.startswith("vllm:"):
        return kind(name, text, value=value)
    family = kind(name, text, labels=_LABELS)
    family.add_metric([model, _ENGINE], value)
    return family


def _histogram(
    name: str, text: str, spread: Spread, model: str | None = None
) -> HistogramMetricFamily:
    """As Prometheus has it: cumulative buckets. With vLLM's labels where `model` is given."""
    names = [*(str(float(bound)) for bound in spread.bounds), "+Inf"]
    buckets = list(zip(names, accumulate(spread.counts), strict=True))
    family = HistogramMetricFamily(name, text, labels=() if model is None else _LABELS)
    family.add_metric([] if model is None else [model, _ENGINE], buckets, spread.total)
    return family


F = TypeVar("F", CounterMetricFamily, GaugeMetricFamily)


def _labelled(family: F, counts: Mapping[str, int]) -> F:
    for label, count in sorted(counts.items()):
        family.add_metric([str(label)], count)
    return family


@dataclass(frozen=True, slots=True)
class _Page(Collector):
    meters: Meters
    snapshot: Snapshot
    model: str

    def collect(self) -> Iterator[Metric]:
        meters, model = self.meters, self.model
        own = meters.families(), meters.token_families(model)
        return chain(*own, engine_families(self.snapshot, model))


def render(meters: Meters, snapshot: Snapshot, model: str = "") -> bytes:
    """The page of GET /metrics; `model` is "" until one is loaded."""
    return generate_latest(_Page(meters, snapshot, model))
