"""The auto-approver in the running proxy, over real HTTP to a scripted model."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.trusted_process import ToolCallRequest, TrustedProcess
from tests import program
from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.process_tree import descendants
from tests.e2e.raw_client import Message, RawClient, at, texts
from tests.llm.scripted_model import ScriptedModel, Step, says, scripted_model

pytestmark = pytest.mark.worker("litellm")


@pytest.fixture(scope="module", autouse=True)
def imported() -> Iterator[None]:
    """The library of models takes five seconds of a core: once for all of these."""
    with program.imported_beforehand("litellm"):
        yield


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
    installation.variables["ESCALATION_TIMEOUT_SECONDS"] = "150"
    return person


def ask(agent: RawClient, path: Path) -> int:
    return agent.start_call("read_file", {"path": str(path)})


def say(person: Person, message: str | None) -> None:
    """The user's next message, as a session writes it; None: there is none."""
    file = person.directory / "user-context.json"
    if message is None:
        file.unlink(missing_ok=True)
    else:
        file.write_bytes(orjson.dumps({"userMessage": message}))


def told(agent: RawClient, installation: Installation) -> list[str]:
    """What the proxy let anyone see besides answers: to the client, on stderr, in its log."""
    sent = [str(message["method"]) for message in agent.arrived if "method" in message]
    return [*sent, agent.errors.read_text(), installation.session_log.read_text()]


def is_connected(pid: int, url: str) -> bool:
    """Whether a process of that id itself holds a connection to the address."""
    port = f":{int(url.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{row[9]}]" for row in rows if row[2].endswith(port)}
    held = {str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir() if one.is_symlink()}
    return bool(inodes & held)


@pytest.mark.requirement(
    "A-2", "A-7", "A-9", "A-11", "A-21", "A-53", "A-63", "A-71", "A-72", "A-89"
)
def test_what_the_user_asked_for_is_approved_without_anyone_being_asked(
    installation: Installation,
) -> None:
    with scripted_model(lambda _: says("approve", "the user asked to read it")) as model:
        notes, other = installation.root / "notes.txt", installation.root / "other.txt"
        person = furnish(installation, model, f"please read the file {notes}")
        agent = installation.start()
        before = told(agent, installation)
        # A file that is made and removed again leaves the directory with another time.
        touched = person.directory.stat().st_mtime_ns
        answer = agent.result(ask(agent, notes))
        assert person.directory.stat().st_mtime_ns == touched
        assert told(agent, installation) == before
        call = ask(agent, other)
        person.answer({"decision": "denied"})
        agent.result(call)
        assert person.directory.stat().st_mtime_ns != touched, "a question does leave its trace"
    assert orjson.loads(texts(answer)[0])["arguments"] == {"path": str(notes)}
    assert [at(one, "arguments", "path") for one in installation.received("files")] == [str(notes)]
    outcome = installation.outcomes()[0]
    assert outcome["autoApproved"] is True
    assert outcome["decidedBy"] == "auto-approver"
    assert outcome["escalationResult"] == "approved"
    assert str(notes) not in model.prompts()[0].replace(f"read the file {notes}", "")


@pytest.mark.requirement("A-7")
def test_the_proxy_s_own_process_asks_the_model_before_any_person_is_asked(
    installation: Installation,
) -> None:
    seen: list[tuple[list[Path], bool]] = []
    clients: list[RawClient] = []

    def answer(_: dict[str, object]) -> Step:
        seen.append((person.requests(), is_connected(clients[0].process.pid, model.url)))
        return says("escalate", "it was not asked for")

    with scripted_model(answer) as model:
        person = furnish(installation, model, "what is the weather like")
        clients.append(installation.start())
        call = ask(clients[0], installation.root / "notes.txt")
        person.answer({"decision": "approved"})
        clients[0].result(call)
    assert seen == [([], True)]
    outcome = installation.outcomes()[-1]
    assert outcome["stages"] == ["kernel:escalate", "grants:open", "human:approved"]
    assert outcome["autoApprover"] == {"said": "escalate", "reasoning": "it was not asked for"}


