"""A person changes arguments and approves the changed call, which the policy judges anew."""

from collections.abc import Mapping
from typing import Final

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.agent.replies import notes_of, result_of
from ironcurtain_proxy.model.conditions import PathCondition
from ironcurtain_proxy.model.decision import HUMAN, Effect, Ground
from ironcurtain_proxy.model.escalation import Approved
from ironcurtain_proxy.model.operation import Operation
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.reply import Answered, Refused
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    Facts,
    PathValue,
    Unresolvable,
)
from ironcurtain_proxy.model.values import Json, RealPath
from tests.fakes import Harness
from tests.mediation.supervised_session import Aftermath

pytestmark = pytest.mark.anyio


def rule(name: str, effect: Effect, within: str) -> Rule:
    paths = PathCondition(roles=frozenset({"write-path"}), within=RealPath.from_text(within))
    return Rule(name=name, effect=effect, reason=f"so says {name}", paths=paths)


RULES: Final = (
    rule("closed", "deny", "/closed"),
    rule("open", "allow", "/open"),
    rule("other", "escalate", "/other"),
    rule("ask", "escalate", "/"),
)


def gathered(call: Operation) -> Facts | Unresolvable:
    text = call.arguments.get("path")
    if not isinstance(text, str):
        return Unresolvable(ground=Ground("schema", "path is no text"))
    value = PathValue(text, RealPath.from_text(text))
    fact = ArgumentFact("path", ("write-path",), (value,))
    request = AccessRequest(
        server=call.server, tool=call.tool, annotated=True, has_arguments=True, arguments=(fact,)
    )
    return Facts(request=request, arguments=call.arguments)


def session(changed: Mapping[str, Json]) -> Harness:
    made = Harness(Policy(rules=RULES, version="v"), aftermath=Aftermath())
    made.facts.answer = gathered
    made.questions.ruling = Approved(by=HUMAN, changed=changed)
    return made


async def call(made: Harness) -> Answered | Refused:
    arguments: dict[str, Json] = {"path": "/a", "text": "secret plan"}
    reply = await made.mediator.handle("read", {"arguments": arguments})
    assert isinstance(reply, Answered | Refused)
    return reply


@pytest.mark.parametrize(("path", "by"), [("/b", "ask"), ("/open/b", "open")])
async def test_the_changed_call_is_made_once_and_the_agent_reads_what_was_changed(
    path: str, by: str
) -> None:
    made = session({"path": path})
    reply = await call(made)
    (sent,) = made.servers.forwarded
    assert sent.arguments == {"path": path, "text": "secret plan"}
    assert len(made.questions.asked) == 1
    assert isinstance(reply, Answered)
    assert notes_of(reply)
    assert "Changed: path." in str(result_of(reply, "read"))
    outcome = made.recorder.records[-1]
    assert (outcome.rule, outcome.arguments) == (by, sent.arguments)
    (asked,) = made.questions.asked
    assert dict(outcome.context)["edited"] == {
        "by": "human",
        "escalationId": asked.id,
        "sha256": asked.fingerprint,
        "instead of": {"path": "/a"},
    }
    assert made.aftermath is not None
    assert made.aftermath == Aftermath([(asked.id, None)])


@pytest.mark.parametrize(
    ("changed", "why"),
    [({"path": "/closed/b"}, "so says closed"), ({"path": 7}, "path is no text")],
)
async def test_a_change_that_the_policy_denies_is_refused_and_nothing_is_sent(
    changed: Mapping[str, Json], why: str
) -> None:
    made = session(changed)
    reply = await call(made)
    assert isinstance(reply, Refused)
    assert (reply.by, reply.ground.rule) == ("declined", "ask")
    assert made.servers.forwarded == []
    assert why in made.recorder.records[-1].reason
    assert why not in str(result_of(reply, "read"))


async def test_what_the_person_was_not_shown_is_asked_about_with_the_changed_call() -> None:
    made = session({"path": "/other/b"})
    made.questions.on_ask = lambda: (
        setattr(made.questions, "ruling", Approved(by=HUMAN)) if made.questions.asked[1:] else None
    )
    assert isinstance(await call(made), Answered)
    first, second = made.questions.asked
    assert (first.ground.rule, second.ground.rule) == ("ask", "other")
    assert second.arguments["path"] == "/other/b"
    assert ("Changed by a reviewer", "path") in second.context
    assert made.aftermath == Aftermath([(first.id, None), (second.id, True)])


async def test_a_change_does_not_outlive_the_policy_whose_question_it_answered() -> None:
    made = session({"path": "/b"})
    newer = replace(made.policy, version="w")

    def once(tool: Operation) -> Facts | Unresolvable:
        if tool.arguments.get("path") == "/b":
            made.in_force.policy = newer
        return gathered(tool)

    made.facts.answer = once
    made.questions.on_ask = lambda: (
        setattr(made.questions, "ruling", Approved(by=HUMAN)) if made.questions.asked[1:] else None
    )
    assert isinstance(await call(made), Answered)
    assert [one.arguments["path"] for one in made.questions.asked] == ["/a", "/a"]
    assert [one.arguments["path"] for one in made.servers.forwarded] == ["/a"]
