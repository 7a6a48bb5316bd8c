"""What may change while a call waits for its answer, and what may not."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Final

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs
from msgspec.structs import replace

from ironcurtain_proxy.mailbox.adoption import subject_of
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.conditions import DomainCondition
from ironcurtain_proxy.model.decision import HUMAN, Effect
from ironcurtain_proxy.model.escalation import Approved
from ironcurtain_proxy.model.operation import Operation
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.reply import Answered, Refused, Reply
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    CommandPlace,
    Facts,
    FoundSecret,
    ParsedCommand,
    PathValue,
    SimpleCommand,
    SqlValue,
    TextValue,
    UrlValue,
    Value,
    lasting,
)
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.review.open_questions import _key
from tests.examples import examples
from tests.fakes import Harness

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("X-11")]

ROLE: Final[ArgumentRole] = "write-path"


class Dated(AccessRequest, frozen=True, kw_only=True):
    """A request with a fact that changes at midnight."""

    passing: ClassVar[frozenset[str]] = AccessRequest.passing | {"weekday"}
    weekday: str = ""


class OnDay(DomainCondition, frozen=True, kw_only=True):
    """A condition on that fact."""

    def holds(self, request: AccessRequest, _role: ArgumentRole | None) -> bool:
        return isinstance(request, Dated) and request.weekday in self.allowed


def path(text: str) -> PathValue:
    return PathValue(text, RealPath.from_text(text))


def facts(value: Value, weekday: str = "monday") -> Facts:
    return Facts(
        request=Dated(
            server="files",
            tool="read",
            annotated=True,
            has_arguments=True,
            arguments=(ArgumentFact("path", (ROLE,), (value,)),),
            weekday=weekday,
        ),
        arguments={"path": value.text},
    )


def rule(name: str, effect: Effect, *days: str) -> Rule:
    only = OnDay(roles=frozenset({ROLE}), allowed=frozenset(days)) if days else None
    return Rule(name=name, effect=effect, reason="so", domains=only)


class Wait(Struct):
    """A call that a person approves while something happens."""

    harness: Harness
    before: Facts
    after: Facts

    async def reply(self) -> Reply:
        now = [self.before]
        self.harness.facts.answer = lambda _: now[0]
        self.harness.questions.ruling = Approved(by=HUMAN)
        self.harness.questions.on_ask = lambda: now.__setitem__(0, self.after)
        return await self.harness.mediator.handle("read", {"arguments": {"path": "/out/a"}})

    async def goes(self) -> bool:
        reply = await self.reply()
        sent = self.harness.servers.forwarded
        if isinstance(reply, Answered):
            return len(sent) == 1
        assert isinstance(reply, Refused)
        assert (reply.ground.rule, sent) == ("changed-meanwhile", [])
        return False


ASK = Policy(rules=(rule("ask", "escalate"),), version="v")
OUT = path("/out/a")
MONDAY, TUESDAY = facts(OUT, "monday"), facts(OUT, "tuesday")


async def test_a_question_open_over_midnight_is_not_refused_for_a_day_that_no_rule_asks_for() -> (
    None
):
    assert await Wait(Harness(ASK), MONDAY, TUESDAY).goes()


@pytest.mark.parametrize(
    ("rules", "goes"),
    [
        ([rule("a", "escalate", "monday", "tuesday"), rule("b", "deny")], True),
        ([rule("a", "escalate", "monday"), rule("b", "deny")], False),
        ([rule("a", "escalate", "monday"), rule("b", "escalate")], False),
        ([rule("a", "escalate", "monday"), rule("b", "allow")], False),
        ([rule("a", "deny", "friday"), rule("b", "escalate")], True),
    ],
)
async def test_the_policy_has_to_answer_on_the_new_day_as_it_did_on_the_old_one(
    rules: list[Rule], goes: bool
) -> None:
    wait = Wait(Harness(Policy(rules=tuple(rules), version="v")), MONDAY, TUESDAY)
    assert await wait.goes() is goes


async def test_a_push_that_waited_over_midnight_is_judged_by_the_new_day() -> None:
    for days, goes in ((["monday", "tuesday"], True), (["monday"], False)):
        policy = Policy(rules=(rule("a", "allow", *days), rule("b", "deny")), version="v")
        harness = Harness(policy)
        answers = iter([MONDAY, TUESDAY])
        harness.facts.answer = lambda _, left=answers: replace(next(left), pushes=True)  # type: ignore[misc]
        await harness.mediator.handle("read", {"arguments": {"path": "/out/a"}})
        assert bool(harness.servers.forwarded) is goes


async def test_the_commit_that_is_pushed_is_a_part_of_the_question() -> None:
    """An answer that came late, or to an earlier proxy, is no answer about another commit."""
    subjects = set()
    for head in ("1" * 40, "2" * 40):
        harness = Harness(ASK)
        await Wait(harness, replace(MONDAY, head=head), replace(MONDAY, head=head)).reply()
        (asked,) = harness.questions.asked
        assert ("Commit", head) in asked.context
        subjects.add((subject_of(asked, "me"), _key(asked)))
    assert len({one for one, _ in subjects}) == len({key for _, key in subjects}) == 2


async def test_an_answer_to_an_earlier_proxy_is_none_without_the_sandbox_that_it_was_about() -> (
    None
):
    harness = Harness(ASK)
    await Wait(harness, MONDAY, MONDAY).reply()
    (asked,) = harness.questions.asked
    others = [replace(asked, sandboxed=not asked.sandboxed), replace(asked, held=not asked.held)]
    assert subject_of(asked, "me") == subject_of(replace(asked, told=("another",)), "me")
    assert subject_of(asked, "me") not in {subject_of(one, "me") for one in others}


async def test_a_question_shows_no_fact_that_passes() -> None:
    harness = Harness(ASK)
    await Wait(harness, MONDAY, TUESDAY).reply()
    (asked,) = harness.questions.asked
    assert isinstance(asked.request, Dated)
    assert asked.request.weekday == ""


def request(**values: object) -> Callable[[Facts], Facts]:
    return lambda old: replace(old, request=replace(old.request, **values))


def whole(**values: object) -> Callable[[Facts], Facts]:
    return lambda old: replace(old, **values)


def value(new: Value) -> Callable[[Facts], Facts]:
    return request(arguments=(ArgumentFact("path", (ROLE,), (new,)),))


CHANGES: Final = {
    "path": value(path("/out/b")),
    "link to another directory": value(replace(OUT, path=RealPath.from_text("/etc/a"))),
    "text of the path": value(replace(OUT, text="/out/./a")),
    "remote": value(UrlValue("origin", ("evil.example",))),
    "sql": value(SqlValue("drop", "destroys")),
    "kind of value": value(TextValue("/out/a")),
    "more values": request(arguments=(ArgumentFact("path", (ROLE,), (OUT, OUT)),)),
    "role": request(arguments=(ArgumentFact("path", ("read-path",), (OUT,)),)),
    "no argument": request(arguments=()),
    "server": request(server="other"),
    "tool": request(tool="other"),
    "annotated": request(annotated=False),
    "has_arguments": request(has_arguments=False),
    "undescribed": request(undescribed=("path",)),
    "repository of the request": request(repository=RealPath.from_text("/srv")),
    "effect": request(effect="destroys"),
    "method": request(method="resources/read"),
    "arguments": whole(arguments={"path": "/out/b"}),
    "repository": whole(repository=RealPath.from_text("/srv")),
    "branch": whole(branch="main"),
    "commit": whole(head="0" * 40),
    "pushes": whole(pushes=True),
    "context": whole(context=(("Working directory", "/srv"),)),
    "command": whole(command=ParsedCommand(commands=(SimpleCommand(),))),
    "directory": whole(place=CommandPlace(directory="/srv")),
    "links out": whole(place=CommandPlace(strays=("/w/link",))),
    "scripts": whole(place=CommandPlace(scripts=(("/w/a.sh", "0"),))),
    "secrets": whole(secrets=(FoundSecret("path", "private key"),)),
    "question of the client": whole(client_asks=True),
    "control place": whole(acts_by_itself=".envrc"),
}
"""What a call names, with another value of each."""

PASSING: Final = {
    "day": request(weekday="sunday"),
    "words of the server": whole(hints={"title": "another"}),
}


@settings(max_examples=examples(150))
@given(st.lists(st.sampled_from([*CHANGES, *PASSING]), max_size=4, unique=True))
def test_an_approval_outlives_what_passes_and_nothing_else(names: list[str]) -> None:
    after = MONDAY
    for name in names:
        after = {**CHANGES, **PASSING}[name](after)
    is_same = PASSING.keys() >= {*names}
    assert (lasting(after) == lasting(MONDAY)) is is_same
    assert anyio.run(Wait(Harness(ASK), MONDAY, after).goes) is is_same


def test_each_fact_passes_or_is_tried_as_one_that_does_not() -> None:
    """A new fact is marked, or it stands in the table above."""
    untried: set[str] = set()
    tried: set[str] = set()
    for change in CHANGES.values():
        after = change(MONDAY)
        for name, old, new in (
            ("Facts", MONDAY, after),
            ("AccessRequest", MONDAY.request, after.request),
        ):
            for field in structs.fields(Facts if name == "Facts" else AccessRequest):
                if field.name not in old.passing:
                    untried.add(f"{name}.{field.name}")
                if getattr(old, field.name) != getattr(new, field.name):
                    tried.add(f"{name}.{field.name}")
    assert untried - tried <= {"AccessRequest.question"}, "which a server asks, and no call"


async def test_another_policy_in_between_judges_the_call_again() -> None:
    for effect in ("deny", "escalate", "allow"):
        harness = Harness(ASK)
        new = Policy(rules=(rule("new", effect),), version="w")
        asked: list[Operation] = []

        def answer(call: Operation, seen: list[Operation] = asked) -> Facts:
            seen.append(call)
            return MONDAY

        harness.facts.answer = answer
        harness.questions.ruling = Approved(by=HUMAN)
        harness.questions.on_ask = partial(setattr, harness.in_force, "policy", new)
        await harness.mediator.handle("read", {"arguments": {"path": "/out/a"}})
        assert len(asked) > 1
        assert bool(harness.servers.forwarded) is (effect != "deny")
        assert {one.policy_version for one in harness.recorder.records} == {"w"}
