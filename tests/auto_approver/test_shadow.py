"""The auto-approver beside a person: recorded, compared, limited to tools, sure enough."""

from dataclasses import dataclass, field
from pathlib import Path

import anyio
import orjson
import pytest

from ironcurtain_proxy.auto_approver.evaluation import AROUND, shipped_scenarios
from ironcurtain_proxy.auto_approver.reviewer import AutoApprover, AutoApproverConfig
from ironcurtain_proxy.cli import main
from ironcurtain_proxy.llm.litellm_model import Completion
from ironcurtain_proxy.mailbox.session_state import UserMessage
from ironcurtain_proxy.model.decision import AUTO_APPROVER
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation, Ruling, Unreachable
from ironcurtain_proxy.review.terminal import Channel, Panel
from tests.fakes import FakeClock, NothingNew

pytestmark = pytest.mark.anyio

PUSH = {one.id: one for one in shipped_scenarios()}["ask-01"]


@dataclass
class Model:
    """A model in memory, which says how sure it is when it is asked to."""

    confidence: float | None = None
    wait: anyio.Event | None = None
    asked: list[str] = field(default_factory=list)

    async def complete(self, system: str, prompt: str) -> Completion:
        self.asked.append(prompt)
        if self.wait is not None:
            await self.wait.wait()
        answer: dict[str, object] = {"decision": "approve", "reasoning": "r"}
        if self.confidence is not None and "confidence" in system:
            answer["confidence"] = self.confidence
        return Completion(text=orjson.dumps(answer).decode())

    async def aclose(self) -> None:
        pass

    async def warm(self) -> None:
        pass


@dataclass
class Person:
    """A reviewer with one answer."""

    answer: Ruling
    before: anyio.Event | None = None
    asked: int = 0

    async def ask(self, _escalation: Escalation) -> Ruling:
        self.asked += 1
        if self.before is not None:
            await self.before.wait()
        return self.answer


def approver(
    config: AutoApproverConfig, model: Model | None = None, said: list[str] | None = None
) -> AutoApprover:
    texts = said or [PUSH.message]
    turns = iter([UserMessage(text, str(n)) for n, text in enumerate(texts)])
    last = UserMessage(texts[-1], str(len(texts) - 1))
    return AutoApprover(
        model=model or Model(),
        config=config,
        message=lambda: next(turns, last),
        around=AROUND,
        history=NothingNew(),
        clock=FakeClock(),
    )


# --- shadow --------------------------------------------------------------------------------------


@pytest.mark.requirement("A-95")
@pytest.mark.parametrize("answer", [Approved(), Declined()])
async def test_in_shadow_a_person_decides_and_the_record_has_both(answer: Ruling) -> None:
    model, thought = Model(), anyio.Event()
    first = approver(AutoApproverConfig(enabled=True, shadow=True), model)

    class Noted:
        async def ask(self, escalation: Escalation) -> Ruling:
            try:
                return await first.ask(escalation)
            finally:
                thought.set()

        async def note_answer(self, escalation: Escalation, ruling: Ruling) -> None:
            await first.note_answer(escalation, ruling)

    person = Person(answer, before=thought)
    panel = Panel([Channel(person, lambda: True, name="mailbox")], Noted(), shadow=True)
    ruling = await panel.ask(PUSH.escalation)
    assert type(ruling) is type(answer)
    details = dict(ruling.details)
    said = details["autoApprover"]
    assert isinstance(said, dict)
    assert (said["said"], said["objection"]) == ("approve", "shadow: recorded, not used")
    assert (details["channel"], person.asked) == ("mailbox", 1)


async def test_in_shadow_a_person_does_not_wait_for_the_model() -> None:
    model = Model(wait=anyio.Event())
    first = approver(AutoApproverConfig(enabled=True, shadow=True), model)
    panel = Panel([Channel(Person(Approved()), lambda: True)], first, shadow=True)
    ruling = await panel.ask(PUSH.escalation)
    assert isinstance(ruling, Approved)
    assert dict(ruling.details) == {}


async def test_in_shadow_an_approval_of_the_first_reviewer_is_never_used() -> None:
    class Eager:
        async def ask(self, _escalation: Escalation) -> Ruling:
            return Approved(by=AUTO_APPROVER)

        async def note_answer(self, _escalation: Escalation, _ruling: Ruling) -> None:
            pass

    panel = Panel([Channel(Person(Declined()), lambda: True)], Eager(), shadow=True)
    assert isinstance(await panel.ask(PUSH.escalation), Declined)


# --- rules for single tools, threshold -----------------------------------------------------------


@pytest.mark.requirement("A-93")
@pytest.mark.parametrize(
    ("config", "asked"),
    [
        (AutoApproverConfig(enabled=True), True),
        (AutoApproverConfig(enabled=True, only=("git/*",)), True),
        (AutoApproverConfig(enabled=True, only=("filesystem/read_*",)), False),
        (AutoApproverConfig(enabled=True, never=("*/git_push",)), False),
        (AutoApproverConfig(enabled=True, only=("git/*",), never=("git/git_p*",)), False),
    ],
)
async def test_only_the_tools_that_the_operator_names_are_approved(
    config: AutoApproverConfig, *, asked: bool
) -> None:
    model = Model()
    ruling = await approver(config, model).ask(PUSH.escalation)
    assert isinstance(ruling, Approved) is asked
    assert bool(model.asked) is asked