def test_a_file_is_read_for_who_names_it_whole(installation: Installation) -> None:
    with scripted_model(lambda _: says("approve", "asked for")) as model:
        documents = installation.home / "Documents"
        documents.mkdir()
        person = furnish(installation, model, "Please read ~/Documents/README.md")
        agent = installation.start()
        agent.result(ask(agent, documents / "README.md"))
        assert installation.outcomes()[-1]["decidedBy"] == "auto-approver"
        call = ask(agent, documents / "passwords.txt")
        person.answer({"decision": "denied"})
        agent.result(call)
    assert installation.outcomes()[-1]["decidedBy"] == "human"


@pytest.mark.requirement("A-4", "A-5", "A-6", "A-13", "A-16")
def test_what_the_user_did_not_ask_for_goes_to_a_person(installation: Installation) -> None:
    # The model is wrong on purpose: the target check stands behind it.
    with scripted_model(lambda _: says("approve", "sure")) as model:
        person = furnish(installation, model, None)
        agent = installation.start()
        vague = ("Go ahead and continue", "Fix the tests", "Do whatever you think is best")
        for number, message in enumerate((None, *vague)):
            say(person, message)
            # The person agrees: a no to what the model would have approved switches the model off.
            call = ask(agent, installation.root / f"notes-{number}.txt")
            person.answer({"decision": "approved"})
            agent.result(call)
            outcome = installation.outcomes()[-1]
            assert outcome["decidedBy"] == "human"
            assert "autoApproved" not in outcome
            if message is None:
                assert at(outcome, "autoApprover", "said") == "not asked"
            else:
                assert at(outcome, "autoApprover", "said") == "approve"
                assert at(outcome, "autoApprover", "objection")
    assert len(model.requests) == len(vague)


@pytest.mark.requirement("A-49", "A-50", "A-51", "A-96")
def test_switch_model_key_and_log_reach_the_proxy_by_its_environment(
    installation: Installation,
) -> None:
    with scripted_model(lambda _: says("approve", "asked for")) as model:
        notes, log = installation.root / "notes.txt", installation.root / "llm" / "log.jsonl"
        log.parent.mkdir()
        furnish(installation, model, f"please read the file {notes}")
        Path(installation.variables["IRONCURTAIN_CONFIG"]).write_bytes(
            orjson.dumps({"autoApprove": {"apiBase": model.url}})
        )
        agent = installation.start(
            AUTO_APPROVE_ENABLED="true",
            AUTO_APPROVE_MODEL_ID="openai:of-the-session",
            AUTO_APPROVE_API_KEY="sk-of-the-session",
            AUTO_APPROVE_LLM_LOG_PATH=str(log),
        )
        agent.result(ask(agent, notes))
        for pid in descendants(agent.process.pid):
            assert b"sk-of-the-session" not in Path(f"/proc/{pid}/environ").read_bytes()
    _, headers, body = model.requests[0]
    given = {name.lower(): value for name, value in headers.items()}
    assert given["authorization"] == "Bearer sk-of-the-session"
    assert body["model"] == "of-the-session"
    assert installation.outcomes()[-1]["decidedBy"] == "auto-approver"
    (entry,) = [orjson.loads(line) for line in log.read_bytes().splitlines()]
    assert (entry["modelId"], entry["decision"]) == ("openai:of-the-session", "approve")
    assert b"sk-of-the-session" not in log.read_bytes() + installation.audit.read_bytes()


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
    """The model would approve: it is asked about the same call where a person could be."""
    with scripted_model(lambda _: says("approve", "the user asked to read it")) as model:
        notes = installation.root / "notes.txt"
        person = furnish(installation, model, None)
        del installation.variables["ESCALATION_DIR"]
        installation.variables["IRONCURTAIN_SESSION_ID"] = "alone"
        person.directory = installation.home / ".ironcurtain/sessions/alone"
        person.directory.mkdir(mode=0o700, parents=True)
        say(person, f"please read the file {notes}")
        agent = installation.start()
        assert "no approval channel" in texts(agent.result(ask(agent, notes)))[0]
        assert model.requests == []
        agent.close()
        say(person, f"please read the file {notes}")
        installation.variables["ESCALATION_DIR"] = str(person.directory)
        agent = installation.start()
        agent.result(ask(agent, notes))
        assert len(model.requests) == 1
    assert [outcome.get("autoApproved", False) for outcome in installation.outcomes()] == [
        False,
        True,
    ]


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
