"""One approval of a directory is of the tools of a server that do the same kind of thing to it."""

from collections.abc import Callable
from functools import partial

import pytest

from ironcurtain_proxy.model.annotation import ToolEffect
from ironcurtain_proxy.model.decision import HUMAN
from ironcurtain_proxy.model.escalation import Approved
from ironcurtain_proxy.model.operation import Operation
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.reply import Answered
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, Facts, PathValue
from ironcurtain_proxy.model.values import RealPath
from tests.fakes import FakeTools, Harness

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("X-12")]

ELSEWHERE = Rule(name="ask-elsewhere", effect="escalate", reason="Reading elsewhere.")
OF_SEARCH = Rule(
    name="ask-search", effect="escalate", reason="A search takes long.", tools=frozenset({"search"})
)
UNTIL = " until this session ends (server files)"
TOOLS = {name: ("files", name) for name in ("read", "list", "search")}


def reading(call: Operation, effect: ToolEffect | None = "reads") -> Facts:
    path = str(call.arguments["path"])
    value = PathValue(path, RealPath.from_text(path))
    return Facts(
        request=AccessRequest(
            server=call.server,
            tool=call.tool,
            annotated=True,
            has_arguments=True,
            effect=effect,
            arguments=(ArgumentFact("path", ("read-path",), (value,)),),
        ),
        arguments={"path": path},
    )


async def questions(
    *calls: tuple[str, str],
    rules: tuple[Rule, ...] = (ELSEWHERE,),
    read: Callable[[Operation], Facts] = reading,
) -> list[str]:
    """The words of what was offered in each question, where each is approved and remembered."""
    made = Harness(
        Policy(rules=rules, version="v1"), tools=FakeTools(known=TOOLS, like=("list", "search"))
    )
    made.facts.answer = read
    made.questions.ruling = Approved(by=HUMAN, remember=0)
    for tool, path in calls:
        reply = await made.mediator.handle(tool, {"arguments": {"path": path}})
        assert isinstance(reply, Answered), reply
    return [one.candidates[0].description for one in made.questions.asked]


async def test_a_directory_is_asked_about_once_for_all_tools_that_the_question_names() -> None:
    (asked,) = await questions(
        ("read", "/srv/app/a"), ("list", "/srv/app/b"), ("search", "/srv/app/c")
    )
    assert asked == "Let read, list and search read files below /srv/app" + UNTIL


async def test_where_nobody_said_what_the_tools_do_each_is_asked_about() -> None:
    """One with such a path may run what lies there, and its role would not say so."""
    calls = (("read", "/srv/app/a"), ("list", "/srv/app/b"), ("search", "/srv/app/c"))
    asked = await questions(*calls, read=partial(reading, effect=None))
    assert [one.split()[1] for one in asked] == ["read", "list", "search"]


async def test_another_directory_is_asked_about_again() -> None:
    asked = await questions(("read", "/srv/app/a"), ("search", "/srv/other/a"))
    assert len(asked) == 2


async def test_a_tool_about_which_the_policy_has_a_rule_of_its_own_is_asked_about_by_itself() -> (
    None
):
    first, second = await questions(
        *(("read", "/srv/app/a"), ("list", "/srv/app/b"), ("search", "/srv/app/c")),
        rules=(OF_SEARCH, ELSEWHERE),
    )
    assert first == "Let read and list read files below /srv/app" + UNTIL
    assert "search" in second
