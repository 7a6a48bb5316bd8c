"""The kernel in-process decides as the proxy does."""

from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.errors import KernelError
from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.trusted_process import ToolCallRequest, TrustedProcess
from tests.e2e.installation import Installation, rule
from tests.e2e.raw_client import Message

pytestmark = pytest.mark.anyio


def furnish(installation: Installation) -> None:
    installation.add_scripted(
        "scripted",
        {"ask": {"text": ["write-path"]}, "echo": {"text": ["read-path"], "list": ["none"]}},
    )
    installation.rules = [
        rule("ask-first", "escalate", "a person must agree", tool=["ask"]),
        rule("srv", "allow", paths={"roles": ["read-path"], "within": "/srv"}),
    ]
    installation.write_policy()


@pytest.fixture
def furnished(tmp_path: Path) -> Installation:
    installation = Installation(tmp_path)
    furnish(installation)
    return installation


def comparable(record: Message) -> dict[str, Json]:
    kept = ("serverName", "toolName", "arguments", "policyDecision", "decidedBy", "origins")
    found: dict[str, Json] = {key: record[key] for key in kept if key in record}
    return {**found, "escalationResult": record.get("escalationResult")}


CALLS: list[tuple[str, dict[str, Json]]] = [
    ("echo", {"text": "/srv/a", "list": []}),
    ("echo", {"text": "/srv/../etc/passwd", "list": []}),
    ("echo", {"text": "notes", "list": []}),
    ("echo", {"text": 5, "list": []}),
    ("echo", {"text": "/srv/a", "list": [], "more": 1}),
    ("ask", {"text": "/srv/x"}),
    ("forbidden", {"text": "x"}),
    ("nonsense", {}),
]


@pytest.mark.requirement("C-16", "C-17", "C-18")
async def test_the_same_calls_get_the_same_decisions_as_through_the_proxy(tmp_path: Path) -> None:
    outside, inside = Installation(tmp_path / "proxy"), Installation(tmp_path / "process")
    for installation in (outside, inside):
        installation.workspace = outside.workspace
        furnish(installation)
    agent = outside.start()
    for name, arguments in CALLS:
        agent.answer(agent.start_call(name, dict(arguments)))
    outside.end()
    async with TrustedProcess(inside.environment()) as kernel:
        for name, arguments in CALLS:
            await kernel.handle_tool_call(
                ToolCallRequest(server="scripted", tool=name, arguments=arguments)
            )
    ours = [comparable(record) for record in inside.outcomes()]
    theirs = [comparable(record) for record in outside.outcomes()]
    # What nobody offers has no server in the proxy's record.
    assert len(ours) == len(theirs) == len(CALLS)
    assert ours == theirs


@pytest.mark.requirement("C-32")
async def test_a_callback_of_the_program_is_asked_and_its_answer_counts(
    furnished: Installation,
) -> None:
    asked: list[Escalation] = []

    async def on_escalation(escalation: Escalation) -> object:
        asked.append(escalation)
        return {"decision": "approved" if len(asked) == 1 else "denied"}

    request = ToolCallRequest(server="scripted", tool="ask", arguments={"text": "/srv/x"})
    async with TrustedProcess(furnished.environment(), on_escalation=on_escalation) as kernel:
        first = await kernel.handle_tool_call(request)
        second = await kernel.handle_tool_call(request)
    assert first.status == "success"
    assert second.status == "denied"
    assert second.rule == "ask-first"
    assert len(furnished.received()) == 1
    assert [record["decidedBy"] for record in furnished.outcomes()] == ["human", "human"]


async def test_outside_its_block_it_does_nothing(furnished: Installation) -> None:
    kernel = TrustedProcess(furnished.environment())
    with pytest.raises(KernelError):
        await kernel.handle_tool_call(ToolCallRequest(server="scripted", tool="echo"))


async def test_its_servers_end_with_its_block(furnished: Installation) -> None:
    async with TrustedProcess(furnished.environment()) as kernel:
        request = ToolCallRequest(
            server="scripted", tool="echo", arguments={"text": "/srv", "list": []}
        )
        answer = await kernel.handle_tool_call(request)
        assert answer.status == "success"
    furnished.end()
    assert orjson.loads(furnished.audit.read_bytes().splitlines()[-1])["seq"] == 2
