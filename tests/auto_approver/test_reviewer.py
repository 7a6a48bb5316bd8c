"""The auto-approver, over real HTTP through litellm against a scripted server."""

import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import anyio
import orjson
import pytest

from ironcurtain_proxy.auto_approver.intent import (
    ANSWER_SCHEMA,
    INVALID,
    NO_MESSAGE,
    AutoApproveContext,
)
from ironcurtain_proxy.auto_approver.reviewer import (
    AutoApprover,
    AutoApproverConfig,
    auto_approve,
    create_model,
)
from ironcurtain_proxy.auto_approver.scenarios import AROUND, shipped_scenarios
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.llm.litellm_model import Completion, LitellmModel, ModelId, parse_model_id
from ironcurtain_proxy.llm.log import LlmLog, session_llm_log_path
from ironcurtain_proxy.mailbox.user_message import UserMessage
from ironcurtain_proxy.model.escalation import Approved, Escalation, Ruling, Unreachable
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import PathValue
from tests.fakes import FakeClock
from tests.llm.scripted_model import ScriptedModel, Step, says, scripted_model

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
    listens: bool = True
    clock: FakeClock = field(default_factory=FakeClock)
    log: LlmLog | None = None

    def __post_init__(self) -> None:
        self.approver = AutoApprover(
            model=self.model,
            config=self.config,
            message=lambda: self.said,
            around=AROUND,
            clock=self.clock,
            log=self.log,
            reviewer_is_there=lambda: self.listens,
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


# --- over HTTP -----------------------------------------------------------------------------------


@pytest.mark.requirement("A-28", "A-61", "A-77", "A-82")
@pytest.mark.parametrize(
    ("provider", "address"),
    [("openai", "/chat/completions"), ("anthropic", "/messages"), ("google", ":generateContent")],
)
async def test_an_approval_is_an_approval(provider: str, address: str) -> None:
    with scripted_model(says("approve", "It was asked for.")) as server:
        async with local(server, provider) as model:
            result = await auto_approve(CONTEXT, model)
    assert (result.decision, result.reasoning) == ("approve", "It was asked for.")
    ((path, headers, _),) = server.requests
    assert path.partition("?")[0].endswith(address)
    assert "key-123" in f"{headers} {path}"


ESCALATING = {
    "escalate": says("escalate"),
    "deny": says("deny"),
    "prose": Step("I would approve this."),
    "no content": Step(None),
    "empty content": Step(""),
    "cut off": Step('{"decision":"approve","reas'),
    "cut off where it happens to parse": replace(says("approve"), finish="length"),
    "filtered": replace(says("approve"), finish="content_filter"),
    "an empty reply": Step(body=b""),
    "a reply that is no JSON": Step(body=b"<html>"),
    "a reply of another shape": Step(body=b'{"decision":"approve","reasoning":"r"}'),
    "no choices": Step(body=b'{"choices":[]}'),
    "null choices": Step(body=b'{"choices":null}'),
    "a list": Step(body=b"[]"),
    "500": Step(status=500),
    "429": Step(status=429),
    "401": Step(status=401),
    "a redirect": Step(status=307, headers={"location": "http://127.0.0.1:9/v1"}),
    "a closed connection": Step(closes=True),
    "a huge answer": Step("x" * 2_000_000),
    "a huge approval": Step('{"decision":"approve","reasoning":"' + "x" * 2_000_000 + '"}'),
    "a compressed answer": replace(says("approve"), headers={"content-encoding": "gzip"}),
}


@pytest.mark.requirement("A-16", "A-69", "A-70", "A-78", "A-79", "A-80")
@pytest.mark.parametrize("step", ESCALATING.values(), ids=ESCALATING.keys())
async def test_every_other_answer_escalates(step: Step) -> None:
    with scripted_model(step) as server:
        async with local(server) as model:
            result = await auto_approve(CONTEXT, model)
        assert result.decision == "escalate"
        assert result.reasoning
        assert len(server.requests) == 1, "nothing is retried"


async def test_a_closed_port_escalates() -> None:
    with scripted_model(Step()) as server:
        gone = server
    async with local(gone) as model:
        result = await auto_approve(CONTEXT, model)
    assert result.decision == "escalate"
    assert result.reasoning.startswith("Auto-approver error: ")
    assert result.reasoning.endswith("; escalating to human")


@pytest.mark.requirement("A-17")
@pytest.mark.parametrize("step", [Step(hangs=True), Step(drips=True)], ids=["hang", "slow drip"])
async def test_a_model_that_does_not_get_done_is_given_up(step: Step) -> None:
    """G35."""
    with scripted_model(step) as server:
        async with local(server) as model:
            await model.warm()
            session = Session()
            session.approver.model = model
            session.approver.config = replace(session.config, deadline_seconds=0.3)
            with anyio.fail_after(20):
                assert await session.ask() == Unreachable()


@pytest.mark.requirement("A-22", "A-67", "A-23", "A-60", "A-52", "A-74")
async def test_the_model_sees_the_message_the_tool_and_the_reason_and_no_argument(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/of-the-shell")
    marker = "MARKER-4711"
    call = replace(PUSH.escalation, arguments={**PUSH.escalation.arguments, "note": marker})
    with scripted_model(says("approve")) as server:
        session = Session()
        async with local(server) as model:
            session.approver.model = model
            await session.ask(call)
        [(path, headers, body)] = server.requests
    assert path == "/v1/chat/completions"
    assert {k.lower(): v for k, v in headers.items()}["authorization"] == "Bearer key-123"
    messages = body["messages"]
    assert isinstance(messages, list)
    assert messages[1]["content"].startswith(
        f'Human\'s most recent message: "{PUSH.message}"\n\nEscalated tool: git/git_push\n'
    )
    assert marker not in server.prompts()[0]
    assert PUSH.escalation.ground.reason in messages[1]["content"]


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_a_server_of_ones_own_is_not_sent_the_key_of_the_shell(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "of-the-shell")
    with scripted_model(says("approve")) as server:
        async with local(server, provider) as model:
            model.api_key = ""
            result = await auto_approve(CONTEXT, model)
    assert result.decision == "approve"
    assert "of-the-shell" not in repr(server.requests)


async def test_a_key_that_a_provider_repeats_does_not_end_up_in_a_log() -> None:
    body = b'{"error":{"message":"Incorrect API key provided: key-123","type":"x"}}'
    with scripted_model(Step(status=401, body=body)) as server:
        async with local(server) as model:
            result = await auto_approve(CONTEXT, model)
    assert result.decision == "escalate"
    assert "key-123" not in result.reasoning


@pytest.mark.requirement("A-65", "A-66", "A-64", "A-51")
async def test_the_log_has_question_answer_usage_and_time(tmp_path: Path) -> None:
    path = session_llm_log_path(tmp_path, "s1")
    with scripted_model(says("approve", "asked")) as server:
        session = Session(log=LlmLog(path))
        async with local(server) as model:
            session.approver.model = model
            assert isinstance(await session.ask(), Approved)
    [entry] = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    assert path == tmp_path / "s1" / "auto-approve-llm.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600
    assert entry["step"] == "auto-approve"
    assert entry["prompt"] == {
        "userMessage": PUSH.message,
        "toolName": "git/git_push",
        "escalationReason": PUSH.escalation.ground.reason,
    }
    assert entry["decision"] == "approve"
    assert orjson.loads(entry["response"])["reasoning"] == "asked"
    assert entry["usage"] == {"inputTokens": 7, "outputTokens": 3}
    assert entry["durationMs"] >= 0


# --- when it is asked ----------------------------------------------------------------------------


@pytest.mark.requirement("A-2", "A-21", "A-53")
async def test_what_the_user_asked_for_is_approved_in_its_own_name() -> None:
    ruling = await Session().ask()
    assert ruling == Approved(by="auto-approver", reasoning="r")


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


@pytest.mark.requirement("A-10")
async def test_the_same_question_has_the_same_answer_whatever_was_asked_before() -> None:
    model = ScriptedAnswers()
    other = AutoApproveContext(user_message="clean up", tool_name="a/b", escalation_reason="c")
    first = await auto_approve(CONTEXT, model)
    model.fault = RuntimeError("down")
    for _ in range(30):
        assert (await auto_approve(other, model)).decision == "escalate"
    model.fault = None
    assert await auto_approve(CONTEXT, model) == first
    assert model.asked[0] == model.asked[-1]


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
    result = await auto_approve(replace(CONTEXT, user_message=message), model)
    assert (result.decision, result.reasoning, model.asked) == ("escalate", NO_MESSAGE, [])


@pytest.mark.requirement("A-55")
async def test_in_single_shot_it_is_not_asked() -> None:
    session = Session(listens=False)
    with untouched(session):
        assert await session.ask() == Unreachable()


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
        assert await session.ask(replace(PUSH.escalation, **fields)) == Unreachable()  # type: ignore[arg-type]


async def test_what_a_person_has_just_denied_is_not_asked_again() -> None:
    session = Session()
    session.approver.note_denied_by_person(PUSH.escalation.fingerprint)
    with untouched(session):
        assert await session.ask() == Unreachable()
        session.clock.seconds += 600
        assert await session.ask() == Unreachable(), "the user has said nothing new"
    session.said = UserMessage(PUSH.message, "2")
    session.clock.seconds += 600
    assert isinstance(await session.ask(), Approved)


async def test_another_call_may_still_be_approved_after_a_denial() -> None:
    session = Session()
    session.approver.note_denied_by_person("another")
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
    session.approver.note_denied_by_person(PUSH.escalation.fingerprint)
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


# --- the model's name, the log, the import -------------------------------------------------------


@pytest.mark.requirement("A-14", "A-30", "A-49", "A-61")
def test_a_model_is_named_by_provider_and_model() -> None:
    assert parse_model_id("anthropic:claude-haiku-4-5") == ModelId("anthropic", "claude-haiku-4-5")
    assert parse_model_id("openai:org/model:tag") == ModelId("openai", "org/model:tag")
    assert AutoApproverConfig().model_id == "anthropic:claude-haiku-4-5"


@pytest.mark.requirement("A-85")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "claude",
        "anthropic:",
        ":x",
        "acme:x",
        "anthropic: ",
        "openai:a\nb",
        "openai:" + "x" * 300,
    ],
)
def test_another_name_is_an_error_of_configuration(text: str) -> None:
    with pytest.raises(ConfigurationError, match="provider:model"):
        create_model(AutoApproverConfig(model_id=text), "")


