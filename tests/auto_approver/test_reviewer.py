"""The auto-approver, over real HTTP through litellm against a scripted server."""

import inspect
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import anyio
import orjson
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_approver import reviewer
from ironcurtain_proxy.auto_approver.evaluation import AROUND, shipped_scenarios
from ironcurtain_proxy.auto_approver.intent import NO_MESSAGE, AutoApproveContext
from ironcurtain_proxy.auto_approver.reviewer import (
    AutoApprover,
    AutoApproverConfig,
    consult,
    create_model,
)
from ironcurtain_proxy.llm.litellm_model import Completion, LitellmModel, LlmLog
from ironcurtain_proxy.mailbox.session_state import UserMessage
from ironcurtain_proxy.model.decision import AUTO_APPROVER
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation, Ruling, Unreachable
from ironcurtain_proxy.model.request import PathValue
from ironcurtain_proxy.model.values import RealPath
from tests.fakes import FakeClock, NothingNew
from tests.llm.scripted_model import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SCENARIOS = {one.id: one for one in shipped_scenarios()}
PUSH = SCENARIOS["ask-01"]
READ = SCENARIOS["ask-02"]
CONTEXT = AutoApproveContext(
    user_message=PUSH.message, tool_name="git/git_push", escalation_reason="reason"
)


@dataclass
class ScriptedAnswers:
    """A model in memory."""

    decision: str = "approve"
    reasoning: str = "r"
    fault: Exception | None = None
    asked: list[str] = field(default_factory=list)

    async def complete(self, system: str, prompt: str) -> Completion:
        self.asked.append(prompt)
        await anyio.lowlevel.checkpoint()
        if self.fault is not None:
            raise self.fault
        answer = {"decision": self.decision, "reasoning": self.reasoning}
        return Completion(text=orjson.dumps(answer).decode())

    async def aclose(self) -> None:
        pass

    async def warm(self) -> None:
        if self.fault is not None:
            raise self.fault


@dataclass
class Session:
    """An auto-approver with a user who has said something."""

    model: ScriptedAnswers = field(default_factory=ScriptedAnswers)
    config: AutoApproverConfig = field(default_factory=lambda: AutoApproverConfig(enabled=True))
    said: UserMessage | None = field(default_factory=lambda: UserMessage(PUSH.message, "1"))
    clock: FakeClock = field(default_factory=FakeClock)
    log: LlmLog | None = None

    def __post_init__(self) -> None:
        self.approver = AutoApprover(
            model=self.model,
            config=self.config,
            message=lambda: self.said,
            around=AROUND,
            history=NothingNew(),
            clock=self.clock,
            log=self.log,
        )

    async def ask(self, escalation: Escalation = PUSH.escalation) -> Ruling:
        return await self.approver.ask(escalation)


@asynccontextmanager
async def local(model: ScriptedModel, provider: str = "openai") -> AsyncIterator[LitellmModel]:
    base = f"{model.url}/v1" if provider == "openai" else model.url
    config = AutoApproverConfig(enabled=True, model_id=f"{provider}:local", api_base=base)
    made = create_model(config, "key-123")
    assert isinstance(made, LitellmModel)
    try:
        yield made
    finally:
        await made.aclose()


# --- when it is asked ----------------------------------------------------------------------------


@pytest.mark.requirement("A-2", "A-21", "A-53")
async def test_what_the_user_asked_for_is_approved_in_its_own_name() -> None:
    ruling = await Session().ask()
    assert ruling == Approved(by=AUTO_APPROVER, reasoning="r")


@pytest.mark.requirement("A-3")
@pytest.mark.parametrize(
    ("message", "target_check"),
    [
        ("read the README from my Documents folder", False),
        ("read /home/u/Documents/README.md", True),
    ],
)
async def test_a_file_outside_the_workspace_that_was_asked_for_can_be_approved(
    message: str, target_check: bool
) -> None:
    """The folder's own words pass where the operator switched the target check off; with it the
    message has to hold the path."""
    config = AutoApproverConfig(enabled=True, target_check=target_check)
    session = Session(config=config, said=UserMessage(message, "1"))
    readme = "/home/u/Documents/README.md"
    wanted = next(iter(READ.escalation.request.arguments))
    fact = replace(wanted, values=(PathValue(readme, RealPath.from_text(readme)),))
    escalation = replace(
        READ.escalation,
        arguments={wanted.name: readme},
        request=replace(READ.escalation.request, arguments=(fact,)),
    )
    assert isinstance(await session.ask(escalation), Approved)
    passed_on = Session(config=config, said=UserMessage("what is in my Documents folder?", "1"))
    assert isinstance(await passed_on.ask(escalation), Approved) != target_check


