"""What the engine approves by itself is summed up for the architect, now and then, quietly."""

import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import anyio
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm import notifier as notifications
from ironcurtain_proxy.auto_confirm.engine.interaction import OperationKind
from ironcurtain_proxy.auto_confirm.notice_channels import (
    CommandChannel,
    FileChannel,
    TmuxChannel,
    WebhookChannel,
)
from ironcurtain_proxy.auto_confirm.notifier import ApprovalTally, Summaries, summary_notice
from tests.auto_confirm.engine import calls
from tests.auto_confirm.engine.calls import decided
from tests.auto_confirm.listeners import (
    HANGING,
    WRITE_ARGUMENTS,
    Hook,
    a_hook,
    a_terminal,
    notifying,
    told,
)
from tests.fakes import FakeClock
from tests.program import until

pytestmark = pytest.mark.requirement("B-48")

EDIT = decided(calls.edit("/srv/project/a"))
READ = decided(calls.read("/srv/project/a"))
OPERATIONS: tuple[OperationKind, ...] = get_args(OperationKind)
PAYLOAD = {
    "type": "permission_summary",
    "target": "architect_manager",
    "since": "2026-01-01T00:00:00Z",
    "approved": 3,
    "operations": {"edit": 2, "read": 1},
    "highest_risk": 0.3,
}


@dataclass
class Round:
    """Summaries whose time comes when the test says so."""

    target: str = "architect_manager"
    clock: FakeClock = field(default_factory=FakeClock)
    waits: list[float] = field(default_factory=list)
    _rung: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        tally = ApprovalTally(target=self.target, clock=self.clock)
        self.summaries = Summaries(tally, 900.0, self.wait)

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        await self._rung.wait()
        self._rung = anyio.Event()

    async def comes(self) -> None:
        """The time is over, and what was to be told then is told."""
        before = len(self.waits)
        self._rung.set()
        await until(lambda: len(self.waits) > before)


def lines(file: FileChannel) -> list[object]:
    if not file.path.exists():
        return []
    return [orjson.loads(line) for line in file.path.read_bytes().splitlines()]


@pytest.mark.anyio
async def test_what_was_approved_is_told_in_one_notice_when_its_time_comes(tmp_path: Path) -> None:
    time, file = Round(), FileChannel(path=tmp_path / "notices")
    async with notifying(file, summaries=time.summaries) as notifier:
        await until(lambda: time.waits == [900.0])
        for decision in (EDIT, READ, EDIT):
            notifier.approved(decision)
        assert lines(file) == []
        time.clock.seconds = 900
        await time.comes()
        assert lines(file) == [PAYLOAD]
        await time.comes()
        assert lines(file) == [PAYLOAD]
        notifier.approved(READ)
        await time.comes()
    assert lines(file)[1:] == [
        {
            **PAYLOAD,
            "since": "2026-01-01T00:15:00Z",
            "approved": 1,
            "operations": {"read": 1},
            "highest_risk": READ.risk / 100,
        }
    ]


@pytest.mark.anyio
async def test_the_end_of_a_session_tells_what_is_left_and_nothing_twice(tmp_path: Path) -> None:
    time, file = Round(), FileChannel(path=tmp_path / "notices")
    async with notifying(file, summaries=time.summaries) as notifier:
        for decision in (EDIT, READ, EDIT):
            notifier.approved(decision)
    assert lines(file) == [PAYLOAD]
    async with notifying(file, summaries=time.summaries) as notifier:
        notifier.approved(READ)
        await time.comes()
    assert len(lines(file)) == 2


@pytest.mark.anyio
async def test_where_nothing_was_approved_nothing_is_told(tmp_path: Path) -> None:
    time, file = Round(), FileChannel(path=tmp_path / "notices")
    async with notifying(file, summaries=time.summaries):
        await until(lambda: time.waits == [900.0])
        await time.comes()
    assert lines(file) == []


