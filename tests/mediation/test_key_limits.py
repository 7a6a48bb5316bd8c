"""A key approves, opens and remembers what `reviewers.json` lets it approve, and no more."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.model.decision import Signers
from ironcurtain_proxy.model.escalation import Declined, Escalation
from ironcurtain_proxy.model.grant import (
    CallPattern,
    CapabilityPattern,
    ExactValue,
    OnHost,
    Pattern,
    SandboxOpening,
    ToolPattern,
    WithinDirectory,
)
from ironcurtain_proxy.model.request import ArgumentFact, PathValue
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.signing import KeyFile
from tests.mediation.test_signatures import CLOCK, a_signed_question
from tests.questions import ETC
from tests.signed_answers import DIGEST, Team, signed


def on_paths(question: Escalation, *paths: str) -> Escalation:
    values = tuple(PathValue(one, RealPath.from_text(one)) for one in paths)
    fact = ArgumentFact("path", ("read-path",), values)
    return replace(question, request=replace(question.request, arguments=(fact,)))


LIMITED: dict[str, tuple[Callable[[Team], KeyFile], Escalation, str]] = {
    "risk": (
        lambda team: team.add("ada", risk="medium"),
        a_signed_question(risk="high"),
        "ada may approve up to medium risk, and this call is high",
    ),
    "server": (
        lambda team: team.add("ada", servers=frozenset({"git"})),
        a_signed_question(),
        'ada may not approve calls of the server "files"',
    ),
    "path": (
        lambda team: team.add("ada", paths=(RealPath.from_text("/srv"),)),
        on_paths(a_signed_question(), "/srv/a", "/etc/hosts"),
        "ada may not approve calls on /etc/hosts",
    ),
    "no path": (
        lambda team: team.add("ada", paths=(RealPath.from_text("/srv"),)),
        a_signed_question(),
        "ada may approve calls in some directories only, and this call names none",
    ),
    "ended": (
        lambda team: team.add("ada", until=CLOCK.now()),
        a_signed_question(),
        "ended on 2026-01-01",
    ),
    "role": (
        lambda team: team.add("ada", roles=frozenset({"lead"})),
        a_signed_question(1, "security"),
        "ada has none of the roles that the rule names",
    ),
    "requester": (
        lambda team: team.add("ada", accounts=frozenset({"ROOT"})),
        a_signed_question(2),
        "ada is whom the agent works for, and several must sign",
    ),
}


@pytest.mark.parametrize("kind", LIMITED)
def test_a_person_approves_no_more_than_the_file_says_and_may_deny_it(kind: str) -> None:
    add, question, why = LIMITED[kind]
    team = Team(CLOCK)
    key = add(team)
    judge = team.judge()
    said = judge.objection(question, DIGEST, signed(key, question))
    assert said.endswith(why)
    assert judge.weigh(question, DIGEST, [signed(key, question)]) is None
    denial = signed(key, question, approved=False)
    if kind == "ended":
        assert judge.objection(question, DIGEST, denial).endswith(why)
    else:
        assert judge.weigh(question, DIGEST, [denial]) == Declined(by=Signers(("ada",)))


HOME = RealPath.from_text("/srv/own")
OF_TOOL = {"server": "files", "tool": "read_file", "definition": "d1", "description": "more"}
IN_HOME = replace(ETC, constraints=(WithinDirectory("read-path", HOME),))
PATTERNS: dict[str, tuple[Pattern, set[str]]] = {
    "the directory": (IN_HOME, {"server", "path"}),
    "the same call": (CallPattern(**OF_TOOL, digest="e" * 64), {"server", "path"}),
    "a file itself": (
        replace(IN_HOME, constraints=(ExactValue("read-path", "/srv/own/f"),)),
        {"server", "path"},
    ),
    "the directory above": (
        replace(IN_HOME, constraints=(WithinDirectory("read-path", RealPath.from_text("/srv")),)),
        {"server"},
    ),
    "another tool above": (
        replace(
            IN_HOME,
            parts=(IN_HOME, replace(IN_HOME, constraints=(OnHost("fetch-url", "https://a.b"),))),
        ),
        {"server"},
    ),
    "a host, on any path": (
        replace(IN_HOME, constraints=(OnHost("fetch-url", "https://a.b"),)),
        {"server"},
    ),
    "the tool": (ToolPattern(**OF_TOOL), {"server"}),
    "the tool that nobody described": (CallPattern(**OF_TOOL, digest=None), {"server"}),
    "a capability": (CapabilityPattern(capability="net.egress", description="more"), set()),
}


@pytest.mark.parametrize("kind", PATTERNS)
def test_what_is_remembered_settles_no_call_that_its_author_may_not_approve(kind: str) -> None:
    pattern, may = PATTERNS[kind]
    team = Team(CLOCK)
    keys = {
        "server": team.add("bob", servers=frozenset({"files"})),
        "path": team.add("cy", paths=(HOME,)),
        "risk": team.add("di", risk="high"),
        "all": team.add("ada"),
    }
    # Its path is the directory itself, which a file may be, too.
    question = replace(on_paths(a_signed_question(), "/srv/own"), candidates=(pattern,))
    judge = team.judge()
    for name, key in keys.items():
        kept = signed(key, question, lambda one: replace(one, remember=0))
        why = judge.objection(question, DIGEST, kept)
        is_whole = name == "all" or (name == "risk" and kind != "a capability") or name in may
        assert why.startswith("it would remember more than") is not is_whole, name
        assert judge.objection(question, DIGEST, signed(key, question)) == ""


def test_a_key_for_some_directories_opens_no_others_in_a_sandbox() -> None:
    team = Team(CLOCK)
    key, question = team.add("cy", paths=(HOME,)), on_paths(a_signed_question(), "/srv/own/f")
    for place, why in (("/srv/own/g", ""), ("/srv/other", "cy may not approve calls on")):
        opening = SandboxOpening(paths=(RealPath.from_text(place),), hosts=("a.b",))
        opened = replace(question, opening=opening)
        assert team.judge().objection(opened, DIGEST, signed(key, opened)).startswith(why)
        assert bool(team.judge().objection(opened, DIGEST, signed(key, opened))) is bool(why)
