"""Calls as spans and metrics of OpenTelemetry, exported to a collector over OTLP and HTTP.

Each recorded call makes one span and some measurements. The record comes first, and telemetry is no
reason to refuse a call: what goes wrong here is said in the log. No argument, result or reason
leaves: they may hold what only the record may.

The SDK's threads send; a collector that does not answer costs the calls nothing. What waits is
bounded, and the end of a session waits for a few seconds at most.
"""

import logging
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ironcurtain_proxy.model.decision import in_record
from ironcurtain_proxy.model.reply import AuditRecord, ResultSummary, method_and_target
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json, object_of
from ironcurtain_proxy.ports import Clock, Recorder
from ironcurtain_proxy.version import VERSION

# --- observed


_log: Final = logging.getLogger(__name__)

_MOST_NAME: Final = 128
"""Characters of a name that an agent chose."""


class ObservedRecorder(Struct, kw_only=True, dict=True):
    """Implements `ports.Recorder`."""

    recorder: Recorder
    clock: Clock
    tracer: Tracer
    meter: Meter
    _sent: dict[str, float] = field(default_factory=dict)
    """The time at which each open call was forwarded; by its id, in seconds of the clock."""

    def __post_init__(self) -> None:
        self._calls = self.meter.create_counter(
            "ironcurtain.calls", unit="{call}", description="Calls, by decision"
        )
        self._server_time = self.meter.create_histogram(
            "ironcurtain.call.server_time", unit="s", description="Time until the server answered"
        )
        self._wait_time = self.meter.create_histogram(
            "ironcurtain.call.wait_time", unit="s", description="Time until a reviewer answered"
        )

    def summarize(self, result: ToolResult) -> ResultSummary:
        """Return the recorded part of a result."""
        return self.recorder.summarize(result)

    async def record(self, record: AuditRecord) -> None:
        """Write one record; then tell of it.

        Raises:
            AuditError: it could not be written in time, now or earlier.
        """
        try:
            await self.recorder.record(record)
        finally:
            try:
                self._observe(record)
            except Exception:  # noqa: BLE001  the call is worth more than its span
                _log.exception("a call is missing in the telemetry")

    def _observe(self, record: AuditRecord) -> None:
        if record.result is None:
            self._sent[record.request_id] = self.clock.monotonic()
            return
        sent = self._sent.pop(record.request_id, None)
        served = None if sent is None else self.clock.monotonic() - sent
        waited = _seconds(dict(record.context).get("waitedMs"))
        common = {
            "ironcurtain.decision": record.effect,
            "ironcurtain.server": record.server,
            "ironcurtain.status": record.result.status,
        }
        self._calls.add(1, common)
        if served is not None:
            self._server_time.record(served, common)
        if waited is not None:
            self._wait_time.record(waited, common)
        self._make_span(record, record.result, common, served, waited)

    def _make_span(
        self,
        record: AuditRecord,
        result: ResultSummary,
        common: Mapping[str, str],
        served: float | None,
        waited: float | None,
    ) -> None:
        method, target = method_and_target(record.tool, _MOST_NAME)
        span = self.tracer.start_span(
            " ".join([method, *target.values()]),
            context=_parent(record),
            kind=SpanKind.SERVER,
            start_time=round(record.timestamp.timestamp() * 1_000_000_000),
            attributes={
                **common,
                "mcp.method.name": method,
                **target,
                "ironcurtain.rule": record.rule,
                "ironcurtain.decided_by": in_record(record.decided_by),
                "ironcurtain.session": record.session,
                "ironcurtain.request": record.request_id,
                "ironcurtain.policy": record.policy_version,
                **({} if served is None else {"ironcurtain.server_ms": round(served * 1000)}),
                **({} if waited is None else {"ironcurtain.wait_ms": round(waited * 1000)}),
            },
        )
        if result.status == "error":
            span.set_status(Status(StatusCode.ERROR))
        span.end(round(self.clock.now().timestamp() * 1_000_000_000))


def _seconds(milliseconds: Json) -> float | None:
    return milliseconds / 1000 if isinstance(milliseconds, int) else None


def _parent(record: AuditRecord) -> Context | None:
    """Return the span of the agent that the call came from, as its `_meta` names it."""
    found = object_of(dict(record.context).get("meta")).get("traceparent")
    if not isinstance(found, str):
        return None
    return TraceContextTextMapPropagator().extract({"traceparent": found})


# --- export


_NAME: Final = "ironcurtain-proxy"
_SECONDS: Final = 2
"""Seconds for one attempt to send."""
_EVERY_MS: Final = 1000
_METRICS_EVERY_MS: Final = 10_000
_MOST_WAITING: Final = 2048


class Telemetry:
    """The spans and metrics of one proxy."""

    def __init__(self, spans: SpanProcessor, metrics: MetricReader) -> None:
        """Take what sends them. Nothing is registered for the whole process."""
        resource = Resource.create({"service.name": _NAME, "service.version": VERSION})
        # The agent's own word on sampling does not count: it could hide its calls.
        self._tracers = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
        self._tracers.add_span_processor(spans)
        self._meters = MeterProvider([metrics], resource=resource, shutdown_on_exit=False)

    @classmethod
    def to_collector(cls, endpoint: str | None) -> "Telemetry":
        """Send to a collector.

        Args:
            endpoint: its URL without `/v1/traces`; None: as `OTEL_EXPORTER_OTLP_ENDPOINT` says,
                else `http://localhost:4318`.
        """
        base = None if endpoint is None else endpoint.rstrip("/")
        traces = None if base is None else f"{base}/v1/traces"
        metrics = None if base is None else f"{base}/v1/metrics"
        return cls(
            BatchSpanProcessor(
                OTLPSpanExporter(endpoint=traces, timeout=_SECONDS),
                max_queue_size=_MOST_WAITING,
                schedule_delay_millis=_EVERY_MS,
                export_timeout_millis=_SECONDS * 1000,
            ),
            PeriodicExportingMetricReader(
                OTLPMetricExporter(endpoint=metrics, timeout=_SECONDS),
                export_interval_millis=_METRICS_EVERY_MS,
                export_timeout_millis=_SECONDS * 1000,
            ),
        )

    def observing(self, recorder: Recorder, clock: Clock) -> ObservedRecorder:
        """Return a recorder that reports its records to these spans and metrics."""
        meter: Meter = self._meters.get_meter(_NAME, VERSION)
        tracer = self._tracers.get_tracer(_NAME, VERSION)
        return ObservedRecorder(recorder=recorder, clock=clock, tracer=tracer, meter=meter)

    def close(self) -> None:
        """Send what waits, and end the threads. Takes a few seconds at most."""
        self._tracers.shutdown()
        self._meters.shutdown(timeout_millis=_SECONDS * 1000)
