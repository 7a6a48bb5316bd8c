"""What a call's record says of its server."""

from datetime import UTC, datetime

import pytest

from ironcurtain_proxy.model.audit import ResultSummary
from ironcurtain_proxy.model.call import RequestId, ToolCall
from ironcurtain_proxy.model.case import Case
from ironcurtain_proxy.model.decision import Deny, Ground


def said_of(server: str, *, confined: bool) -> bool | None:
    call = ToolCall(
        request_id=RequestId("r"),
        exposed_name="tool",
        server=server,
        tool="tool",
        arguments={},
        params={},
    )
    case = Case(
        call=call,
        session="s",
        policy_version="",
        arrived=datetime(2026, 11, 21, tzinfo=UTC),
        started=0.0,
        arguments={},
        decision=Deny(Ground("rule", "reason")),
    )
    ended = ResultSummary(status="denied")
    return case.record(ended, elapsed=0.0, sandboxed=confined).sandboxed


@pytest.mark.requirement("C-15")
@pytest.mark.parametrize("confined", [True, False])
def test_a_record_says_of_its_server_whether_it_is_confined(confined: bool) -> None:
    assert said_of("filesystem", confined=confined) is confined


@pytest.mark.parametrize("name", ["ironcurtain", "unknown"])
def test_a_record_that_involves_no_server_says_nothing_of_one(name: str) -> None:
    assert said_of(name, confined=False) is None


def test_a_confined_server_of_such_a_name_is_said_to_be_confined() -> None:
    assert said_of("unknown", confined=True) is True