@pytest.mark.anyio
@pytest.mark.requirement("B-67")
async def test_the_end_of_a_session_does_not_wait_for_whoever_does_not_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command never ends, and its own deadline is an hour: only the last one is left."""
    monkeypatch.setattr(notifications, "LAST_DEADLINE", 0.2)
    file = FileChannel(path=tmp_path / "notices")
    async with notifying(HANGING, file, deadline=3600, summaries=Round().summaries) as notifier:
        notifier.approved(EDIT)
    assert (notifier.delivered, len(lines(file))) == (1, 1)


@pytest.mark.anyio
async def test_a_summary_that_cannot_be_told_changes_nothing(tmp_path: Path) -> None:
    broken, file = CommandChannel(argv=("false",)), FileChannel(path=tmp_path / "notices")
    time = Round()
    async with notifying(broken, file, summaries=time.summaries) as notifier:
        await until(lambda: time.waits == [900.0])
        notifier.approved(EDIT)
        await time.comes()
        assert (notifier.failed, notifier.delivered) == (1, 1)
        notifier.approved(READ)
        await time.comes()
    assert (notifier.failed, notifier.delivered) == (2, 2)


@pytest.mark.anyio
@pytest.mark.parametrize("given", [True, False])
async def test_where_nobody_is_told_nothing_is_counted(given: bool) -> None:
    time = Round()
    async with notifying(summaries=time.summaries if given else None) as notifier:
        notifier.approved(EDIT)
        assert (time.waits, time.summaries.tally.summary()) == ([], None)


# --- how it is carried ---------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_command_gets_the_figures_as_its_last_arguments(tmp_path: Path) -> None:
    file = tmp_path / "got"
    channel = CommandChannel(argv=(sys.executable, "-c", WRITE_ARGUMENTS, str(file)))
    time = Round()
    async with notifying(channel, summaries=time.summaries) as notifier:
        await until(lambda: time.waits == [900.0])
        for decision in (EDIT, READ, EDIT):
            notifier.approved(decision)
        await time.comes()
    assert file.read_text() == (
        "['permission_summary', '3', 'edit=2,read=1', '0.30', '2026-01-01T00:00:00Z']"
    )


@pytest.mark.anyio
async def test_a_webhook_gets_the_summary() -> None:
    time = Round()
    with a_hook(Hook()) as hook:
        async with notifying(WebhookChannel(url=hook.url), summaries=time.summaries) as notifier:
            await until(lambda: time.waits == [900.0])
            for decision in (EDIT, READ, EDIT):
                notifier.approved(decision)
            await time.comes()
    assert [orjson.loads(body) for body in hook.got] == [PAYLOAD]


@pytest.mark.anyio
@pytest.mark.requirement("X-18")
async def test_tmux_shows_the_summary_and_runs_nothing(tmp_path: Path) -> None:
    attack = f"#(touch {tmp_path}/pwned)"
    with a_terminal(tmp_path) as (socket, tmux):
        await until(lambda: tmux("list-clients") != "")
        channel = TmuxChannel(target="reviewers", socket=socket)
        time = Round(attack)
        async with notifying(channel, summaries=time.summaries) as notifier:
            await until(lambda: time.waits == [900.0])
            notifier.approved(EDIT)
            await time.comes()
            await told(notifier)
        messages = tmux("show-messages")
    shown = "Permissions approved since 2026-01-01T00:00:00Z: 1 (edit 1), highest risk 0.30, for ??"
    assert f"message: {shown}touch" in messages
    assert not (tmp_path / "pwned").exists()
    assert (tmp_path / "typed").read_text() == ""


@pytest.mark.requirement("X-18")
@given(st.text(), st.lists(st.tuples(st.text(), st.integers(1, 10**9))), st.integers(0, 100))
def test_a_summary_is_harmless_whatever_it_is_made_of(
    target: str, counts: list[tuple[str, int]], risk: int
) -> None:
    notice = summary_notice(
        target=target, since=FakeClock().now(), counts=counts, highest_risk=risk
    )
    for word in (*notice.arguments, notice.text):
        assert re.fullmatch(r"[A-Za-z0-9._:@/+?=,() -]*", word)
        assert not word.startswith("-")


@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 100)), min_size=1))
def test_a_tally_holds_one_number_for_an_operation_and_the_highest_risk(
    approved: list[tuple[OperationKind, int]],
) -> None:
    tally = ApprovalTally(target="architect_manager", clock=FakeClock())
    for operation, risk in approved:
        tally.add(replace(EDIT, operation=operation, risk=risk))
    summary = tally.summary()
    assert summary is not None
    operations = summary.fields["operations"]
    assert isinstance(operations, dict)
    assert operations == Counter(operation for operation, _ in approved)
    assert summary.fields["approved"] == len(approved)
    assert summary.fields["highest_risk"] == max(risk for _, risk in approved) / 100
    counts = [int(str(count)) for count in operations.values()]
    assert counts == sorted(counts, reverse=True)
    assert len(tally._counts) <= len(OPERATIONS)
    tally.clear()
    assert tally.summary() is None