def test_the_key_is_in_no_representation() -> None:
    assert "s3cret" not in repr(
        LitellmModel(answer_schema=ANSWER_SCHEMA, model_id=ModelId("openai", "x"), api_key="s3cret")
    )


async def test_a_log_that_cannot_be_written_is_said_once_and_matters_to_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    real = tmp_path / "real"
    real.touch()
    link = tmp_path / "link"
    link.symlink_to(real)
    session = Session(log=LlmLog(link))
    assert isinstance(await session.ask(), Approved)
    session.said = UserMessage(PUSH.message, "2")
    assert isinstance(await session.ask(), Approved)
    assert real.read_bytes() == b""
    assert sum("not logged" in one.getMessage() for one in caplog.records) == 1


async def test_a_pipe_in_the_place_of_the_log_holds_nothing_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with anyio.fail_after(10):
        assert isinstance(await Session(log=LlmLog(tmp_path / "pipe")).ask(), Approved)


BARE = """
import sys
import ironcurtain_proxy.cli.auto_approve, ironcurtain_proxy.wiring, ironcurtain_proxy.cli.serve
from ironcurtain_proxy.auto_approver.reviewer import AutoApproverConfig, create_model
create_model(AutoApproverConfig(enabled=True), "key")
print(sorted(name for name in ("litellm", "openai", "httpx") if name in sys.modules))
"""


