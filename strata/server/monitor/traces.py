"""Traces: each finished request as OpenTelemetry spans, with the times that the engine measured.

    request
      queue       from its arrival until it began to run
        wait      for a prefix that another was reading
      read        until its first token
      decode      until its last

Where they go is OpenTelemetry's affair: its library reads variables of its own (its endpoint is
OTEL_EXPORTER_OTLP_ENDPOINT). A request with a `traceparent` header is part of its caller's trace.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from strata.figures import Record
from strata.server.service import Lobby
from strata.types import ConfigError

_EVERY_S = 1.0


class Traces:
    """Sends what has ended, once a second, on a thread of its own. Raises ConfigError."""

    def __init__(self, lobby: Lobby, exporter: Any = None) -> None:
        """`exporter` is a span exporter; None is OTLP over HTTP."""
        try:
            from opentelemetry.sdk.resources import SERVICE_NAME, Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            if exporter is None:
                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

                exporter = OTLPSpanExporter()
        except ImportError:
            raise ConfigError("--tracing needs OpenTelemetry: pip install 'strata[otel]'") from None
        resource = Resource.create()
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "strata"}))
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("strata")
        self._lobby = lobby
        self._told = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="strata-traces", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send the rest and stop."""
        self._end.set()
        self._thread.join()
        self._provider.shutdown()

    def _run(self) -> None:
        while not self._end.wait(_EVERY_S):
            self._look()
        self._look()

    def _look(self) -> None:
        service = self._lobby.present
        if service is not None:
            new = [one for one in service.engine.records() if one.number > self._told]
            self.tell(service.model.id, reversed(new))

    def tell(self, model: str, records: Iterable[Record]) -> None:
        """Make spans of these, the oldest first."""
        for record in records:
            self._told = record.number
            self._span(model, record)

    def _span(self, model: str, record: Record) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {"traceparent": record.trace} if record.trace else {}
        context = TraceContextTextMapPropagator().extract(carrier)

        def made(name: str, begin: float, end: float, inside: Any, **more: Any) -> Any:
            start, stop = (round(1e9 * (record.time + at)) for at in (begin, end))
            span = self._tracer.start_span(name, inside, start_time=start, **more)
            span.end(stop)
            return trace.set_span_in_context(span)

        whole = made(
            "request", 0.0, record.duration_s, context,
            kind=trace.SpanKind.SERVER, attributes=_attributes(model, record),
        )  # fmt: skip
        queue = made("queue", 0.0, record.queue_s, whole)
        for begin, end in record.waits:
            made("wait", begin, end, queue)
        if record.prefill_s:
            made("read", record.queue_s, record.queue_s + record.prefill_s, whole)
        if record.first_token_s is not None:
            made("decode", record.first_token_s, record.first_token_s + record.decode_s, whole)


def _attributes(model: str, record: Record) -> dict[str, Any]:
    """By OpenTelemetry's names for generative models; `strata.` where it has none."""
    return {
        "gen_ai.request.model": model,
        "gen_ai.response.id": record.id,
        "gen_ai.response.finish_reasons": (record.status,),
        "gen_ai.usage.input_tokens": record.prompt,
        "gen_ai.usage.output_tokens": record.output,
        "strata.cached_tokens": record.reused,
        "strata.reason": record.reason or "",
    }
