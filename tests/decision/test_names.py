"""Rules about the names of files: asked before the workspace settles anything."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.decision.authorizer import authorize, goes_by_name, prior_consent_of
from ironcurtain_proxy.decision.explanation import explain
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.conditions import ExceptingNames, NameCondition, PathCondition
from ironcurtain_proxy.model.decision import Effect
from ironcurtain_proxy.model.policy import Floor, Policy, Rule
from ironcurtain_proxy.model.request import ArgumentFact, PathValue, TextValue
from ironcurtain_proxy.model.values import RealPath
from tests.decision.test_authorizer import WORK, path, request, said, within
from tests.tables import table

READ: tuple[ArgumentRole, ...] = ("read-path",)


def names(
    *matching: str, unless: tuple[str, ...] = (), roles: tuple[ArgumentRole, ...] = READ
) -> NameCondition:
    return NameCondition(
        roles=frozenset(roles), matching=frozenset(matching), unless=frozenset(unless)
    )


def asks(*matching: str, effect: Effect = "escalate", unless: tuple[str, ...] = ()) -> Rule:
    return Rule(name="named", effect=effect, reason="named", names=names(*matching, unless=unless))


def read(*texts: str, server: str = "filesystem") -> tuple[str, str]:
    """What is decided of reading these, where a rule asks about `.env` and the like."""
    policy = Policy(
        rules=(
            asks(".env", "*.pem", unless=("public.pem",)),
            within("all", "allow", "read-path", "/"),
        ),
        workspace=WORK,
    )
    return said(authorize(request(path("paths", READ, *texts), server=server), policy))


@pytest.mark.parametrize(
    "text", ["/work/.env", "/work/deep/er/.ENV", "/work/a.pem", "/elsewhere/.env", "/.env"]
)
def test_what_has_such_a_name_is_asked_about_in_the_workspace_and_elsewhere(text: str) -> None:
    assert read(text) == ("escalate", "named")


@pytest.mark.parametrize(
    "text",
    ["/work/.env.example", "/work/my.env", "/work/.env/bin/x", "/work/pem", "/work/public.pem"],
)
def test_what_has_another_name_is_settled_by_the_workspace(text: str) -> None:
    assert read(text) == ("allow", "structural-sandbox-allow")


def test_one_such_name_among_others_is_enough() -> None:
    assert read("/work/a", "/work/.env", "/work/b") == ("escalate", "named")


def test_a_git_server_is_asked_too() -> None:
    assert read("/work/.env", server="git") == ("escalate", "named")


@pytest.mark.parametrize(
    ("pattern", "text", "holds"),
    table("decision/names.stars", list[tuple[str, str, bool]]),
)
def test_a_star_stands_for_any_part_of_one_name(pattern: str, text: str, holds: bool) -> None:
    assert names(pattern).covers(PathValue(text, RealPath.from_text(text))) is holds


def test_a_link_counts_by_its_own_name_and_by_the_name_of_what_it_leads_to() -> None:
    target = RealPath.from_text("/work/settings/production")
    value = PathValue(str(target), target, RealPath.from_text("/work/.env"))
    assert names(".env").covers(value)
    assert names("production").covers(value)
    assert not names("settings").covers(value)


def test_an_empty_list_describes_nothing_and_what_is_no_path_has_no_name() -> None:
    assert not names().covers(PathValue("/a", RealPath.from_text("/a")))
    assert not names(".env").covers(TextValue(".env"))


def test_an_allow_rule_answers_for_the_paths_that_it_describes_and_for_no_others() -> None:
    policy = Policy(rules=(asks("*.md", effect="allow"),))
    assert said(authorize(request(path("paths", READ, "/a/x.md")), policy)) == ("allow", "named")
    assert said(authorize(request(path("paths", READ, "/a/x.md", "/a/y")), policy)) == (
        "deny",
        "default-deny",
    )


def test_a_call_that_names_no_path_has_no_such_name() -> None:
    rule = Rule(
        name="named",
        effect="escalate",
        reason="named",
        names=names("*a"),
        paths=PathCondition(roles=frozenset(READ), within=RealPath(())),
    )
    for call in (request(path("paths", READ)), request(ArgumentFact("x", ("none",), ()))):
        assert said(authorize(call, Policy(rules=(rule,)))) == ("deny", "default-deny")


def test_a_rule_on_names_and_a_directory_speaks_of_what_is_both() -> None:
    inner = PathCondition(roles=frozenset(READ), within=RealPath.from_text("/work/in"))
    rule = Rule(name="both", effect="deny", reason="both", names=names(".env"), paths=inner)
    policy = Policy(rules=(rule,), workspace=WORK)
    assert said(authorize(request(path("p", READ, "/work/in/.env")), policy)) == ("deny", "both")
    assert authorize(request(path("p", READ, "/work/.env")), policy).ground.rule != "both"


def test_an_explanation_says_that_no_path_has_the_name_and_how_to_allow_one_that_has() -> None:
    policy = Policy(rules=(asks(".env"),), workspace=WORK)
    asked = explain(request(path("p", READ, "/work/.env")), policy)
    assert [trial.holds for trace in asked.roles for trial in trace.trials] == [True]
    (change,) = asked.change
    assert change.paths is not None
    assert str(change.paths.within) == "/work/.env"
    other = explain(request(path("p", READ, "/elsewhere")), policy)
    assert [t.why for trace in other.roles for t in trace.trials] == [
        "no path has a name that it is about"
    ]
    none = explain(request(path("p", READ)), policy)
    assert [t.why for trace in none.roles for t in trace.trials] == [
        "the call has no path that has a name that it is about"
    ]


def test_whoever_wrote_a_rule_about_names_had_the_role_before_their_eyes() -> None:
    policy = Policy(rules=(asks("*.md", effect="allow"),))
    call = request(path("p", READ, "/a/x.md"))
    assert prior_consent_of(call, policy, authorize(call, policy)).names_roles == {"read-path"}


def test_a_call_goes_by_name_where_a_rule_that_asks_describes_one_of_its_files() -> None:
    call = request(path("paths", READ, "/work/a.txt", "/work/.env"))
    other = request(path("paths", READ, "/work/a.txt"))
    writes = request(path("paths", ("write-path",), "/work/.env"))
    asking = Policy(rules=(asks(".env"),))
    layered = Policy(rules=(), floors=(Floor(rules=(asks(".env", effect="deny"),), asks=False),))
    for policy in (asking, layered):
        assert goes_by_name(call, policy)
        assert not goes_by_name(other, policy)
        assert not goes_by_name(writes, policy)
    assert not goes_by_name(call, Policy(rules=(asks(".env", effect="allow"), MOVE_ALL)))
    # A rule that asks about places describes no name.
    assert not goes_by_name(call, Policy(rules=(within("all", "escalate", "read-path", "/"),)))


def test_a_rule_on_names_names_their_role_and_no_other() -> None:
    allowed = Policy(rules=(asks(".env", effect="allow"),))
    reads = request(path("p", READ, "/etc/.env"))
    assert prior_consent_of(reads, allowed, authorize(reads, allowed)).names_roles == {"read-path"}


MOVE_ALL = within("all", "allow", "read-path", "/")


def test_a_rule_that_leaves_names_out_does_not_cover_them_and_says_so() -> None:
    leaves_out = ExceptingNames(roles=frozenset(READ), matching=frozenset({".env"}))
    open_all = replace(within("all", "allow", "read-path", "/"), excepting=leaves_out)
    policy = Policy(rules=(open_all, within("rest", "escalate", "read-path", "/")))
    plain, secret = (request(path("p", READ, text)) for text in ("/a/notes", "/a/.env"))
    assert said(authorize(plain, policy)) == ("allow", "all")
    assert said(authorize(secret, policy)) == ("escalate", "rest")
    (trace,) = explain(secret, policy).roles
    assert [(trial.rule, trial.holds) for trial in trace.trials] == [("all", False), ("rest", True)]
    assert trace.trials[0].why.startswith("leaves out files that usually hold secrets")