def test_nothing_imports_the_model_library_before_a_model_is_asked() -> None:
    found = subprocess.run(
        [sys.executable, "-c", BARE], capture_output=True, text=True, check=True, timeout=50
    )
    assert "litellm" not in found.stdout
    assert "openai" not in found.stdout


QUIET = """
import os, sys
os.chdir(sys.argv[1])
reached = []
def hook(event, args):
    if event in ("socket.connect", "socket.getaddrinfo"):
        reached.append((event, str(args[-1] if event == "socket.connect" else args[0])))
sys.addaudithook(hook)
import anyio
from ironcurtain_proxy.auto_approver.reviewer import AutoApproverConfig, create_model
anyio.run(create_model(AutoApproverConfig(enabled=True), "key").warm)
print(reached, os.environ.get("PLANTED"), "litellm" in sys.modules)
"""


def test_loading_the_library_reaches_for_no_network_and_no_env_file(tmp_path: Path) -> None:
    """The workspace may be the working directory, and the agent may write there."""
    (tmp_path / ".env").write_text("PLANTED=by-the-agent\nOPENAI_BASE_URL=http://evil.example\n")
    environ = {k: v for k, v in os.environ.items() if not k.startswith("LITELLM")}
    found = subprocess.run(
        [sys.executable, "-c", QUIET, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=55,
        env={**environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert found.stdout.splitlines()[-1] == "[] None True"


def test_the_word_for_no_answer_is_that_of_the_document() -> None:
    assert INVALID.endswith("escalating to human")


@pytest.mark.requirement("A-87", "A-88")
@pytest.mark.skipif(
    os.environ.get("INTEGRATION_TEST") != "true",
    reason="asks a real model: INTEGRATION_TEST=true, AUTO_APPROVE_MODEL_ID, AUTO_APPROVE_API_KEY",
)
async def test_a_live_model_decides_the_twenty_scenarios_rightly() -> None:
    lines = (
        Path(__file__).parents[2] / "ironcurtain_proxy/auto_approver/shipped/intents.jsonl"
    ).read_bytes()
    twenty = [one["id"] for one in map(orjson.loads, lines.splitlines()) if "kind" in one]
    assert len(twenty) >= 20
    config = AutoApproverConfig(
        enabled=True,
        model_id=os.environ.get("AUTO_APPROVE_MODEL_ID", AutoApproverConfig().model_id),
        api_base=os.environ.get("AUTO_APPROVE_API_BASE"),
    )
    model = create_model(config, os.environ.get("AUTO_APPROVE_API_KEY", ""))
    assert model is not None
    wrong = []
    for one in (SCENARIOS[name] for name in twenty):
        context = AutoApproveContext(
            user_message=one.message,
            tool_name=f"{one.escalation.server}/{one.escalation.tool}",
            escalation_reason=one.escalation.ground.reason,
        )
        # What hangs on arguments the model is not shown: the target check decides that.
        result = await auto_approve(context, model)
        if result.decision != one.label and one.category != "other target":
            wrong.append((one.id, result))
    assert wrong == []
