"""Each origin is settled by its own kind of grant, and by no other."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import chain, combinations

import pytest
from anyio import create_task_group
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from ironcurtain_proxy.approval.overlay import asked_before
from ironcurtain_proxy.grants.book import Budget, BudgetBook, GrantBook
from ironcurtain_proxy.grants.families import command_candidates
from ironcurtain_proxy.grants.grant_settlement import (
    Approvals,
    Claim,
    NewGrantTerms,
    capability_pattern,
    offered,
    reasons_left,
    remembered,
    settle_by_grants,
    tool_candidate,
)
from ironcurtain_proxy.grants.patterns import EscalatedCall, Places, candidates, names_opening
from ironcurtain_proxy.model.decision import AUTO_APPROVER, HUMAN, Decider, Engine, Ground, Program
from ironcurtain_proxy.model.escalation import Approved, Escalation, OriginReason
from ironcurtain_proxy.model.grant import (
    NOTHING_OPENED,
    CallPattern,
    CapabilityPattern,
    FamilyPattern,
    Grant,
    GrantId,
    Pattern,
    SandboxOpening,
    ToolPattern,
)
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, Family, PathValue
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.shell.statements import parse_command
from tests.questions import ETC, a_question

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("D-29")]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FILE = PathValue("/srv/a/x", RealPath.from_text("/srv/a/x"))
CALL = EscalatedCall(
    server="files",
    tool="edit",
    definition="d1",
    request=AccessRequest(
        server="files",
        tool="edit",
        annotated=True,
        has_arguments=True,
        arguments=(ArgumentFact("path", ("write-path",), (FILE,)),),
    ),
    arguments={"path": "/srv/a/x"},
    roles=("write-path",),
)
(DIRECTORY,) = candidates(CALL, Places(directories=frozenset()))
TOOL = tool_candidate(CALL)
WRITE = capability_pattern("fs.write")

SAME = CallPattern(
    server="files", tool="edit", definition="d1", digest="00", description="the identical call"
)

POLICY = OriginReason(origin="policy", ground=Ground("ask", "a person must agree"))
PROFILE = OriginReason(
    origin="capability", ground=Ground("capability:fs.write", "writes"), capabilities=("fs.write",)
)
BOTH = asked_before("careful", ("fs.delete", "fs.write"))
MODE = OriginReason(origin="tool-policy", ground=Ground("approval-policy:all", "asks"))
REASONS = (POLICY, PROFILE, MODE)


def grants_of(*patterns: Pattern | None) -> GrantBook:
    book = GrantBook()
    for number, pattern in enumerate(patterns):
        assert pattern is not None
        book.add(
            Grant(id=GrantId(f"g{number}"), pattern=pattern, created=NOW, source="", reason="")
        )
    return book


def subsets() -> Iterable[tuple[Pattern | None, ...]]:
    everything = (DIRECTORY, WRITE, TOOL)
    return chain.from_iterable(combinations(everything, size) for size in range(4))


@pytest.mark.requirement("E-21", "X-12")
@pytest.mark.parametrize("patterns", list(subsets()), ids=len)
def test_each_kind_of_grant_settles_its_own_origin_and_no_other(
    patterns: tuple[Pattern | None, ...],
) -> None:
    left = settle_by_grants(REASONS, CALL, grants_of(*patterns), NOW)
    settled_by = {"policy": DIRECTORY, "capability": WRITE, "tool-policy": TOOL}
    assert [reason.origin for reason in left.open] == [
        origin for origin, pattern in settled_by.items() if pattern not in patterns
    ]
    assert len(left.grants) == len(patterns)


def test_every_origin_is_named_once_and_without_reasons_it_is_the_policy() -> None:
    assert ask(*REASONS).origins == ("policy", "capability", "tool-policy")
    assert a_question().origins == ("policy",)


def approvals(*patterns: Pattern, budgeted: tuple[str, ...] = ()) -> Approvals:
    """Grants, and a plan of one call of the tool that was approved for these capabilities."""
    budgets = BudgetBook()
    budgets.open(
        Budget(
            id=GrantId("run"),
            capabilities=frozenset(budgeted),
            calls=Counter({("files", "edit"): 1}),
            expires=NOW + timedelta(minutes=10),
        )
    )
    return Approvals(grants_of(*patterns), budgets)


def test_a_budget_settles_capabilities_and_nothing_else() -> None:
    cover = approvals(budgeted=("fs.write", "net.egress")).look(
        Claim(call=CALL, reasons=REASONS), NOW
    )
    assert (cover.open, cover.run) == ((POLICY, MODE), "run")


def test_one_capability_of_two_leaves_the_other_to_ask_about() -> None:
    left = settle_by_grants((BOTH,), CALL, grants_of(WRITE), NOW)
    assert left.open == (asked_before("careful", ("fs.delete",)),)
    assert [grant.pattern for grant in left.grants] == [WRITE]
    for delete in ("fs.delete", "net.egress"):
        cover = approvals(WRITE, budgeted=(delete,)).look(Claim(call=CALL, reasons=(BOTH,)), NOW)
        assert (cover.open == ()) is (delete == "fs.delete")


def test_a_budget_is_not_looked_for_where_grants_cover_all() -> None:
    cover = approvals(WRITE, budgeted=("fs.write",)).look(Claim(call=CALL, reasons=(PROFILE,)), NOW)
    assert (cover.open, cover.run) == ((), None)


def test_what_leaves_something_to_ask_uses_nothing_up() -> None:
    before = approvals(WRITE, budgeted=("fs.delete",))
    assert before.use(Claim(call=CALL, reasons=(BOTH, MODE)), NOW).open == (MODE,)
    assert [one.uses for one in before.grants.list()] == [0]
    assert before.use(Claim(call=CALL, reasons=(BOTH,)), NOW).run == "run"
    assert [one.uses for one in before.grants.list()] == [1]
    assert before.use(Claim(call=CALL, reasons=(BOTH,)), NOW).run is None


def test_a_reason_without_a_capability_is_never_settled_by_one() -> None:
    nameless = replace(PROFILE, capabilities=())
    before = approvals(WRITE, budgeted=("fs.write",))
    assert before.look(Claim(call=CALL, reasons=(nameless,)), NOW).open == (nameless,)
    assert reasons_left((nameless,), (PROFILE, POLICY)) == (nameless,)
    assert reasons_left((nameless,), (nameless,)) == ()


@pytest.mark.requirement("X-11")
def test_an_approval_settles_what_it_was_asked_about_and_nothing_else() -> None:
    delete, write = (asked_before("careful", (name,)) for name in ("fs.delete", "fs.write"))
    assert reasons_left(REASONS, ()) == REASONS
    assert reasons_left(REASONS, REASONS) == ()
    assert reasons_left(REASONS, (POLICY,)) == (PROFILE, MODE)
    assert reasons_left((BOTH,), (delete,)) == (write,)
    assert reasons_left((delete,), (BOTH,)) == ()
    assert reasons_left((delete,), (write,)) == (delete,)


def test_an_always_allowed_tool_is_asked_about_again_when_it_has_changed() -> None:
    changed = replace(CALL, definition="d2")
    assert settle_by_grants((MODE,), changed, grants_of(TOOL), NOW).open == (MODE,)
    assert tool_candidate(replace(CALL, definition="")) is None


@pytest.mark.requirement("E-36")
@pytest.mark.parametrize(("minutes", "holds"), [(5, True), (11, False)])
def test_a_grant_with_a_lifetime_of_ten_minutes_holds_after_five_and_not_after_eleven(
    minutes: int, holds: bool
) -> None:
    how = NewGrantTerms(new_id=lambda: "g", now=NOW, ttl=timedelta(minutes=10))
    asked = ask(MODE)
    book = GrantBook()
    for grant in remembered(asked, Approved(by=HUMAN, remember=0), TOOL, how):
        book.add(grant)
    left = settle_by_grants((MODE,), CALL, book, NOW + timedelta(minutes=minutes))
    assert (left.open == ()) is holds
    assert (len(book) == 1) is holds


def ask(*reasons: OriginReason, patterns: bool = True) -> Escalation:
    found = offered(reasons, (DIRECTORY,) if patterns else (), TOOL)
    return replace(a_question(), reasons=reasons, candidates=found)


def kinds(asked: Escalation, approved: Approved) -> list[type]:
    how = NewGrantTerms(new_id=lambda: "g", now=NOW)
    return [type(grant.pattern) for grant in remembered(asked, approved, TOOL, how)]


@pytest.mark.requirement("E-22", "E-34")
def test_an_approval_remembers_each_origin_by_its_own_rule() -> None:
    once, always = Approved(by=HUMAN), Approved(by=HUMAN, remember=0)
    assert kinds(ask(POLICY), once) == []
    assert kinds(ask(POLICY), always) == [type(DIRECTORY)]
    assert kinds(ask(MODE), once) == []
    assert kinds(ask(MODE), always) == [ToolPattern]
    assert kinds(ask(PROFILE), once) == [CapabilityPattern]
    assert kinds(ask(*REASONS), once) == [CapabilityPattern]
    assert kinds(ask(*REASONS), always) == [CapabilityPattern, ToolPattern, type(DIRECTORY)]
    assert kinds(ask(*REASONS, patterns=False), always) == [CapabilityPattern, ToolPattern]


def test_what_a_person_approved_is_remembered_for_the_session() -> None:
    assert kinds(ask(PROFILE), Approved(by=HUMAN)) == [CapabilityPattern]


def test_an_answer_about_the_identical_call_remembers_nothing_wider() -> None:
    found = offered(REASONS, (DIRECTORY,), TOOL, whole=(SAME,))
    assert found == (SAME,)
    asked = replace(a_question(), reasons=REASONS, candidates=found)
    assert kinds(asked, Approved(by=HUMAN, remember=0)) == [CallPattern]


def test_a_tool_whose_definition_is_unknown_is_neither_offered_nor_remembered() -> None:
    assert offered((MODE,), (), None) == ()
    assert offered((POLICY, MODE), (DIRECTORY,), None) == (DIRECTORY,)
    how = NewGrantTerms(new_id=lambda: "g", now=NOW)
    asked = replace(a_question(), reasons=(POLICY, MODE), candidates=(DIRECTORY,))
    (only,) = remembered(asked, Approved(by=HUMAN, remember=0), None, how)
    assert only.pattern == DIRECTORY


def test_a_capability_is_described_in_words_and_by_its_name() -> None:
    assert WRITE.description == "Let tools create or change files (fs.write) in this session"
    newer = capability_pattern("fs.new\n")
    assert newer.description == "Let tools fs.new\\n in this session"


@pytest.mark.parametrize(
    "by", [AUTO_APPROVER, Engine("pattern"), Program("team", "named"), Program("m", "model")]
)
def test_what_no_person_approved_is_not_remembered_for_the_session(by: Decider) -> None:
    assert kinds(ask(PROFILE), Approved(by=by)) == []


@pytest.mark.parametrize("place", [-1, 1, 99])
def test_a_place_that_was_not_offered_remembers_nothing(place: int) -> None:
    assert kinds(ask(POLICY), Approved(by=HUMAN, remember=place)) == []


def test_what_the_policy_asks_is_never_offered_for_the_approval_mode() -> None:
    assert offered((MODE,), (ETC,), TOOL) == (TOOL,)
    assert TOOL is not None
    (both,) = offered((POLICY, MODE), (ETC,), TOOL)
    # What it remembers of the tool besides is said before the answer.
    assert both == replace(ETC, description=f"{ETC.description}; {TOOL.description}")
    assert offered((PROFILE,), (ETC,), TOOL) == ()


@pytest.mark.requirement("D-30", "E-35", "E-36")
async def test_of_a_hundred_sessions_at_once_none_sees_what_another_was_granted() -> None:
    books = [GrantBook() for _ in range(100)]
    seen: list[tuple[int, bool, bool]] = []

    async def session(number: int) -> None:
        book = books[number]
        if number % 2:
            for pattern in (TOOL, WRITE):
                assert pattern is not None
                book.add(grant(pattern, f"{number}-{pattern.description}"))
        await checkpoint()
        for reason in (MODE, PROFILE):
            left = settle_by_grants((reason,), CALL, book, NOW)
            seen.append((number, bool(number % 2), left.open == ()))
        await checkpoint()
        if number % 4 == 1:
            book.clear()

    async with create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(session, number)
    assert len(seen) == 200
    assert all(granted == settled for _, granted, settled in seen)
    assert [len(book) for book in books] == [(0, 0, 0, 2)[number % 4] for number in range(100)]


def grant(pattern: Pattern, identifier: str) -> Grant:
    return Grant(id=GrantId(identifier), pattern=pattern, created=NOW, source="", reason="")


@pytest.mark.requirement("E-35")
def test_a_tool_that_was_revoked_is_asked_about_again_and_its_neighbour_is_not_touched() -> None:
    assert TOOL is not None
    neighbour = replace(TOOL, tool="edit\0b", server="files")
    book = grants_of(TOOL, neighbour)
    assert book.revoke(GrantId("g0"))
    assert settle_by_grants((MODE,), CALL, book, NOW).open == (MODE,)
    assert settle_by_grants((MODE,), replace(CALL, tool="edit\0b"), book, NOW).open == ()
    assert settle_by_grants((MODE,), replace(CALL, server="files\0edit", tool="b"), book, NOW).open


# --- what a grant opens


A, B = SandboxOpening(hosts=("a.example",)), SandboxOpening(hosts=("b.example",))
PATH = SandboxOpening(paths=(RealPath.from_text("/srv/x"),))
FETCH = Family(program=("git", "fetch"), hosts=("a.example",))
FETCHES = FamilyPattern(
    server="files",
    tool="edit",
    definition="d",
    workspace=RealPath.from_text("/w"),
    families=(FETCH,),
    phrases=("`git fetch`",),
    description="`git fetch`",
)
NAMING: dict[str, tuple[Pattern, SandboxOpening, SandboxOpening | None, bool]] = {
    "nothing is needed": (WRITE, NOTHING_OPENED, None, True),
    "a host that nobody saw": (WRITE, NOTHING_OPENED, A, False),
    "a host that the question named": (WRITE, A, A, True),
    "another host": (WRITE, A, B, False),
    "one host more": (WRITE, A, SandboxOpening(hosts=("a.example", "b.example")), False),
    "a path that nobody saw": (WRITE, A, PATH, False),
    "a path that the question named": (WRITE, PATH, PATH, True),
    "a family's own host": (FETCHES, NOTHING_OPENED, A, True),
    "another host than a family's": (FETCHES, NOTHING_OPENED, B, False),
    "the identical call": (SAME, NOTHING_OPENED, A, False),
}


@pytest.mark.parametrize(("pattern", "opened", "needed", "names"), NAMING.values(), ids=NAMING)
def test_a_grant_opens_only_what_its_question_named(
    pattern: Pattern, opened: SandboxOpening, needed: SandboxOpening | None, names: bool
) -> None:
    given = replace(grant(pattern, "g"), opened=opened)
    assert names_opening((given,), replace(CALL, opening=needed)) is names


def test_a_host_that_no_question_named_is_asked_about_whatever_was_remembered() -> None:
    assert TOOL is not None
    book = grants_of(TOOL, WRITE)
    for reason in (MODE, PROFILE):
        assert settle_by_grants((reason,), CALL, book, NOW).open == ()
        left = settle_by_grants((reason,), replace(CALL, opening=A), book, NOW)
        assert (left.open, left.grants) == ((reason,), ())
    book.add(replace(grant(TOOL, "later"), opened=A))
    found = settle_by_grants((MODE,), replace(CALL, opening=A), book, NOW)
    assert [one.id for one in found.grants] == ["later"]


def test_an_approval_remembers_what_its_question_named() -> None:
    how = NewGrantTerms(new_id=lambda: "g", now=NOW)
    asked = replace(ask(*REASONS), opening=A)
    made = remembered(asked, Approved(by=HUMAN, remember=0), TOOL, how)
    assert [one.opened for one in made] == [A, A, A]


@pytest.mark.parametrize(
    ("command", "covered"),
    [("ls", True), ("curl https://a.example", False), ("git fetch br", False)],
)
def test_a_grant_of_a_whole_shell_covers_no_command_that_leaves(
    command: str, covered: bool
) -> None:
    assert TOOL is not None
    call = replace(CALL, command=parse_command(command))
    left = settle_by_grants((MODE,), call, grants_of(TOOL), NOW)
    assert (left.open == ()) is covered
    offer = command_candidates(call)
    assert offer is not None
    assert (TOOL in offered((MODE,), (), TOOL, offer)) is covered
