"""Spans and metrics over OTLP and HTTP, at a real sink."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.e2e.installation import Installation

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Sink(ThreadingHTTPServer):
    """Keeps what is sent to it."""

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes]] = []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Sink)
        self.server.got.append((self.path, body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def configure(installation: Installation, endpoint: str) -> None:
    state = installation.home / ".ironcurtain"
    state.mkdir(mode=0o700, exist_ok=True)
    settings = {"telemetry": {"enabled": True, "endpoint": endpoint}}
    (state / "config.json").write_bytes(orjson.dumps(settings))


def test_calls_arrive_at_a_collector_as_spans_and_metrics(
    scripted: Installation, sink: Sink
) -> None:
    configure(scripted, f"http://127.0.0.1:{sink.server_address[1]}")
    agent = scripted.start()
    agent.call("echo", {"text": "secret-text"}, _meta={"traceparent": PARENT})
    agent.call("forbidden", {"text": "x"})
    agent.close()
    traces = [body for path, body in sink.got if path == "/v1/traces"]
    spans = [
        span
        for body in traces
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert [span.name for span in spans] == ["tools/call echo", "tools/call forbidden"]
    assert spans[0].trace_id.hex() in PARENT
    decisions = [
        one.value.string_value
        for span in spans
        for one in span.attributes
        if one.key == "ironcurtain.decision"
    ]
    assert decisions == ["allow", "deny"]
    assert not any(b"secret-text" in body for _, body in sink.got)
    names = {
        metric.name
        for path, body in sink.got
        if path == "/v1/metrics"
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert "ironcurtain.calls" in names


def test_a_collector_that_is_not_there_costs_no_call(scripted: Installation) -> None:
    configure(scripted, "http://127.0.0.1:9")
    agent = scripted.start()
    assert agent.call("echo", {"text": "x"}).get("isError") is not True
    agent.close()
    assert agent.process.poll() == 0


def test_nothing_of_it_is_imported_when_it_is_off() -> None:
    code = (
        "import sys, ironcurtain_proxy.wiring.serving\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
