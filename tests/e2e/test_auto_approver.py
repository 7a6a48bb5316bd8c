"""The auto-approver in the running proxy, over real HTTP to a scripted model."""

from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.trusted_process import ToolCallRequest, TrustedProcess
from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient, texts
from tests.llm.scripted_model import ScriptedModel, says, scripted_model


def furnish(installation: Installation, model: ScriptedModel, message: str | None) -> Person:
    """An installation whose `read_file` escalates outside, with a model and a user's message."""
    installation.add_scripted(
        "files",
        {"read_file": {"path": ["read-path"]}},
        annotations="files",
        tools=[
            {
                "name": "read_file",
                "inputSchema": {
                    "type": "object",
                    "properties": {"path": {"type": "string"}},
                    "required": ["path"],
                },
            }
        ],
    )
    installation.rules = [rule("ask-outside", "escalate", "reads outside the workspace")]
    person = Person(installation)
    person.directory.mkdir(mode=0o700)
    installation.variables["ESCALATION_DIR"] = str(person.directory)
    if message is not None:
        context = orjson.dumps({"userMessage": message})
        (person.directory / "user-context.json").write_bytes(context)
    config = {
        "autoApprove": {"enabled": True, "modelId": "openai:scripted", "apiBase": model.url},
        "openaiApiKey": "sk-test",
    }
    file = installation.root / "config.json"
    file.write_bytes(orjson.dumps(config))
    installation.variables["IRONCURTAIN_CONFIG"] = str(file)
    installation.variables["ESCALATION_TIMEOUT_SECONDS"] = "20"
    return person


def ask(agent: RawClient, path: Path) -> int:
    return agent.start_call("read_file", {"path": str(path)})


@pytest.mark.requirement(
    "A-2", "A-3", "A-9", "A-11", "A-21", "A-53", "A-63", "A-71", "A-72", "A-89", "A-96"
)
def test_what_the_user_asked_for_is_approved_without_anyone_being_asked(
    installation: Installation,
) -> None:
    with scripted_model(lambda _: says("approve", "the user asked to read it")) as model:
        notes = installation.root / "notes.txt"
        person = furnish(installation, model, f"please read the file {notes}")
        agent = installation.start()
        # A question that came and went changes the directory's time, as any entry does.
        untouched = person.directory.stat().st_mtime_ns
        agent.result(ask(agent, notes))
        assert person.directory.stat().st_mtime_ns == untouched
    outcome = installation.outcomes()[-1]
    assert outcome["autoApproved"] is True
    assert outcome["decidedBy"] == "auto-approver"
    assert outcome["escalationResult"] == "approved"
    assert str(notes) not in model.prompts()[0].replace(f"read the file {notes}", "")


@pytest.mark.requirement("A-4", "A-5", "A-6", "A-13", "A-16")
@pytest.mark.parametrize("message", ["Fix the tests", None])
def test_what_the_user_did_not_ask_for_goes_to_a_person(
    installation: Installation, message: str | None
) -> None:
    # The model is wrong on purpose: the target check stands behind it.
    with scripted_model(lambda _: says("approve", "sure")) as model:
        person = furnish(installation, model, message)
        agent = installation.start()
        call = ask(agent, installation.root / "notes.txt")
        person.answer({"decision": "denied"})
        assert "did not approve" in texts(agent.result(call))[0]
    assert "autoApproved" not in installation.outcomes()[-1]


@pytest.mark.requirement("A-8", "A-69", "X-6")
def test_a_model_that_says_deny_passes_the_question_on(installation: Installation) -> None:
    with scripted_model(lambda _: says("deny", "no")) as model:
        notes = installation.root / "notes.txt"
        person = furnish(installation, model, f"please read the file {notes}")
        agent = installation.start()
        call = ask(agent, notes)
        person.answer({"decision": "approved"})
        agent.result(call)
    assert installation.outcomes()[-1]["decidedBy"] == "human"


@pytest.mark.requirement("A-17", "A-70", "A-97")
def test_a_model_that_cannot_be_reached_costs_nothing_but_its_help(
    installation: Installation,
) -> None:
    notes = installation.root / "notes.txt"
    person = furnish(installation, ScriptedModel(url="http://127.0.0.1:9/v1"), f"read {notes}")
    agent = installation.start()
    call = ask(agent, notes)
    person.answer({"decision": "approved"})
    agent.result(call)
    assert installation.outcomes()[-1]["decidedBy"] == "human"


@pytest.mark.requirement("A-55", "A-12")
def test_in_single_shot_mode_the_model_is_not_asked(installation: Installation) -> None:
    with scripted_model(lambda _: says("approve")) as model:
        notes = installation.root / "notes.txt"
        furnish(installation, model, f"read {notes}")
        del installation.variables["ESCALATION_DIR"]
        agent = installation.start()
        assert "no approval channel" in texts(agent.result(ask(agent, notes)))[0]
        assert model.requests == []


@pytest.mark.requirement("A-11", "A-57", "A-58", "A-59", "A-68")
@pytest.mark.anyio
async def test_in_process_the_message_is_set_and_replaced_by_the_next(
    installation: Installation,
) -> None:
    with scripted_model(lambda _: says("approve", "asked for")) as model:
        notes = installation.root / "notes.txt"
        furnish(installation, model, None)
        installation.write_policy()
        asked: list[Message] = []

        def on_escalation(escalation: object) -> object:
            asked.append({})
            return {"decision": "denied"}

        request = ToolCallRequest(server="files", tool="read_file", arguments={"path": str(notes)})
        async with TrustedProcess(
            installation.environment(), on_escalation=on_escalation
        ) as kernel:
            kernel.set_last_user_message(f"please read the file {notes}")
            first = await kernel.handle_tool_call(request)
            kernel.set_last_user_message("thanks")
            second = await kernel.handle_tool_call(request)
    assert (first.status, second.status) == ("success", "denied")
    assert len(asked) == 1
    assert installation.outcomes()[0]["autoApproved"] is True
