"""The kernel in-process decides as the proxy does."""

from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import AgentError, ConfigurationError, KernelError
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.trusted_process import ToolCallRequest, TrustedProcess
from tests.e2e.installation import Installation, rule
from tests.e2e.raw_client import Message
from tests.tables import table

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


CALLS: list[tuple[str, dict[str, Json]]] = table(
    "trusted_process.calls", list[tuple[str, dict[str, Json]]]
)


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
    assert {one["door"] for one in outside.outcomes()} == {"mcp"}
    assert {one["door"] for one in inside.outcomes()} == {"process"}
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


async def test_a_caller_lists_the_tools_and_calls_one_by_its_name(furnished: Installation) -> None:
    async with TrustedProcess(Settings.from_environment(furnished.environment())) as kernel:
        tools = {(one.server, one.tool): one for one in await kernel.list_tools()}
        echo = tools["scripted", "echo"]
        assert echo.description == "Does echo."
        assert echo.input_schema["properties"] == {
            "text": {"type": "string"},
            "list": {"type": "array"},
        }
        answer = await kernel.call_tool(echo.server, echo.tool, {"text": "/srv/a", "list": []})
    assert answer.status == "success"
    assert (answer.rule, answer.allowed_by, answer.refused_by) == ("srv", "kernel", None)


async def test_a_response_says_what_allowed_and_what_refused(furnished: Installation) -> None:
    answers: list[object] = [
        lambda asked: Approved(remember=asked.candidates[0]),
        lambda asked: Declined(note="use another file"),
    ]

    def ask(escalation: Escalation) -> object:
        answer = answers.pop(0)
        assert callable(answer)
        return answer(escalation)

    async with TrustedProcess(furnished.environment(), on_escalation=ask) as kernel:
        approved = await kernel.call_tool("scripted", "ask", {"text": "/srv/one"})
        remembered = await kernel.call_tool("scripted", "ask", {"text": "/srv/one"})
        declined = await kernel.call_tool("scripted", "ask", {"text": "/etc/one"})
        denied = await kernel.call_tool("scripted", "echo", {"text": "/etc", "list": []})
    assert (approved.rule, approved.allowed_by) == ("ask-first", "human")
    assert (remembered.status, remembered.rule) == ("success", "ask-first")
    assert remembered.allowed_by.startswith("grant:")
    assert (declined.status, declined.refused_by) == ("denied", "declined")
    assert "use another file" in str(declined.result)
    assert (denied.refused_by, denied.allowed_by) == ("policy", "")


async def test_a_servers_own_failure_comes_back_as_the_server_said_it(
    furnished: Installation,
) -> None:
    said = '{"content":[{"type":"text","text":"no such file"}],"isError":true,"more":{"a":1}}'
    furnished.annotations["scripted"] = {name: {"line": ["none"]} for name in ("raw", "error")}
    furnished.rules = [rule("raw", "allow", tool=["raw", "error"])]
    furnished.write_policy()
    async with TrustedProcess(furnished.environment()) as kernel:
        failed = await kernel.call_tool("scripted", "raw", {"line": said})
        broken = await kernel.call_tool(
            "scripted", "error", {"line": '{"code":-32602,"message":"what?"}'}
        )
    assert failed.status == "error"
    assert failed.result == orjson.loads(said)
    assert broken.status == "error"
    assert broken.error is not None
    assert broken.error["message"] == "what?"
    assert (failed.rule, broken.rule) == ("raw", "raw")


async def test_a_server_that_is_not_configured_gets_no_call_of_the_only_one(
    furnished: Installation,
) -> None:
    async with TrustedProcess(furnished.environment()) as kernel:
        answer = await kernel.call_tool("other", "echo", {"text": "/srv/a", "list": []})
    assert (answer.status, answer.refused_by) == ("denied", "unknown-tool")
    assert furnished.received() == []


async def test_the_callers_mapping_keeps_its_secrets(furnished: Installation) -> None:
    secrets = '{"scripted": {"TOKEN": "a-secret-of-the-server"}}'
    environ = {**furnished.environment(), "SERVER_CREDENTIALS": secrets}
    before = dict(environ)
    settings = Settings.from_environment(environ)
    async with TrustedProcess(environ):
        pass
    assert environ == before
    assert "SERVER_CREDENTIALS" not in settings.inherited
    assert "a-secret-of-the-server" not in repr(settings)


