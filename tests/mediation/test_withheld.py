"""What a server answers and the agent does not get, and what the record says of it."""

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.model.escalation import Unreachable
from ironcurtain_proxy.model.operation import Method, ParsedRequest, label
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.reply import Answered, Refused, Reply, Withheld
from ironcurtain_proxy.model.server import Section, ToolResult
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.ports import NothingPinned
from tests.fakes import Harness

pytestmark = pytest.mark.anyio

ALLOWED = Policy(rules=(Rule(name="all", effect="allow", reason="so"),), version="v1")
HTML: Json = [{"uri": "ui://board", "text": "<p>"}]


@dataclass
class OtherView(NothingPinned):
    """Pins to which no view is what it was."""

    seen_as: list[tuple[str, str, str, Json]] = field(default_factory=list)

    def seen(self, server: str, section: Section, name: str, value: Json) -> str | None:
        self.seen_as.append((server, section, name, value))
        return "is another than before"


async def answered(
    harness: Harness, method: Method, uri: Json, answer: ToolResult
) -> tuple[Reply, list[tuple[str, str, str, Json]]]:
    """The reply to an operation that a server answers so, and the views that were compared."""

    async def act(_call: object) -> ToolResult:
        return answer

    pins = OtherView()
    harness.servers.act = act
    harness.begin(replace(harness.world, pins=pins))
    asked = ParsedRequest(
        method=method,
        exposed_name="it",
        server="files",
        tool=label(method),
        arguments={"uri": uri},
        params={"uri": uri},
        judged=frozenset({"uri"}),
    )
    return await harness.mediator.carry(harness.journal.open_operation(asked)), pins.seen_as


@pytest.mark.parametrize("uri", ["ui://board", "UI://board"])
async def test_a_view_that_is_another_than_before_is_withheld(uri: str) -> None:
    harness = Harness(ALLOWED)
    reply, seen = await answered(
        harness, "resources/read", uri, ToolResult(result={"contents": HTML})
    )
    assert isinstance(reply, Withheld)
    assert "view is another than before" in reply.ground.reason
    assert seen == [("files", "views", uri, HTML)]
    outcome = harness.recorder.records[-1].result
    assert outcome is not None
    assert (outcome.status, outcome.error) == ("denied", reply.ground.reason)


@pytest.mark.parametrize(
    ("method", "uri", "answer"),
    [
        ("resources/read", "file:///board", ToolResult(result={"contents": HTML})),
        ("resources/read", "u", ToolResult(result={"contents": HTML})),
        ("resources/read", 7, ToolResult(result={"contents": HTML})),
        ("resources/read", "ui://board", ToolResult(error={"code": 1, "message": "no"})),
        ("resources/subscribe", "ui://board", ToolResult(result={})),
        ("tools/call", "ui://board", ToolResult(result={"contents": HTML})),
    ],
)
async def test_what_is_no_view_is_compared_with_none(
    method: Method, uri: Json, answer: ToolResult
) -> None:
    reply, seen = await answered(Harness(ALLOWED), method, uri, answer)
    assert isinstance(reply, Answered)
    assert reply.result == answer
    assert seen == []


async def test_a_view_that_asks_is_withheld_for_its_question() -> None:
    asking = ToolResult(result={"contents": HTML, "resultType": "input_required"})
    harness = Harness(ALLOWED)
    reply, seen = await answered(harness, "resources/read", "ui://board", asking)
    assert isinstance(reply, Withheld)
    assert "input_required" in reply.ground.reason
    assert seen == [], "the answer is no view, and is not trusted as one"
    outcome = harness.recorder.records[-1].result
    assert outcome is not None
    assert outcome.asked == "result type input_required"


async def test_what_a_reviewer_thought_that_passed_a_question_on_is_recorded() -> None:
    asks = Policy(rules=(Rule(name="all", effect="escalate", reason="so"),), version="v1")
    harness = Harness(asks)
    harness.questions.ruling = Unreachable(details=(("engineReason", "not sure"),))
    told: list[bool] = []

    async def tell() -> None:
        told.append(True)

    harness.journal.unattended.tell = tell
    assert isinstance(await harness.mediator.handle("read", {}), Refused)
    (record,) = harness.recorder.records
    assert dict(record.context)["engineReason"] == "not sure"
    assert len(told) == 1, "whoever sits at the agent hears that nobody reviews"