@pytest.mark.requirement("A-27")
@pytest.mark.parametrize("decision", ["approve", "escalate"])
@pytest.mark.parametrize(
    "reasoning", ["", "escalate", "approve", '{"decision": "approve"}', "deny it", "no\n" * 1000]
)
async def test_what_the_model_says_beside_its_decision_changes_nothing(
    decision: str, reasoning: str
) -> None:
    ruling = await Session(model=ScriptedAnswers(decision, reasoning)).ask()
    assert isinstance(ruling, Approved) == (decision == "approve")
    assert isinstance(ruling, Approved | Unreachable)


async def test_a_defect_of_the_check_passes_the_question_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a call that the check cannot read would end without anybody being asked."""
    for name in ("operations_of", "veto"):
        with monkeypatch.context() as patched:
            patched.setattr(reviewer, name, lambda *_: 1 // 0)
            assert isinstance(await Session().ask(), Unreachable)


@pytest.mark.requirement("A-10")
async def test_the_same_question_has_the_same_answer_whatever_was_asked_before() -> None:
    model = ScriptedAnswers()
    other = AutoApproveContext(user_message="clean up", tool_name="a/b", escalation_reason="c")
    first = await consult(CONTEXT, model)
    model.fault = RuntimeError("down")
    for _ in range(30):
        assert (await consult(other, model)).result.decision == "escalate"
    model.fault = None
    assert await consult(CONTEXT, model) == first
    assert model.asked[0] == model.asked[-1]
    assert inspect.isfunction(consult), "no class, which could keep something"


@contextmanager
def untouched(session: Session) -> Iterator[None]:
    yield
    assert session.model.asked == []


@pytest.mark.requirement("A-20", "A-26", "A-1")
async def test_it_is_off_unless_switched_on() -> None:
    assert AutoApproverConfig().enabled is False
    session = Session(config=AutoApproverConfig())
    with untouched(session):
        assert await session.ask() == Unreachable()
    assert create_model(AutoApproverConfig(), "key") is None


@pytest.mark.requirement("A-54", "A-59")
async def test_without_a_message_nobody_is_asked() -> None:
    session = Session(said=None)
    with untouched(session):
        assert await session.ask() == Unreachable()


@pytest.mark.requirement("A-81")
@pytest.mark.parametrize("message", ["", "  \n\t"])
async def test_a_blank_message_escalates_without_a_question(message: str) -> None:
    model = ScriptedAnswers()
    result = (await consult(replace(CONTEXT, user_message=message), model)).result
    assert (result.decision, result.reasoning, model.asked) == ("escalate", NO_MESSAGE, [])


OWN = {
    "the proxy's server": {"server": "proxy", "tool": "add_proxy_domain"},
    "a tool of the proxy": {"tool": "ironcurtain_escalation_status"},
    "by its exposed name": {"exposed_name": "ironcurtain_x"},
}


@pytest.mark.parametrize("fields", OWN.values(), ids=OWN.keys())
async def test_the_proxys_own_tools_are_never_auto_approved(fields: dict[str, str]) -> None:
    """G13."""
    session = Session()
    with untouched(session):
        assert await session.ask(replace(PUSH.escalation, **fields)) == Unreachable()


async def test_what_a_person_has_just_denied_is_not_asked_again() -> None:
    session = Session()
    await session.approver.note_answer(PUSH.escalation, Declined())
    with untouched(session):
        assert await session.ask() == Unreachable()
        session.clock.seconds += 600
        assert await session.ask() == Unreachable(), "the user has said nothing new"
    session.said = UserMessage(PUSH.message, "2")
    session.clock.seconds += 600
    assert isinstance(await session.ask(), Approved)


async def test_another_call_may_still_be_approved_after_a_denial() -> None:
    session = Session()
    await session.approver.note_answer(replace(PUSH.escalation, fingerprint="another"), Declined())
    assert isinstance(await session.ask(), Approved)


# --- after the model's answer --------------------------------------------------------------------


@pytest.mark.parametrize(
    "scenario",
    [one for one in SCENARIOS.values() if one.label == "escalate" and one.message.strip()][::7],
    ids=lambda one: one.id,
)
async def test_a_model_that_approves_everything_is_held_by_the_target_check(
    scenario: object,
) -> None:
    one = next(s for s in SCENARIOS.values() if s is scenario)
    session = Session(said=UserMessage(one.message, "1"))
    assert await session.ask(one.escalation) == Unreachable()
    assert len(session.model.asked) == 1


async def test_without_the_target_check_every_record_says_so() -> None:
    config = AutoApproverConfig(enabled=True, target_check=False)
    session = Session(config=config, said=UserMessage("ship it", "1"))
    ruling = await session.ask()
    assert isinstance(ruling, Approved)
    assert ruling.reasoning.startswith("(target check off)")


async def test_one_message_approves_one_thing_once() -> None:
    session = Session()
    assert isinstance(await session.ask(), Approved)
    assert await session.ask() == Unreachable()
    assert await session.ask(replace(PUSH.escalation, fingerprint="other")) == Unreachable()
    session.said = UserMessage(PUSH.message, "2")
    assert isinstance(await session.ask(), Approved)


async def test_of_two_calls_at_once_one_is_approved() -> None:
    session = Session()
    rulings: list[Ruling] = []

    async def one() -> None:
        rulings.append(await session.ask())

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(one)
    assert sum(isinstance(ruling, Approved) for ruling in rulings) == 1


async def test_more_than_twenty_a_minute_are_not_approved() -> None:
    session = Session()

    async def approved() -> bool:
        session.said = UserMessage(
            PUSH.message, f"{len(session.model.asked)}-{session.clock.seconds}"
        )
        return isinstance(await session.ask(), Approved)

    assert [await approved() for _ in range(22)] == [True] * 20 + [False] * 2
    session.clock.seconds += 60
    assert await approved()


async def test_three_outages_in_a_row_switch_it_off_and_are_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = Session(model=ScriptedAnswers(fault=RuntimeError("down")))
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert await session.ask() == Unreachable()
    assert len(session.model.asked) == 3
    said = [one.getMessage() for one in caplog.records if "off for the rest" in one.getMessage()]
    assert len(said) == 1
    session.model.fault = None
    assert await session.ask() == Unreachable()


async def test_an_answer_between_two_outages_starts_the_count_anew() -> None:
    session = Session(model=ScriptedAnswers(fault=RuntimeError("down")))
    await session.ask()
    await session.ask()
    session.model.fault, session.model.decision = None, "escalate"
    await session.ask()
    session.model.fault, session.model.decision = RuntimeError("down"), "approve"
    await session.ask()
    await session.ask()
    session.model.fault = None
    assert isinstance(await session.ask(), Approved)


async def test_a_person_who_denies_what_it_would_have_approved_switches_it_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = Session(said=UserMessage("ship it", "1"))
    assert await session.ask() == Unreachable()
    await session.approver.note_answer(PUSH.escalation, Declined())
    session.said = UserMessage(READ.message, "2")
    assert await session.ask(READ.escalation) == Unreachable()
    assert "a person denied" in caplog.text


@pytest.mark.requirement("A-12")
async def test_an_escalation_that_is_over_is_not_asked_about_for_long() -> None:
    late = replace(PUSH.escalation, deadline=PUSH.escalation.created - timedelta(1))
    assert await Session().ask(late) == Unreachable()


@pytest.mark.requirement("A-97")
async def test_a_model_that_cannot_be_loaded_stops_nothing() -> None:
    session = Session(model=ScriptedAnswers(fault=ImportError("no litellm")))
    await session.approver.warm()
    assert await session.ask() == Unreachable()
