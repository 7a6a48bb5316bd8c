"""Decisions that a person can read."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.conditions import DomainCondition, ListCondition, PathCondition
from ironcurtain_proxy.model.decision import Allow, Decision, Deny, Effect, Escalate, effect_of
from ironcurtain_proxy.model.policy import Policy, ProtectedName, ProtectedPath, Rule
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    PathValue,
    TextValue,
    UrlValue,
)
from ironcurtain_proxy.model.values import RealPath
from tests.tables import table

WORK = RealPath.from_text("/work")


def path(name: str, roles: tuple[ArgumentRole, ...], *texts: str) -> ArgumentFact:
    return ArgumentFact(
        name, roles, tuple(PathValue(text, RealPath.from_text(text)) for text in texts)
    )


def request(
    *arguments: ArgumentFact,
    server: str = "filesystem",
    tool: str = "move_file",
    annotated: bool = True,
) -> AccessRequest:
    return AccessRequest(
        server=server,
        tool=tool,
        annotated=annotated,
        has_arguments=bool(arguments),
        arguments=arguments,
    )


def within(name: str, effect: Effect, role: ArgumentRole, directory: str) -> Rule:
    return Rule(
        name=name,
        effect=effect,
        reason=name,
        paths=PathCondition(roles=frozenset({role}), within=RealPath.from_text(directory)),
    )


def said(decision: Decision) -> tuple[str, str]:
    return effect_of(decision), decision.ground.rule


def move(source: str, destination: str) -> AccessRequest:
    return request(
        path("source", ("read-path", "delete-path"), source),
        path("destination", ("write-path",), destination),
    )


@pytest.mark.requirement("C-22", "C-23")
def test_only_the_roles_outside_the_workspace_are_asked_about() -> None:
    policy = Policy(rules=(within("docs", "escalate", "write-path", "/docs"),), workspace=WORK)
    decision = authorize(move("/work/a", "/docs/a"), policy)
    assert isinstance(decision, Escalate)
    assert decision.roles == ("write-path",)


@pytest.mark.requirement("C-22")
def test_a_move_inside_the_workspace_needs_no_rule() -> None:
    decision = authorize(move("/work/a", "/work/b"), Policy(rules=(), workspace=WORK))
    assert said(decision) == ("allow", "structural-sandbox-allow")


@pytest.mark.requirement("C-27")
def test_different_rules_may_answer_for_different_roles() -> None:
    policy = Policy(
        rules=(
            within("from-downloads-read", "allow", "read-path", "/downloads"),
            within("from-downloads-delete", "allow", "delete-path", "/downloads"),
            within("to-documents", "allow", "write-path", "/documents"),
        )
    )
    assert isinstance(authorize(move("/downloads/a", "/documents/a"), policy), Allow)
    assert isinstance(authorize(move("/documents/a", "/downloads/a"), policy), Deny)


@pytest.mark.requirement("C-29")
def test_a_later_rule_does_not_rescue_a_role_that_no_rule_answered_for() -> None:
    policy = Policy(rules=(within("reads", "allow", "read-path", "/"),))
    assert said(authorize(move("/downloads/a", "/documents/a"), policy)) == ("deny", "default-deny")


@pytest.mark.requirement("C-28")
def test_the_most_severe_answer_of_all_roles_wins_and_names_every_role_that_escalated() -> None:
    policy = Policy(
        rules=(
            within("reads", "allow", "read-path", "/"),
            within("deletes", "escalate", "delete-path", "/"),
            within("writes", "escalate", "write-path", "/"),
        )
    )
    decision = authorize(move("/a/x", "/b/x"), policy)
    assert isinstance(decision, Escalate)
    assert decision.ground.rule == "deletes"
    assert decision.roles == ("delete-path", "write-path")


@pytest.mark.requirement("C-20")
def test_a_protected_path_is_denied_inside_the_workspace_too() -> None:
    policy = Policy(
        rules=(Rule(name="all", effect="allow", reason="all"),),
        workspace=WORK,
        protected_paths=(ProtectedPath(path=RealPath.from_text("/work/.ssh")),),
    )
    decision = authorize(request(path("path", ("read-path",), "/work/.ssh/id")), policy)
    assert said(decision) == ("deny", "structural-protected-path")
    assert "/work/.ssh/id" in decision.ground.reason


@pytest.mark.requirement("C-20")
def anchored(text: str) -> Policy:
    return Policy(
        rules=(Rule(name="all", effect="allow", reason="all"),),
        protected_paths=(ProtectedPath(path=RealPath.from_text(text), anchored=True),),
    )


@pytest.mark.requirement("C-20")
def test_a_directory_that_holds_a_protected_path_is_not_moved_or_deleted() -> None:
    policy = anchored("/work/a/secrets")
    assert isinstance(authorize(move("/work/a", "/work/b"), policy), Deny)
    assert isinstance(authorize(move("/work", "/b"), policy), Deny)
    assert isinstance(authorize(move("/work/other", "/work/b"), policy), Allow)
    assert isinstance(authorize(request(path("p", ("read-path",), "/work/a")), policy), Allow)


@pytest.mark.requirement("C-20")
def test_a_repository_that_holds_a_protected_path_is_asked_about() -> None:
    call = replace(
        request(path("repo_path", ("read-path",), "/work/r/src"), server="git", tool="git_add"),
        repository=RealPath.from_text("/work/r"),
    )
    decision = authorize(call, anchored("/work/r/.env"))
    assert said(decision) == ("escalate", "structural-protected-repository")
    assert said(authorize(call, anchored("/work/.env"))) == ("allow", "all")


@pytest.mark.requirement("C-20")
def test_a_workspace_inside_a_protected_directory_can_be_used() -> None:
    policy = Policy(
        rules=(),
        workspace=WORK,
        protected_paths=(ProtectedPath(path=RealPath.from_text("/"), unless_within=WORK),),
    )
    assert isinstance(authorize(request(path("path", ("read-path",), "/work/a")), policy), Allow)
    assert isinstance(authorize(request(path("path", ("read-path",), "/etc/a")), policy), Deny)


@pytest.mark.parametrize(
    ("text", "is_closed"),
    table("decision/names.closed", list[tuple[str, bool]]),
)
def test_a_name_is_closed_wherever_it_lies_and_however_it_is_written(
    text: str, is_closed: bool
) -> None:
    roles = frozenset[ArgumentRole]({"write-path"})
    policy = Policy(
        rules=(),
        workspace=WORK,
        protected_names=(
            ProtectedName(parts=(".git", "hooks"), roles=roles),
            ProtectedName(parts=(".claude", "settings*"), roles=roles),
            ProtectedName(parts=(".bare",), roles=roles, whole=True),
        ),
    )
    for role in ("write-path", "read-path"):
        decision = authorize(request(path("p", (role,), text)), policy)
        expected = Deny if is_closed and role == "write-path" else Allow
        assert isinstance(decision, expected), role


@pytest.mark.requirement("C-21")
def test_a_tool_without_annotation_is_denied_whatever_the_rules_say() -> None:
    policy = Policy(rules=(Rule(name="all", effect="allow", reason="all"),))
    decision = authorize(request(tool="new_tool", annotated=False), policy)
    assert said(decision) == ("deny", "structural-unknown-tool")


def test_a_directory_does_not_contain_its_namesakes() -> None:
    policy = Policy(rules=(within("a", "allow", "read-path", "/a"),))
    for text, expected in (("/a", Allow), ("/a/x", Allow), ("/ab", Deny), ("/a-old/x", Deny)):
        assert isinstance(authorize(request(path("p", ("read-path",), text)), policy), expected)


def test_the_root_contains_everything() -> None:
    """G22."""
    policy = Policy(rules=(within("root", "escalate", "read-path", "/"),))
    assert isinstance(authorize(request(path("p", ("read-path",), "/etc/x")), policy), Escalate)


def test_every_path_of_an_argument_needs_an_answer() -> None:
    policy = Policy(rules=(within("a", "allow", "read-path", "/a"),))
    both = request(path("paths", ("read-path",), "/a/x", "/b/x"))
    assert said(authorize(both, policy)) == ("deny", "default-deny")


def test_of_equally_severe_answers_the_first_names_the_ground() -> None:
    policy = Policy(
        rules=(within("a", "allow", "read-path", "/a"), within("b", "allow", "read-path", "/b"))
    )
    both = request(path("paths", ("read-path",), "/b/x", "/a/x"), server="files")
    assert said(authorize(both, policy)) == ("allow", "a")


def remote(*domains: str, server: str = "git") -> AccessRequest:
    return request(
        ArgumentFact("remote", ("git-remote-url",), (UrlValue("origin", domains),)),
        server=server,
        tool="git_push",
    )


def test_one_foreign_push_url_among_good_ones_is_enough_to_ask() -> None:
    """G8."""
    policy = Policy(
        rules=(Rule(name="all", effect="allow", reason="all"),),
        domain_allowlists={"git": frozenset({"github.com"})},
    )
    assert isinstance(authorize(remote("github.com/a/b"), policy), Allow)
    decision = authorize(remote("github.com/a/b", "evil.com/x"), policy)
    assert isinstance(decision, Escalate)
    assert decision.ground.rule == "structural-domain-escalate"
    assert decision.roles == ("git-remote-url",)


def test_a_rule_on_domains_needs_all_urls_to_match() -> None:
    """G8."""
    rule = Rule(
        name="hub",
        effect="allow",
        reason="hub",
        domains=DomainCondition(
            roles=frozenset({"git-remote-url"}), allowed=frozenset({"github.com"})
        ),
    )
    policy = Policy(rules=(rule,))
    assert isinstance(authorize(remote("github.com/a"), policy), Allow)
    assert isinstance(authorize(remote("github.com/a", "evil.com/x"), policy), Deny)


def test_a_star_does_not_stand_for_a_transport_that_git_runs_a_helper_for() -> None:
    """G11."""
    rule = Rule(
        name="any",
        effect="allow",
        reason="any",
        domains=DomainCondition(roles=frozenset({"git-remote-url"}), allowed=frozenset({"*"})),
    )
    value = UrlValue("odd://github.com/a", ("github.com/a",), ordinary=False)
    call = request(ArgumentFact("remote", ("git-remote-url",), (value,)), server="git")
    assert isinstance(authorize(remote("github.com/a"), Policy(rules=(rule,))), Allow)
    assert isinstance(authorize(call, Policy(rules=(rule,))), Deny)


def test_a_list_of_hosts_is_held_to_every_host() -> None:
    rule = Rule(
        name="hosts",
        effect="allow",
        reason="hosts",
        lists=(
            ListCondition(
                roles=frozenset({"git-remote-url"}),
                allowed=frozenset({"*.github.com"}),
                kind="domains",
            ),
        ),
    )
    assert isinstance(authorize(remote("api.github.com/a"), Policy(rules=(rule,))), Allow)
    assert isinstance(authorize(remote("github.com.evil.org"), Policy(rules=(rule,))), Deny)


@pytest.mark.parametrize(
    ("role", "ignores_case"),
    table("decision/authorizer.case_counts_in_lists_but_for_roles_role", list[tuple[str, bool]]),
)
@pytest.mark.parametrize(("said_name", "listed"), [("Reader", "reader"), ("reader", "Reader")])
def test_case_counts_in_lists_but_for_roles_that_ignore_it(
    role: ArgumentRole, ignores_case: bool, said_name: str, listed: str
) -> None:
    for kind in ("identifiers", "emails"):
        condition = ListCondition(
            roles=frozenset({role}),
            allowed=frozenset({listed}),
            kind="emails" if kind == "emails" else "identifiers",
        )
        call = request(ArgumentFact("a", (role,), (TextValue(said_name),)), server="x", tool="x")
        assert condition.holds(call, role) is ignores_case
        other = replace(condition, allowed=frozenset({"kim"}))
        kelvin = request(ArgumentFact("a", (role,), (TextValue("\u212aim"),)), server="x", tool="x")
        assert not other.holds(kelvin, role)
        same = request(ArgumentFact("a", (role,), (TextValue(listed),)), server="x", tool="x")
        assert condition.holds(same, role)


def test_lists_of_owners_are_compared_without_regard_to_case() -> None:
    """G21."""
    rule = Rule(
        name="mine",
        effect="allow",
        reason="mine",
        lists=(
            ListCondition(
                roles=frozenset({"github-owner"}), allowed=frozenset({"provos"}), kind="identifiers"
            ),
        ),
    )
    call = request(
        ArgumentFact("owner", ("github-owner",), (TextValue("Provos"),)), server="github", tool="x"
    )
    assert isinstance(authorize(call, Policy(rules=(rule,))), Allow)


@pytest.mark.requirement("C-25")
def test_a_deny_rule_before_a_wider_allow_is_an_exception_from_it() -> None:
    policy = Policy(
        rules=(
            within("not-secrets", "deny", "read-path", "/srv/secrets"),
            within("srv", "allow", "read-path", "/srv"),
        )
    )
    assert isinstance(authorize(request(path("p", ("read-path",), "/srv/x")), policy), Allow)
    denied = authorize(request(path("p", ("read-path",), "/srv/secrets/x")), policy)
    assert said(denied) == ("deny", "not-secrets")


def test_a_rule_for_another_tool_or_server_does_not_speak() -> None:
    policy = Policy(
        rules=(
            Rule(name="t", effect="allow", reason="t", tools=frozenset({"other"})),
            Rule(name="s", effect="allow", reason="s", servers=frozenset({"other"})),
        )
    )
    assert said(authorize(request(tool="ping", server="x"), policy)) == ("deny", "default-deny")


@pytest.mark.requirement("C-20")
def test_a_trusted_server_is_allowed_whatever_it_is_asked() -> None:
    policy = Policy(rules=(), trusted_servers=frozenset({"mine"}))
    call = request(path("p", ("delete-path",), "/etc/x"), server="mine", annotated=False)
    assert said(authorize(call, policy)) == ("allow", "trusted-server")
    other = replace(call, server="other")
    assert said(authorize(other, policy)) == ("deny", "structural-unknown-tool")


def test_only_the_bare_question_for_the_directories_is_always_allowed() -> None:
    bare = request(tool="list_allowed_directories")
    policy = Policy(rules=())
    assert said(authorize(bare, policy)) == ("allow", "structural-introspection-allow")
    for other in (
        replace(bare, has_arguments=True),
        replace(bare, server="other"),
        replace(bare, annotated=False),
    ):
        assert isinstance(authorize(other, policy), Deny)
