"""What a provider's answer comes to, over HTTP."""

from pathlib import Path

import orjson
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_approver import reviewer
from ironcurtain_proxy.auto_approver.reviewer import AutoApproverConfig, consult, create_model
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.llm.litellm_model import LitellmModel, LlmLog, Model
from ironcurtain_proxy.mailbox.session_state import UserMessage
from ironcurtain_proxy.model.escalation import Approved, Unreachable
from ironcurtain_proxy.wiring.reviewers import _auto_approver
from tests.auto_approver.test_reviewer import CONTEXT, PUSH, Session, local
from tests.fakes import FakeClock, NothingNew
from tests.llm.scripted_model import Step, says, scripted_model

pytestmark = [
    pytest.mark.worker("litellm"),
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # What litellm imports for Google's first question, and pydantic says of it.
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning"),
]

# --- over HTTP -----------------------------------------------------------------------------------


@pytest.mark.requirement("A-28", "A-61", "A-77", "A-82")
@pytest.mark.parametrize(
    ("provider", "address"),
    [("openai", "/chat/completions"), ("anthropic", "/messages"), ("google", ":generateContent")],
)
async def test_an_approval_is_an_approval(provider: str, address: str) -> None:
    with scripted_model(says("approve", "It was asked for.")) as server:
        async with local(server, provider) as model:
            result = (await consult(CONTEXT, model)).result
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
            result = (await consult(CONTEXT, model)).result
        assert result.decision == "escalate"
        assert result.reasoning
        assert len(server.requests) == 1, "nothing is retried"


async def test_a_closed_port_escalates() -> None:
    with scripted_model(Step()) as server:
        gone = server
    async with local(gone) as model:
        result = (await consult(CONTEXT, model)).result
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
            session.approver.config = replace(session.config, deadline_seconds=2.0)
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
            result = (await consult(CONTEXT, model)).result
    assert result.decision == "approve"
    assert "of-the-shell" not in repr(server.requests)


async def test_a_key_that_a_provider_repeats_does_not_end_up_in_a_log() -> None:
    body = b'{"error":{"message":"Incorrect API key provided: key-123","type":"x"}}'
    with scripted_model(Step(status=401, body=body)) as server:
        async with local(server) as model:
            result = (await consult(CONTEXT, model)).result
    assert result.decision == "escalate"
    assert "key-123" not in result.reasoning


@pytest.mark.requirement("A-63")
async def test_the_model_is_made_once_and_asked_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, loaded = [], []

    def create(config: AutoApproverConfig, key: str) -> Model | None:
        made.append(model := create_model(config, key))
        return model

    def load(model: LitellmModel) -> object:
        loaded.append(model)
        return real_load(model)

    real_load = LitellmModel._load
    monkeypatch.setattr(reviewer, "create_model", create)
    monkeypatch.setattr(LitellmModel, "_load", load)
    with scripted_model(says("approve")) as server:
        base = f"{server.url}/v1"
        file = tmp_path / "config.json"
        file.write_bytes(
            orjson.dumps(
                {"autoApprove": {"enabled": True, "modelId": "openai:local", "apiBase": base}}
            )
        )
        environ = {"HOME": str(tmp_path), "AUTO_APPROVE_API_KEY": "key-123"}
        settings = load_settings(environ, file)
        words = iter("123")
        approver = _auto_approver(
            settings, lambda: UserMessage(PUSH.message, next(words)), FakeClock(), environ
        )
        assert approver is not None
        approver.history = NothingNew()
        assert (len(made), loaded) == (1, []), "at the start, and without its library"
        for _ in range(3):
            await approver.ask(PUSH.escalation)
        await approver.model.aclose()
    assert (len(made), len(loaded), len(server.requests)) == (1, 1, 3)


@pytest.mark.requirement("A-65", "A-66", "A-64", "A-51")
async def test_the_log_has_question_answer_usage_and_time(tmp_path: Path) -> None:
    path = tmp_path / "s1" / "auto-approve-llm.jsonl"
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
