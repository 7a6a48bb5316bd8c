"""What is told of a call, in memory."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ironcurtain_proxy.errors import AuditError
from ironcurtain_proxy.model.decision import HUMAN
from ironcurtain_proxy.model.operation import RequestId
from ironcurtain_proxy.model.reply import AuditRecord, ResultSummary
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.telemetry import Telemetry

pytestmark = pytest.mark.anyio

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


@dataclass
class HeldClock:
    seconds: float = 0

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def steady(self) -> datetime:
        return self.now()


@dataclass
class Records:
    fails: bool = False
    written: list[AuditRecord] = field(default_factory=list)

    def summarize(self, result: ToolResult) -> ResultSummary:
        return ResultSummary(status="success")

    async def record(self, record: AuditRecord) -> None:
        if self.fails:
            raise AuditError("full")
        self.written.append(record)


@dataclass
class Observed:
    clock: HeldClock = field(default_factory=HeldClock)
    records: Records = field(default_factory=Records)
    spans: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    metrics: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)

    def __post_init__(self) -> None:
        telemetry = Telemetry(SimpleSpanProcessor(self.spans), self.metrics)
        self.recorder = telemetry.observing(self.records, self.clock)

    def measured(self) -> dict[str, float]:
        found = self.metrics.get_metrics_data()
        assert found is not None
        points = {
            metric.name: next(iter(metric.data.data_points))
            for resource in found.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
        return {name: getattr(one, "sum", getattr(one, "value", 0)) for name, one in points.items()}


def a_record(
    result: ResultSummary | None, *context: tuple[str, Json], tool: str = "git_push"
) -> AuditRecord:
    return AuditRecord(
        timestamp=BEGIN,
        request_id=RequestId("r1"),
        session="s",
        server="git",
        tool=tool,
        arguments={"token": "secret-argument"},
        effect="allow",
        rule="allow-push",
        reason="secret-reason",
        decided_by=HUMAN,
        result=result,
        context=context,
    )


async def a_call(observed: Observed, *context: tuple[str, Json]) -> None:
    observed.clock.seconds = 3
    await observed.recorder.record(a_record(None))
    observed.clock.seconds = 5
    await observed.recorder.record(a_record(ResultSummary(status="success"), *context))


async def test_a_call_is_one_span_with_its_decision_its_wait_and_the_server_s_time() -> None:
    observed = Observed()
    await a_call(observed, ("waitedMs", 2500))
    (span,) = observed.spans.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["ironcurtain.decision"] == "allow"
    assert span.attributes["ironcurtain.rule"] == "allow-push"
    assert span.attributes["ironcurtain.decided_by"] == "human"
    assert span.attributes["ironcurtain.server_ms"] == 2000
    assert span.attributes["ironcurtain.wait_ms"] == 2500
    assert span.end_time is not None
    assert span.start_time is not None
    assert span.end_time - span.start_time == 5_000_000_000
    assert observed.measured() == {
        "ironcurtain.calls": 1,
        "ironcurtain.call.server_time": 2.0,
        "ironcurtain.call.wait_time": 2.5,
    }
    assert len(observed.records.written) == 2


@pytest.mark.parametrize(
    ("action", "name", "attributes"),
    [
        ("git_push", "tools/call git_push", {"gen_ai.tool.name": "git_push"}),
        ("prompts/get fetch", "prompts/get fetch", {"gen_ai.prompt.name": "fetch"}),
        ("resources/read", "resources/read", {}),
        ("completion/complete fetch", "completion/complete", {}),
        ("x" * 500, f"tools/call {'x' * 128}", {"gen_ai.tool.name": "x" * 128}),
    ],
)
async def test_a_span_names_a_tool_a_prompt_or_neither(
    action: str, name: str, attributes: dict[str, str]
) -> None:
    observed = Observed()
    await observed.recorder.record(a_record(ResultSummary(status="success"), tool=action))
    (span,) = observed.spans.get_finished_spans()
    assert span.attributes is not None
    assert span.name == name
    assert span.attributes["mcp.method.name"] == name.partition(" ")[0]
    named = {key: one for key, one in span.attributes.items() if key.startswith("gen_ai.")}
    assert named == attributes


async def test_no_argument_and_no_reason_leaves() -> None:
    observed = Observed()
    await a_call(observed)
    (span,) = observed.spans.get_finished_spans()
    assert "secret" not in span.to_json()


async def test_a_span_belongs_to_the_agent_s_even_if_the_agent_wants_no_sample() -> None:
    observed = Observed()
    await a_call(observed, ("meta", {"traceparent": PARENT}))
    (span,) = observed.spans.get_finished_spans()
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" in PARENT
    assert f"{span.context.trace_id:032x}" in PARENT


@pytest.mark.parametrize("wrong", ["", "x" * 10_000, "00-0-0-0", "\n", 7, None])
async def test_a_wrong_trace_of_an_agent_begins_a_new_one(wrong: Json) -> None:
    observed = Observed()
    await a_call(observed, ("meta", {"traceparent": wrong}))
    (span,) = observed.spans.get_finished_spans()
    assert span.parent is None


async def test_a_record_that_cannot_be_written_is_still_an_error_to_the_caller() -> None:
    observed = Observed(records=Records(fails=True))
    with pytest.raises(AuditError):
        await observed.recorder.record(a_record(ResultSummary(status="denied")))


async def test_a_defect_of_the_telemetry_costs_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = Observed()
    monkeypatch.setattr(observed.recorder, "tracer", None)
    await a_call(observed)
    assert len(observed.records.written) == 2