@pytest.mark.requirement("A-94")
@pytest.mark.parametrize(
    ("confidence", "approved"), [(None, False), (0.0, False), (0.79, False), (0.8, True), (1, True)]
)
async def test_an_approval_below_the_threshold_goes_to_a_person(
    confidence: float | None, *, approved: bool
) -> None:
    config = AutoApproverConfig(enabled=True, confidence=0.8)
    ruling = await approver(config, Model(confidence)).ask(PUSH.escalation)
    assert isinstance(ruling, Approved) is approved


# --- the last few messages -----------------------------------------------------------------------

OLDER = {
    "a courtesy": (["thanks"], True),
    "another request": (["read ~/notes.txt"], True),
    "a retraction": (["actually, wait"], False),
    "something not understood": (["the tests are red"], False),
    "the same operation elsewhere": (["push to backup"], False),
    "too long ago": (["thanks", "thanks", "ok"], False),
}


@pytest.mark.requirement("A-92")
@pytest.mark.parametrize("case", OLDER)
async def test_an_older_message_counts_while_nothing_takes_it_back(case: str) -> None:
    later, approved = OLDER[case]
    said = [PUSH.message, *later]
    first = approver(AutoApproverConfig(enabled=True, messages=3), said=said)
    other = {one.id: one for one in shipped_scenarios()}["ask-02"].escalation
    for _ in said[:-1]:
        assert isinstance(await first.ask(other), Unreachable | Approved)
    assert isinstance(await first.ask(PUSH.escalation), Approved) is approved


@pytest.mark.requirement("A-92")
async def test_by_default_the_newest_message_counts_alone() -> None:
    other = {one.id: one for one in shipped_scenarios()}["ask-02"].escalation
    first = approver(AutoApproverConfig(enabled=True), said=[PUSH.message, "thanks"])
    await first.ask(other)
    assert isinstance(await first.ask(PUSH.escalation), Unreachable)


# --- compare -------------------------------------------------------------------------------------


def line(tool: str, said: str, result: str, **more: object) -> dict[str, object]:
    return {
        "serverName": "git", "toolName": tool, "decidedBy": "human", "escalationResult": result,
        "autoApprover": {"said": said, "reasoning": "r", "objection": "shadow: recorded, not used"},
        "policyDecision": {"status": "allow"}, **more,
    }  # fmt: skip


@pytest.mark.requirement("A-95")
def test_compare_counts_by_tool_where_people_and_the_model_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objected = {"said": "approve", "reasoning": "r", "objection": "the message asks twice"}
    log = tmp_path / "audit.jsonl"
    lines = [
        line("git_push", "approve", "approved"),
        line("git_push", "approve", "denied"),
        line("git_push", "escalate", "approved"),
        line("git_push", "approve", "approved", phase="intent"),
        line("git_push", "approve", "approved", decidedBy="auto-approver"),
        line("git_pull", "escalate", "denied"),
        line("git_pull", "approve", "approved", autoApprover=objected),
        {"serverName": "git", "toolName": "git_log"},
    ]
    log.write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in lines) + b"{torn")
    assert main(["auto-approve", "compare", "--log", str(log), "--json"]) == 0
    tools = orjson.loads(capsys.readouterr().out)["tools"]
    assert tools == {
        "git/git_pull": {"calls": 2, "agreed": 1, "wrong": 0, "spared": 0, "asked": 1},
        "git/git_push": {"calls": 3, "agreed": 1, "wrong": 1, "spared": 1, "asked": 1},
    }
    assert main(["auto-approve", "compare", "--log", str(log)]) == 0
    assert "git/git_push" in capsys.readouterr().out


@pytest.mark.requirement("A-95")
def test_compare_tells_kinds_of_shell_commands_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "audit.jsonl"
    commands = [
        ("git push origin x", "approve", "approved"),
        ("git push -f origin y", "approve", "denied"),
        ("cat notes | head", "escalate", "approved"),
        ("npm ci && git push", "escalate", "denied"),
        ("if then", "escalate", "denied"),
    ]
    lines = [
        line("run", said, result, serverName="box", arguments={"command": command})
        for command, said, result in commands
    ]
    log.write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in lines))
    assert main(["auto-approve", "compare", "--log", str(log), "--json"]) == 0
    tool = orjson.loads(capsys.readouterr().out)["tools"]["box/run"]
    assert tool["calls"] == 5
    assert {kind: (one["calls"], one["wrong"]) for kind, one in tool["commands"].items()} == {
        "a command that cannot be read": (1, 0),
        "a command that only reads": (1, 0),
        "git push": (2, 1),
        "npm ci && git push": (1, 0),
    }
    assert main(["auto-approve", "compare", "--log", str(log)]) == 0
    assert "  git push  " in capsys.readouterr().out


def test_compare_shows_no_escape_sequence_of_an_agent_or_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "audit.jsonl"
    command = {"command": "'/opt/\x1b[2Jtool' x"}
    entry = line("\x1b[31mrun", "approve", "approved", serverName="box", arguments=command)
    log.write_bytes(orjson.dumps(entry) + b"\n")
    assert main(["auto-approve", "compare", "--log", str(log)]) == 0
    shown = capsys.readouterr().out
    assert "box/\\x1b[31mrun" in shown
    assert "\x1b" not in shown


def test_compare_says_what_to_switch_on_where_nothing_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "audit.jsonl"
    assert main(["auto-approve", "compare", "--log", str(log)]) == 2
    assert "there is no audit log" in capsys.readouterr().err
    log.write_bytes(b"")
    assert main(["auto-approve", "compare", "--log", str(log)]) == 0
    assert "autoApprove.shadow" in capsys.readouterr().out
