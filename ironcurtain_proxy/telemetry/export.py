"""The export of spans and metrics to a collector, over OTLP and HTTP.

The SDK's threads send; a collector that does not answer costs the calls nothing. What waits is
bounded, and the end of a session waits for a few seconds at most.
"""

from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from ironcurtain_proxy.ports import Clock, Recorder
from ironcurtain_proxy.telemetry.observed import ObservedRecorder
from ironcurtain_proxy.version import VERSION

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
        """A recorder that reports its records to these spans and metrics."""
        meter: Meter = self._meters.get_meter(_NAME, VERSION)
        tracer = self._tracers.get_tracer(_NAME, VERSION)
        return ObservedRecorder(recorder=recorder, clock=clock, tracer=tracer, meter=meter)

    def close(self) -> None:
        """Send what waits, and end the threads. Takes a few seconds at most."""
        self._tracers.shutdown()
        self._meters.shutdown(timeout_millis=_SECONDS * 1000)
