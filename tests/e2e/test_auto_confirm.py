"""The auto-confirm engine behind a real client: approve, route, deny, time out, remember."""

import sys
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient, at, text, texts

pytestmark = pytest.mark.requirement("B-1")

ROLES = {
    "read_file": {"path": ["read-path"]},
    "write_file": {"path": ["write-path"]},
    "delete_file": {"path": ["delete-path"]},
}


def tools() -> list[Message]:
    return [
        {
            "name": name,
            "inputSchema": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
        }
        for name in ROLES
    ]


def manager(name: str, *arguments: str, **more: Json) -> Json:
    command: list[Json] = [
        sys.executable,
        "-m",
        f"tests.auto_confirm.reviewers.managers.{arguments[0]}",
    ]
    return {
        "name": name,
        "kind": "process",
        "command": [*command, *arguments[1:]],
        "env": {"PYTHONPATH": str(Path(__file__).parents[2])},
        **more,
    }


class Office:
    """An installation in which every change escalates and the engine is on."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.person = Person(installation)
        installation.add_scripted("files", ROLES, tools=tools(), annotations="filesystem")
        installation.rules = [rule("ask", "escalate", "a reviewer must agree", tool=[*ROLES])]

    def start(self, *reviewers: Json, **section: Json) -> RawClient:
        directory = self.installation.home / ".ironcurtain"
        directory.mkdir(exist_ok=True)
        engine: Json = {
            "enabled": True,
            "night_mode": {"enabled": False},
            "reviewers": list(reviewers),
            **section,
        }
        (directory / "config.json").write_bytes(orjson.dumps({"auto_confirm": engine}))
        return self.installation.start()

    def outcome(self) -> Message:
        return self.installation.outcomes()[-1]


@pytest.fixture
def office(installation: Installation) -> Office:
    return Office(installation)


OUTSIDE = "/srv/elsewhere/file"


@pytest.mark.requirement("B-2", "B-5", "B-44", "B-47", "X-5")
def test_what_is_safe_is_approved_at_once_and_the_record_can_be_replayed(office: Office) -> None:
    agent = office.start()
    agent.call("write_file", {"path": "/tmp/ironcurtain-test/x"})
    assert len(office.installation.received("files")) == 1
    outcome = office.outcome()
    assert outcome["decidedBy"] == "engine:safety-rule"
    assert outcome["autoApproved"] is True
    assert outcome["origins"] == ["policy"]
    assert at(outcome, "engine", "operation") == "edit"
    assert at(outcome, "engine", "reason") == "Safety rule: File edit in /tmp/"


def test_a_file_on_which_programs_act_is_approved_by_nobody_but_a_reviewer(office: Office) -> None:
    agent = office.start(manager("architect_manager", "deciding", "deny"))
    project = office.installation.workspace
    for place in (".exrc", "mcp.json", ".cursorrules"):
        agent.call("write_file", {"path": str(project / place)})
        assert office.outcome()["decidedBy"] == "reviewer:architect_manager", place
    assert office.installation.received("files") == []


@pytest.mark.requirement("B-3", "B-7", "B-49", "B-53", "B-176")
def test_a_delete_is_sent_to_the_manager_whose_approval_lets_it_go(office: Office) -> None:
    agent = office.start(manager("architect_manager", "deciding", "approve"))
    agent.call("delete_file", {"path": OUTSIDE})
    outcome = office.outcome()
    assert outcome["decidedBy"] == "reviewer:architect_manager"
    assert outcome["stages"] == [
        "kernel:escalate",
        "overlay:escalate",  # a delete, which the approval mode asks about as well
        "grants:open",
        "engine:held",
        "reviewer:architect_manager:approved",
    ]
    assert outcome["autoApproved"] is True, "nothing proves that a named reviewer is a person"
    assert at(outcome, "engine", "target") == "architect_manager"
    assert len(office.installation.received("files")) == 1


@pytest.mark.requirement("B-10", "B-65")
def test_a_manager_s_denial_fails_the_call_and_the_session_goes_on(office: Office) -> None:
    agent = office.start(manager("architect_manager", "deciding", "deny"))
    first = texts(agent.call("delete_file", {"path": OUTSIDE}))[0]
    who = "the reviewer architect_manager"
    assert first == f"tool 'delete_file' execution denied: {who} did not approve the action"
    agent.call("write_file", {"path": "/tmp/ironcurtain-test/x"})
    assert len(office.installation.received("files")) == 1


@pytest.mark.requirement("B-60", "B-169")
def test_a_manager_that_is_dead_is_followed_by_the_fallback(office: Office) -> None:
    agent = office.start(
        manager("architect_manager", "dying"),
        manager("claude_code_high_level", "deciding", "approve"),
    )
    agent.call("delete_file", {"path": OUTSIDE})
    assert office.outcome()["decidedBy"] == "reviewer:claude_code_high_level"


@pytest.mark.requirement("B-60", "B-172", "B-177")
def test_a_manager_that_says_nothing_is_followed_by_the_fallback_in_time(office: Office) -> None:
    agent = office.start(
        manager("architect_manager", "deaf", str(office.installation.root / "one")),
        manager("claude_code_high_level", "deciding", "approve"),
        escalation_timeout_minutes=0.1,
    )
    agent.call("delete_file", {"path": OUTSIDE})
    assert office.outcome()["decidedBy"] == "reviewer:claude_code_high_level"


@pytest.mark.requirement("B-172", "X-8")
def test_when_nobody_answers_the_call_is_denied(office: Office) -> None:
    agent = office.start(
        manager("architect_manager", "deaf", str(office.installation.root / "one")),
        manager("claude_code_high_level", "deaf", str(office.installation.root / "two")),
        escalation_timeout_minutes=0.04,
    )
    first = texts(agent.call("delete_file", {"path": OUTSIDE}))[0]
    assert first == "tool 'delete_file' execution denied: nobody answered in time"
    assert office.outcome()["decidedBy"] == "timeout"
    assert office.installation.received("files") == []


@pytest.mark.requirement("B-4", "X-7")
def test_without_a_manager_a_person_is_asked(office: Office) -> None:
    office.installation.variables["ESCALATION_DIR"] = str(office.person.directory)
    agent = office.start()
    call = agent.start_call("delete_file", {"path": OUTSIDE})
    (request,) = office.person.until_asked()
    assert office.person.command("approve", str(request["escalationId"])).returncode == 0
    agent.result(call)
    assert office.outcome()["decidedBy"] == "human"


def test_what_the_engine_would_route_is_denied_at_once_where_nobody_is(office: Office) -> None:
    agent = office.start()
    first = texts(agent.call("delete_file", {"path": OUTSIDE}))[0]
    assert "no approval channel available" in first
    assert office.installation.received("files") == []


@pytest.mark.requirement("X-10")
def test_words_in_the_arguments_do_not_lower_the_risk(office: Office) -> None:
    agent = office.start()
    agent.call(
        "delete_file",
        {"path": "/srv/test/safe/architect_manager/feature/read_only"},
        _meta={"sessionType": "architect", "risk": 0},
    )
    assert office.installation.received("files") == []


def test_a_store_that_fails_approves_nothing(office: Office) -> None:
    directory = office.installation.home / ".ironcurtain"
    directory.mkdir()
    (directory / "interactions.db").write_bytes(b"this is no database" * 1000)
    agent = office.start()
    refused = text(agent.call("write_file", {"path": "/tmp/ironcurtain-test/x"}))
    assert "no approval channel available" in refused
    assert office.installation.received("files") == []


@pytest.mark.requirement("B-31")
def test_during_a_deployment_everything_is_held_for_a_reviewer(office: Office) -> None:
    opened = office.person.run("window", "deployment", "open", "--for", "10m")
    assert opened.returncode == 0
    agent = office.start(manager("architect_manager", "deciding", "approve"))
    agent.call("write_file", {"path": "/tmp/ironcurtain-test/x"})
    outcome = office.outcome()
    assert outcome["decidedBy"] == "reviewer:architect_manager"
    assert at(outcome, "engine", "check") == "deployment"


@pytest.mark.requirement("B-8")
def test_a_session_of_another_provider_than_was_registered_is_looked_at(office: Office) -> None:
    office.installation.variables["IRONCURTAIN_PROVIDER"] = "somebody-else"
    agent = office.start(
        manager("wrapper_claude", "deciding", "approve"), context={"provider": "anthropic"}
    )
    agent.call("write_file", {"path": "/tmp/ironcurtain-test/x"})
    outcome = office.outcome()
    assert outcome["decidedBy"] == "reviewer:wrapper_claude"
    assert at(outcome, "engine", "reason") == "Provider mismatch"


@pytest.mark.requirement("B-26")
def test_a_session_that_stands_where_its_task_should_be_done_is_approved(office: Office) -> None:
    office.installation.variables["TASK"] = "T-1"
    workspace = str(office.installation.workspace)
    rules: list[Json] = [{"pattern": "file_edit_in_tmp", "action": "conditional"}]
    agent = office.start(
        context={"directory": workspace, "environment": {"TASK": "T-1"}}, safety_rules=rules
    )
    agent.call("write_file", {"path": "/tmp/ironcurtain-test/x"})
    outcome = office.outcome()
    assert outcome["decidedBy"] == "engine:context"
    assert at(outcome, "engine", "reason") == "Context match 100%"


@pytest.mark.requirement("B-119", "B-168", "B-175", "B-179")
def test_the_metrics_know_what_was_approved_and_by_whom(office: Office) -> None:
    agent = office.start(manager("architect_manager", "deciding", "approve"))
    for _ in range(2):
        agent.call("write_file", {"path": "/tmp/ironcurtain-test/x"})
    agent.call("delete_file", {"path": OUTSIDE})
    shown = office.person.run("metrics", "--json")
    assert shown.returncode == 0, shown.stderr
    metrics = orjson.loads(shown.stdout)
    assert metrics["interactions"] == 3
    assert metrics["manualInterventions"] == 0