async def test_a_callers_own_exception_leaves_the_block_as_it_was_raised(
    furnished: Installation,
) -> None:
    kernel = TrustedProcess(furnished.environment())
    with pytest.raises(ValueError, match="mine"):
        async with kernel:
            raise ValueError("mine")
    several = ExceptionGroup("both", [ValueError("mine")])
    with pytest.raises(ExceptionGroup) as raised:
        async with kernel:
            raise several
    assert raised.value is several


async def test_a_start_that_fails_leaves_nothing_behind(furnished: Installation) -> None:
    mailbox = furnished.root / "mailbox"
    mailbox.mkdir(mode=0o777)
    mailbox.chmod(0o777)
    environ = {**furnished.environment(), "ESCALATION_DIR": str(mailbox)}
    kernel = TrustedProcess(environ)
    with pytest.raises(ConfigurationError):
        await kernel.__aenter__()
    furnished.end()
    mailbox.chmod(0o700)
    async with kernel:
        assert (await kernel.list_tools()) != ()


async def test_settings_and_a_configuration_file_are_not_given_together(
    furnished: Installation,
) -> None:
    settings = Settings.from_environment(furnished.environment())
    with pytest.raises(ConfigurationError):
        TrustedProcess(settings, furnished.root / "config.json")


async def test_arguments_that_change_while_somebody_is_asked_are_sent_as_they_were_shown(
    furnished: Installation,
) -> None:
    furnished.rules = [rule("ask-first", "escalate", tool=["echo"])]
    furnished.write_policy()
    mine: list[Json] = ["harmless"]

    def ask(escalation: Escalation) -> Approved:
        assert escalation.arguments["list"] == ["harmless"]
        mine[0] = "harmful"
        return Approved()

    async with TrustedProcess(furnished.environment(), on_escalation=ask) as kernel:
        answer = await kernel.call_tool("scripted", "echo", {"text": "/srv/a", "list": mine})
    assert answer.status == "success"
    assert [one["arguments"] for one in furnished.received()] == [
        {"text": "/srv/a", "list": ["harmless"]}
    ]


async def test_a_listed_tool_is_the_callers_copy(furnished: Installation) -> None:
    async with TrustedProcess(furnished.environment()) as kernel:
        for one in await kernel.list_tools():
            assert isinstance(one.input_schema, dict)
            one.input_schema["required"] = ["nothing has it"]
        answer = await kernel.call_tool("scripted", "echo", {"text": "/srv/a", "list": []})
        assert answer.status == "success"
        assert all("required" not in one.input_schema for one in await kernel.list_tools())


@pytest.mark.parametrize("value", [Path("/srv/a"), {1, 2}, b"/srv/a", 1 << 80])
async def test_arguments_that_are_no_json_are_the_callers_error(
    furnished: Installation, value: object
) -> None:
    arguments: dict[str, Json] = {"text": value, "list": []}  # type: ignore[dict-item]
    async with TrustedProcess(furnished.environment()) as kernel:
        with pytest.raises(AgentError, match="scripted/echo"):
            await kernel.call_tool("scripted", "echo", arguments)
    assert furnished.received() == []


@pytest.mark.requirement("C-32")
async def test_the_forms_of_the_original_are_accepted(furnished: Installation) -> None:
    asked: list[tuple[str, bool]] = []

    def on_escalation(escalation: Escalation) -> object:
        asked.append((escalation.reasons[0].ground.rule, bool(escalation.candidates)))
        return {"decision": "approved", "whitelistSelection": 0}

    async with TrustedProcess(furnished.environment(), on_escalation=on_escalation) as kernel:
        kernel.set_last_user_message("ask about it")
        for _ in range(2):
            answer = await kernel.handle_tool_call(
                ToolCallRequest(server="scripted", tool="ask", arguments={"text": "/srv/x"})
            )
            assert (answer.status, answer.rule) == ("success", "ask-first")
    assert asked == [("ask-first", True)]
