"""Contained calls with the world in memory: what is asked, and what becomes of each point."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.decision import (
    AUTO_APPROVER,
    CONTAINMENT,
    HUMAN,
    KERNEL,
    Decider,
    Effect,
    Engine,
    Program,
)
from ironcurtain_proxy.model.escalation import Approved
from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.operation import Operation, RequestId
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.reply import (
    Answered,
    AuditRecord,
    Change,
    EndedFor,
    NotHeld,
    NotTaken,
    PathNotHeld,
    PointId,
    PutBack,
    Refused,
    ViewChanges,
)
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, Facts, PathValue
from ironcurtain_proxy.model.server import SandboxRestrictions, ToolResult
from ironcurtain_proxy.model.values import Json, RealPath
from tests.fakes import DONE, FakeDesk, FakeFacts, FakeRecorder, FakeServers, Harness, no_roles

pytestmark = pytest.mark.anyio

WORKSPACE = RealPath.from_text("/ws")
WALLS = SandboxRestrictions(writable=(WORKSPACE,), temporary=None, is_offline=True)
POINT = PointId("7")
LARGE = RealPath.from_text("/ws/data/large.bin")
CALL: Mapping[str, Json] = {"name": "read", "arguments": {}}


def runs(call: Operation) -> Facts:
    facts = no_roles(call)
    return replace(facts, request=replace(facts.request, effect="runs"))


@dataclass
class FakeTimeline:
    answer: PointId | NotHeld = POINT
    has: bool = True
    fault: Exception | None = None
    on_mark: Callable[[], object] = lambda: None
    marked: list[RequestId] = field(default_factory=list)
    settled: list[PointId] = field(default_factory=list)
    changes: tuple[Change, ...] | NotHeld = (Change("a\udcff.txt", "deleted"),)

    async def mark(
        self, call: RequestId, server: str, tool: str, *, may_drop: bool
    ) -> PointId | NotHeld:
        if self.fault is not None:
            raise self.fault
        self.marked.append(call)
        self.on_mark()
        return self.answer

    async def end_call(self, point: PointId) -> tuple[Change, ...] | NotHeld:
        await anyio.lowlevel.checkpoint()
        self.settled.append(point)
        if self.fault is not None:
            raise self.fault
        return self.changes

    async def transact(
        self,
        call: RequestId,
        server: str,
        tool: str,
        paths: Collection[str],
        apply: Callable[[], Collection[str]],
        *,
        may_drop: bool,
    ) -> tuple[PointId, tuple[Change, ...]] | NotHeld:
        point = await self.mark(call, server, tool, may_drop=may_drop)
        if isinstance(point, NotHeld) or isinstance(self.changes, NotHeld):
            return point if isinstance(point, NotHeld) else NotHeld("")
        apply()
        return point, self.changes

    async def unheld(self, path: RealPath) -> tuple[PathNotHeld, ...]:
        assert path == WORKSPACE
        if self.fault is not None:
            raise self.fault
        return () if self.has else (PathNotHeld(LARGE, "it is too large"),)


@dataclass
class FakeContainment:
    timeline: FakeTimeline = field(default_factory=FakeTimeline)
    why: str | None = None
    same: bool = True
    ended_for: EndedFor = ""

    def ended(self, *, writes: bool) -> str | None:
        return self.why

    def end(self, call: RequestId, why: str, ended_for: EndedFor) -> None:
        self.why = why
        self.ended_for = ended_for

    def is_same_workspace(self) -> bool:
        return self.same


@dataclass
class Look:
    found: tuple[PutBack, ...] = ()
    last: list[bool] = field(default_factory=list)

    def allowing(self, paths: Collection[str], *, by_person: bool) -> AbstractContextManager[None]:
        return nullcontext()

    async def look(self, *, is_last: bool) -> tuple[PutBack, ...]:
        self.last.append(is_last)
        return self.found


def harness(on: FakeContainment, then: Effect = "escalate", **more: object) -> Harness:
    rule = Rule(name="it", effect=then, reason="so")
    return Harness(
        Policy(rules=(rule,), workspace=WORKSPACE),
        facts=FakeFacts(answer=runs),
        servers=FakeServers(found_restrictions=WALLS),
        containment=on,
        timeline=on.timeline,
        **more,  # type: ignore[arg-type]
    )


def notes(record: AuditRecord) -> dict[str, object]:
    return dict(record.context)


async def test_a_contained_call_is_recorded_with_its_point_and_what_it_changed() -> None:
    on = FakeContainment()
    world = harness(on)
    assert isinstance(await world.mediator.handle("read", CALL), Answered)
    intent, outcome = world.recorder.records
    assert intent.decided_by == outcome.decided_by == CONTAINMENT
    assert notes(intent)["point"] == notes(outcome)["point"] == "7"
    assert notes(outcome)["changed"] == ["deleted a\\udcff.txt"]
    assert on.timeline.settled == ["7"]
    assert world.questions.asked == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (FakeContainment(why="a hook"), "containment has ended: a hook"),
        (FakeContainment(same=False), "another directory"),
        (
            FakeContainment(FakeTimeline(has=False)),
            "could not be brought back: /ws/data/large.bin (it is too large)",
        ),
        (FakeContainment(FakeTimeline(answer=NotHeld("disk full"))), "disk full"),
        (FakeContainment(FakeTimeline(fault=OSError("x"))), "could not be taken back"),
    ],
)
async def test_what_cannot_be_taken_back_is_asked_about_with_the_reason(
    change: FakeContainment, why: str
) -> None:
    world = harness(change)
    assert isinstance(await world.mediator.handle("read", CALL), Refused)
    assert world.servers.forwarded == []
    (question,) = world.questions.asked
    assert why in dict(question.context)["Not contained"]


@pytest.mark.parametrize("closed", [LARGE, RealPath.from_text("/ws/data")])
async def test_what_its_sandbox_cannot_write_to_is_in_nobodys_way(closed: RealPath) -> None:
    world = harness(FakeContainment(FakeTimeline(has=False)))
    world.servers.found_restrictions = replace(WALLS, closed=(closed,))
    assert isinstance(await world.mediator.handle("read", CALL), Answered)
    inner = RealPath((*closed.parts, *LARGE.parts[len(closed.parts) :], "inner"))
    around = RealPath.from_text("/ws/data/large.bin")
    for restrictions in (
        replace(WALLS, closed=(inner,)),
        replace(WALLS, closed=(closed,), writable=(WORKSPACE, around))
        if closed != around
        else WALLS,
    ):
        world.servers.found_restrictions = restrictions
        assert isinstance(await world.mediator.handle("read", CALL), Refused)


async def test_what_to_configure_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    world = harness(FakeContainment(FakeTimeline(has=False)))
    for number in range(3):
        await world.mediator.handle("read", {"name": "read", "arguments": {"a": number}})
    assert caplog.text.count("containment.max_bytes") == 1


async def test_a_call_cancelled_between_its_point_and_the_server_settles_its_point() -> None:
    class Waits(FakeRecorder):
        async def record(self, record: AuditRecord) -> None:
            await anyio.lowlevel.checkpoint()
            await super().record(record)

    with anyio.CancelScope() as scope:
        on = FakeContainment(FakeTimeline(on_mark=scope.cancel))
        world = harness(on, recorder=Waits())
        await world.mediator.handle("read", CALL)
    assert on.timeline.settled == ["7"]
    assert world.servers.forwarded == []


async def test_a_call_that_cannot_be_recorded_is_not_sent_and_settles_its_point() -> None:
    on = FakeContainment()
    world = harness(on, recorder=FakeRecorder(failing_from=0))
    assert isinstance(await world.mediator.handle("read", CALL), Refused)
    assert world.servers.forwarded == []
    assert on.timeline.settled == ["7"]


async def test_a_sandbox_that_is_another_one_when_the_turn_comes_is_asked_about() -> None:
    on = FakeContainment()
    world = harness(on)
    world.facts.meanwhile = lambda: setattr(world.servers, "found_restrictions", None)
    assert isinstance(await world.mediator.handle("read", CALL), Refused)
    assert world.servers.forwarded == []
    assert len(world.questions.asked) == 1
    assert on.timeline.settled == ["7"]


async def test_an_end_of_containment_while_a_call_waits_holds_for_that_call() -> None:
    on = FakeContainment()
    world = harness(on)
    world.facts.meanwhile = lambda: on.end(RequestId("other"), "a hook", "writers")
    assert isinstance(await world.mediator.handle("read", CALL), Refused)
    assert world.servers.forwarded == []


@pytest.mark.parametrize(("fails", "passed"), [(False, 30), (True, 20)])
async def test_a_contained_call_is_repeated_as_long_as_it_succeeds(
    fails: bool, passed: int
) -> None:
    async def act(call: AuthorizedCall) -> ToolResult:
        return replace(DONE, result={"content": [], "isError": fails})

    world = harness(FakeContainment())
    world.begin(replace(world.world, servers=FakeServers(found_restrictions=WALLS, act=act)))
    replies = [await world.mediator.handle("read", CALL) for _ in range(30)]
    assert sum(isinstance(one, Answered) for one in replies) == passed


async def test_what_cannot_be_put_back_after_a_call_ends_containment() -> None:
    on = FakeContainment()
    often, stays = PutBack("often", ends="writers"), PutBack("a hook stays", ends="all")
    world = harness(on, lookout=Look((PutBack("a setting came"), often, stays)))
    assert isinstance(await world.mediator.handle("read", CALL), Answered)
    assert (on.why, on.ended_for) == ("a hook stays", "all")
    assert notes(world.recorder.records[-1])["containmentEnded"] is True


async def test_after_a_mishap_the_same_call_alone_is_asked_about() -> None:
    on, look = FakeContainment(), Look((PutBack("a hook came, and was removed"),))
    world = harness(on, lookout=look)
    assert isinstance(await world.mediator.handle("read", CALL), Answered)
    assert "containmentEnded" not in notes(world.recorder.records[-1])
    look.found = (PutBack("a name that nobody knows", acts=False),)
    other: Mapping[str, Json] = {"name": "read", "arguments": {"a": 1}}
    assert isinstance(await world.mediator.handle("read", other), Answered)
    assert isinstance(await world.mediator.handle("read", other), Answered)
    assert isinstance(await world.mediator.handle("read", CALL), Refused)
    (question,) = world.questions.asked
    why = "after the same call, a hook came, and was removed"
    assert dict(question.context)["Not contained"] == why


@dataclass
class FakeViews:
    """All commands have views, in which they change nothing."""

    def serves(self, server: str) -> bool:
        return server != ""

    def files_among(self, paths: Sequence[RealPath]) -> list[RealPath]:
        raise AssertionError(paths)

    async def changes(self, view: str) -> ViewChanges:
        raise AssertionError(view)

    def commit(self, view: str, call: str) -> tuple[NotTaken, ...]:
        raise AssertionError(view, call)

    def take_back(self, view: str) -> tuple[NotTaken, ...]:
        raise AssertionError(view)

    async def end(self, view: str) -> None:
        raise AssertionError(view)


@pytest.mark.parametrize(("views", "last"), [(None, [False, True]), (FakeViews(), [True, True])])
async def test_a_call_in_a_view_left_nothing_and_is_not_under_way_for_others(
    views: FakeViews | None, last: list[bool]
) -> None:
    look, both = Look((PutBack("a hook came, and was removed"),)), anyio.Event()

    async def wait(call: AuthorizedCall) -> ToolResult:
        if world.servers.forwarded[1:]:
            both.set()
        await both.wait()
        return DONE

    world = harness(FakeContainment(), lookout=look)
    world.begin(replace(world.world, views=views))
    world.servers.act = wait

    async def handle(params: Mapping[str, Json]) -> None:
        assert isinstance(await world.mediator.handle("read", params), Answered)

    other: Mapping[str, Json] = {"name": "read", "arguments": {"a": 1}}
    async with anyio.create_task_group() as group:
        group.start_soon(handle, CALL)
        group.start_soon(handle, other)
    assert look.last == last
    again = await world.mediator.handle("read", CALL)
    assert isinstance(again, Answered if views else Refused)


async def test_an_allowed_call_goes_also_where_it_has_no_point() -> None:
    on = FakeContainment(FakeTimeline(answer=NotHeld("disk full")), why="a hook")
    world = harness(on, "allow")
    assert isinstance(await world.mediator.handle("read", CALL), Answered)
    record = world.recorder.records[-1]
    assert (record.decided_by, notes(record)["notHeld"]) == (KERNEL, "disk full")


async def test_an_attempt_to_leave_is_remembered_for_that_call_alone() -> None:
    async def tries(call: AuthorizedCall) -> ToolResult:
        return replace(DONE, refused_host="closed.example")

    world = harness(FakeContainment())
    world.servers.act = tries
    first: Mapping[str, Json] = {"name": "read", "arguments": {"a": 1}}
    assert isinstance(await world.mediator.handle("read", first), Answered)
    assert isinstance(await world.mediator.handle("read", first), Refused)
    (question,) = world.questions.asked
    assert "closed.example" in dict(question.context)["Not contained"]
    assert isinstance(await world.mediator.handle("read", CALL), Answered)


async def test_a_timeline_that_fails_afterwards_does_not_lose_the_record() -> None:
    on = FakeContainment()
    world = harness(on)
    on.timeline.on_mark = lambda: setattr(on.timeline, "fault", OSError("gone"))
    assert isinstance(await world.mediator.handle("read", CALL), Answered)
    assert world.recorder.records[-1].decided_by == CONTAINMENT


async def test_what_is_not_known_of_a_call_is_recorded_as_such() -> None:
    on = FakeContainment(FakeTimeline(changes=NotHeld("too many files")))
    world = harness(on)
    await world.mediator.handle("read", CALL)
    told = notes(world.recorder.records[-1])
    assert (told["notHeld"], "changed" in told) == ("too many files", False)


# --- what was approved on condition that it can be taken back


def writes(call: Operation) -> Facts:
    facts = no_roles(call)
    path = RealPath.from_text("/ws/in/a")
    fact = ArgumentFact(
        name="path", roles=("write-path",), values=(PathValue(text=str(path), path=path),)
    )
    return replace(facts, request=replace(facts.request, arguments=(fact,)))


def conditional(timeline: FakeTimeline | None, facts: Callable[[Operation], Facts]) -> Harness:
    """Without containment: the engine has approved, on condition."""
    rule = Rule(name="it", effect="escalate", reason="so")
    return Harness(
        Policy(rules=(rule,), workspace=WORKSPACE),
        facts=FakeFacts(answer=facts),
        questions=FakeDesk(ruling=Approved(by=Engine("health"), revocable=True)),
        timeline=timeline,
    )


@pytest.mark.parametrize(
    ("timeline", "facts"),
    [
        (FakeTimeline(answer=NotHeld("disk full")), writes),
        (FakeTimeline(fault=OSError("x")), writes),
        (None, writes),
        # It names nothing that it changes, so it has no point.
        (FakeTimeline(), no_roles),
    ],
)
async def test_a_conditional_approval_does_not_hold_without_a_point(
    timeline: FakeTimeline | None, facts: Callable[[Operation], Facts]
) -> None:
    world = conditional(timeline, facts)
    assert isinstance(await world.mediator.handle("read", CALL), Refused)
    assert world.servers.forwarded == []


@pytest.mark.requirement("B-63", "B-64")
async def test_what_a_call_changed_besides_what_it_names_is_recorded() -> None:
    changes = (
        Change("in", "created"),
        Change("in/a", "created"),
        Change("in/b", "changed"),
        Change("other", "deleted"),
    )
    timeline = FakeTimeline(changes=changes)
    world = conditional(timeline, writes)
    assert isinstance(await world.mediator.handle("read", CALL), Answered)
    told = notes(world.recorder.records[-1])
    assert (told["point"], told["changes"]) == ("7", 4)
    assert told["sideEffects"] == ["changed in/b", "deleted other"]
    assert timeline.settled == ["7"]


# --- what was approved beyond a sandbox


@pytest.mark.parametrize(
    ("by", "hosts"),
    [
        (HUMAN, ["t.example"]),
        (Program("small", "model"), ["t.example"]),
        (AUTO_APPROVER, []),
        (Engine("matrix"), []),
    ],
)
async def test_only_a_reviewer_who_saw_the_host_opens_it(by: Decider, hosts: list[str]) -> None:
    asked: list[Sequence[str]] = []

    class Needs(FakeServers):
        def opening(
            self,
            server: str,
            request: AccessRequest,
            hosts: Sequence[str] = (),
            paths: Sequence[RealPath] = (),
            programs: Sequence[str] = (),
        ) -> SandboxOpening | None:
            asked.append(hosts)
            return SandboxOpening(hosts=tuple(hosts))

    async def tries(call: AuthorizedCall) -> ToolResult:
        return replace(DONE, refused_host="t.example")

    world = harness(FakeContainment())
    needs = Needs(found_restrictions=WALLS, act=tries)
    world.begin(replace(world.world, servers=needs))
    await world.mediator.handle("read", CALL)
    world.questions.ruling = Approved(by=by)
    assert isinstance(await world.mediator.handle("read", CALL), Answered)
    assert needs.openings[0] is None
    opened = needs.openings[1]
    assert [*(() if opened is None else opened.hosts)] == hosts


async def test_what_the_policy_allows_opens_nothing() -> None:
    world = harness(FakeContainment(), "allow")
    world.servers.needs = SandboxOpening(hosts=("a.example",))
    await world.mediator.handle("read", CALL)
    assert world.servers.openings == [None]


async def test_what_was_approved_is_opened_for_that_call_and_recorded() -> None:
    world = harness(FakeContainment(why="ended"))
    world.servers.needs = SandboxOpening(hosts=("a.example",))
    world.questions.ruling = Approved(by=HUMAN)
    await world.mediator.handle("read", CALL)
    assert world.servers.openings == [SandboxOpening(hosts=("a.example",))]
    assert notes(world.recorder.records[-1])["opened"] == ["host a.example"]


# --- what a call left running


@pytest.mark.parametrize(
    ("by", "opens", "stands"),
    [
        (None, False, True),
        (HUMAN, False, False),
        (HUMAN, True, True),
        (AUTO_APPROVER, False, True),
        (Engine("matrix"), False, True),
    ],
)
async def test_what_a_contained_call_left_stands_still_until_a_person_approves_a_call(
    by: Decider | None, *, opens: bool, stands: bool
) -> None:
    on = FakeContainment()
    world = harness(on, lookout=Look())
    assert isinstance(await world.mediator.handle("read", CALL), Answered)
    assert world.servers.still == [world.servers.forwarded[0].server]
    if by is not None:
        on.end(RequestId("other"), "a hook", "writers")
        world.servers.needs = SandboxOpening(hosts=("a.example",)) if opens else None
        world.questions.ruling = Approved(by=by)
        assert isinstance(await world.mediator.handle("read", CALL), Answered)
    assert bool(world.servers.still) == stands


async def test_a_tool_that_runs_no_programs_leaves_nothing_that_stands_still() -> None:
    world = harness(FakeContainment(), lookout=Look())
    world.facts.answer = writes
    await world.mediator.handle("read", CALL)
    assert world.servers.still == []


async def test_what_the_policy_allows_stops_nothing() -> None:
    world = harness(FakeContainment(), "allow", lookout=Look())
    assert isinstance(await world.mediator.handle("read", CALL), Answered)
    assert world.servers.still == []
