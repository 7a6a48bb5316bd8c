"""Shell commands: what settles a question about one, and what an answer remembers."""

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.grants.book import GrantBook, Remembered
from ironcurtain_proxy.grants.families import command_candidates
from ironcurtain_proxy.grants.format import KeptGrant, can_be_kept
from ironcurtain_proxy.grants.grant_settlement import (
    NewGrantTerms,
    capability_pattern,
    offered,
    remembered,
    settle_by_grants,
    tool_candidate,
)
from ironcurtain_proxy.grants.patterns import EscalatedCall, Places, candidates
from ironcurtain_proxy.model.decision import HUMAN, Ground
from ironcurtain_proxy.model.escalation import Approved, Escalation, Origin, OriginReason
from ironcurtain_proxy.model.grant import (
    CallPattern,
    CapabilityPattern,
    FamilyPattern,
    Grant,
    GrantId,
    GrantPattern,
    Pattern,
    ToolPattern,
)
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, Family, PathValue
from ironcurtain_proxy.model.values import RealPath
from tests.grants.family_projects import NOW, Project
from tests.questions import a_question

POLICY = OriginReason(origin="policy", ground=Ground("ask", "a person must agree"))
MODE = OriginReason(origin="tool-policy", ground=Ground("mode", "always asked"))
PROFILE = OriginReason(
    origin="capability", ground=Ground("capability:x", "runs"), capabilities=("proc.exec",)
)
REASONS: dict[Origin, OriginReason] = {
    "policy": POLICY, "tool-policy": MODE, "capability": PROFILE,
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.made(tmp_path / "project")


def question_of(call: EscalatedCall, *reasons: OriginReason) -> Escalation:
    patterns = candidates(call, Places(directories=frozenset()))
    found = offered(reasons, patterns, tool_candidate(call), command_candidates(call))
    return replace(a_question(), reasons=reasons, command=call.command, candidates=found)


def kept_by(question: Escalation, call: EscalatedCall, remember: int | None) -> GrantBook:
    book = GrantBook()
    ids = iter("abcdefgh")
    how = NewGrantTerms(new_id=lambda: next(ids), now=NOW)
    approved = Approved(by=HUMAN, remember=remember)
    for grant in remembered(question, approved, tool_candidate(call), how):
        book.add(grant)
    return book


def holding(pattern: Pattern) -> GrantBook:
    book = GrantBook()
    book.add(Grant(id=GrantId("g"), pattern=pattern, created=NOW, source="q", reason=""))
    return book


def is_settled(book: GrantBook, call: EscalatedCall, *reasons: OriginReason) -> bool:
    return not settle_by_grants(reasons, call, book, NOW).open


@pytest.mark.parametrize("origin", REASONS)
def test_a_family_settles_whatever_asks_about_the_command(project: Project, origin: Origin) -> None:
    reason = REASONS[origin]
    call = project.call("go test ./...")
    book = kept_by(question_of(call, reason), call, 0)
    assert len(book) == 1
    assert is_settled(book, project.call("go test ./x"), reason)
    assert is_settled(book, project.call("go test ./x"), POLICY, MODE, PROFILE)
    assert not is_settled(book, project.call("go run ./x"), reason)


def test_each_family_of_a_compound_is_a_grant_of_its_own(project: Project) -> None:
    call = project.call("go test ./... && go vet ./...")
    book = kept_by(question_of(call, POLICY), call, 0)
    assert [one.grant.pattern.description for one in book.list()] == [
        f"`{program}` in {project.path} and other worktrees of its repository"
        for program in ("go test", "go vet")
    ]
    found = settle_by_grants([POLICY], call, book, NOW)
    assert [grant.id for grant in found.grants] == ["a", "b"]
    book.revoke(GrantId("b"))
    assert not is_settled(book, call, POLICY)
    assert is_settled(book, project.call("go test ./x"), POLICY)


def test_the_whole_tool_is_offered_last_and_only_for_what_may_be_general(project: Project) -> None:
    general = question_of(project.call("go test ./..."), MODE).candidates
    assert [type(one) for one in general] == [FamilyPattern, CallPattern, ToolPattern]
    for command in ("git push --force origin x", "rm -rf x", "npm publish", "x=$(y); $x"):
        never = question_of(project.call(command), MODE).candidates
        assert [type(one) for one in never] == [CallPattern], command
    call = project.call("go test ./...")
    unknown = offered((MODE,), (), None, command_candidates(call))
    assert [type(one) for one in unknown] == [FamilyPattern, CallPattern]
    both = question_of(project.call("go test ./..."), POLICY, MODE).candidates
    assert [type(one) for one in both] == [FamilyPattern, CallPattern]


def test_the_whole_tool_does_not_cover_what_is_never_general(project: Project) -> None:
    tool = tool_candidate(project.call("go test"))
    assert tool is not None
    book = holding(tool)
    assert is_settled(book, project.call("go vet ./..."), MODE)
    for command in ("git push --force origin x", "rm -rf x", "sudo ls", "ssh h x", "$x", "a | sh"):
        assert not is_settled(book, project.call(command), MODE), command


def test_a_capability_does_not_cover_what_is_never_general(project: Project) -> None:
    book = holding(capability_pattern("proc.exec"))
    assert is_settled(book, project.call("go vet ./..."), PROFILE)
    assert not is_settled(book, project.call("rm -rf x"), PROFILE)


def test_a_directory_says_nothing_of_the_commands_in_it(project: Project) -> None:
    path = RealPath.from_text(f"{project.path}/x")
    fact = ArgumentFact("cwd", ("read-path",), (PathValue(str(path), path),))
    request = AccessRequest(
        server="shell", tool="run", annotated=True, has_arguments=True, arguments=(fact,)
    )
    plain = replace(project.call("go test ./..."), request=request)
    (pattern,) = candidates(plain, Places(directories=frozenset([path])))
    assert isinstance(pattern, GrantPattern)
    assert not is_settled(holding(pattern), plain, POLICY)


def test_a_capability_is_remembered_of_a_command_only_with_the_whole_tool(project: Project) -> None:
    call = project.call("go test ./...")
    assert len(kept_by(question_of(call, PROFILE), call, None)) == 0
    (family,) = kept_by(question_of(call, PROFILE), call, 0).list()
    assert not isinstance(family.grant.pattern, CapabilityPattern)


def test_a_path_outside_of_the_project_is_not_what_a_family_speaks_of(project: Project) -> None:
    project.approve("go test ./...")
    path = RealPath.from_text("/etc/passwd")
    fact = ArgumentFact("input", ("read-path",), (PathValue("/etc/passwd", path),))
    request = AccessRequest(
        server="shell", tool="run", annotated=True, has_arguments=True, arguments=(fact,)
    )
    call = replace(project.call("go test ./..."), request=request)
    found = command_candidates(call)
    assert found is not None
    assert [type(one) for one in found.patterns] == [CallPattern]
    book = GrantBook()
    for grant in project.grants:
        book.add(grant)
    assert is_settled(book, project.call("go test ./..."), POLICY)
    assert not is_settled(book, call, POLICY)


def test_another_definition_of_the_tool_ends_its_families(project: Project) -> None:
    call = project.call("go test ./...")
    book = kept_by(question_of(call, POLICY), call, 0)
    assert not is_settled(book, replace(call, definition="other"), POLICY)
    assert not is_settled(book, replace(call, tool="other"), POLICY)
    assert not is_settled(book, replace(call, definition=""), POLICY)


def test_only_a_family_that_is_general_and_known_can_be_kept() -> None:
    def kept(family: Family) -> bool:
        pattern = FamilyPattern(
            server="s", tool="t", definition="d", workspace=RealPath.from_text("/w"),
            families=(family,), phrases=("x",), description="x",
        )  # fmt: skip
        end = NOW + timedelta(days=1)
        grant = Grant(
            id=GrantId("g"), pattern=pattern, created=NOW, source="q", reason="", expires=end
        )
        return can_be_kept(
            KeptGrant(remembered=Remembered(grant=grant), scope="project",
                      workspace=RealPath.from_text("/w"), policy_version="p", server_digest="s")
        )  # fmt: skip

    assert kept(Family(program=("go", "test")))
    assert not kept(Family(program=("rm",), is_general=False))
    assert not kept(Family(program=("make",), meaning=None))
    assert not kept(Family(program=("make",), defined_in=("/w/Makefile",)))
