"""What a record says of things that were put back."""

from datetime import UTC, datetime

from ironcurtain_proxy.model.case import Arrival, Case, Judgement
from ironcurtain_proxy.model.decision import Allow, Ground
from ironcurtain_proxy.model.operation import Operation, RequestId
from ironcurtain_proxy.model.reply import PutBack


def test_a_record_names_what_was_put_back_and_where_it_is_kept() -> None:
    call = Operation(
        request_id=RequestId("1"), exposed_name="t", server="s", tool="t", arguments={}, params={}
    )
    case = Case(
        arrival=Arrival(
            call=call,
            session="session",
            policy_version="",
            time=datetime(2026, 1, 1, tzinfo=UTC),
            started=0.0,
        ),
        call=call,
        arguments={},
        judged=Judgement(decision=Allow(Ground("rule", "reason"))),
    )
    assert dict(case.record(None, elapsed=0, sandboxed=True).context) == {}
    case.clean((PutBack("a was removed", "/kept/a"), PutBack("b stays")))
    assert dict(case.record(None, elapsed=0, sandboxed=True).context) == {
        "putBack": ["a was removed; what was there is kept as /kept/a", "b stays"]
    }
