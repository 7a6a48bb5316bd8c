"""A reviewer that is another session: its own mailbox, its own token, through the real proxy."""

import subprocess
from itertools import product
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.confined_installation import add_hostile, done
from tests.e2e.installation import Installation
from tests.e2e.raw_client import Message, RawClient, at, text, texts
from tests.e2e.test_auto_confirm import OUTSIDE, Office, manager
from tests.program import PATIENCE

pytestmark = pytest.mark.requirement("B-1")

TOKEN = "s3cret-of-the-architect-" * 2
ME = "the-worker"


class OpenQuestions(Office):
    """An office whose `architect_manager` is a session with a desk of its own."""

    def __init__(self, installation: Installation) -> None:
        super().__init__(installation)
        desk = installation.root / "desk"
        desk.mkdir()
        self.person.directory = desk / "mail"
        self.token = desk / "token"
        self.token.touch(mode=0o600)
        self.token.write_text(TOKEN)

    def session(self, **more: Json) -> Json:
        return {
            "name": "architect_manager",
            "kind": "session",
            "mailbox": str(self.person.directory),
            "token_file": str(self.token),
            **more,
        }

    def answer(self, word: str, *more: str) -> subprocess.CompletedProcess[str]:
        """As the session does it."""
        own = ("--as", "architect_manager", "--token-file", str(self.token))
        identifier = str(self.person.until_asked()[0]["escalationId"])
        return self.person.command(word, identifier, *own, *more)

    def places_of_the_token(self) -> list[Path]:
        files = [one for one in self.installation.root.rglob("*") if one.is_file()]
        return [one for one in files if TOKEN.encode() in one.read_bytes()]


@pytest.fixture
def desk(installation: Installation) -> OpenQuestions:
    return OpenQuestions(installation)


@pytest.mark.requirement("B-3", "B-7", "X-5")
def test_a_session_approves_with_its_token_which_is_written_nowhere(desk: OpenQuestions) -> None:
    agent = desk.start(desk.session())
    call = agent.start_call("delete_file", {"path": OUTSIDE})
    (request,) = desk.person.until_asked()
    assert request["reviewer"] == "architect_manager"
    assert at(request, "context", "Operation") == "delete"
    answered = desk.answer("approve", "--note", f"go on {TOKEN}")
    assert (answered.returncode, answered.stderr) == (0, "")
    agent.result(call)
    assert desk.outcome()["decidedBy"] == "reviewer:architect_manager"
    assert len(desk.installation.received("files")) == 1
    assert desk.person.is_tidy()
    assert desk.places_of_the_token() == [desk.token]


@pytest.mark.requirement("B-10", "B-65")
def test_a_session_s_denial_fails_the_call_unless_it_may_not_deny(desk: OpenQuestions) -> None:
    agent = desk.start(desk.session(), manager("claude_code_high_level", "deciding", "approve"))
    call = agent.start_call("delete_file", {"path": OUTSIDE})
    assert desk.answer("deny").returncode == 0
    assert "denied: the reviewer architect_manager did not approve" in texts(agent.result(call))[0]
    assert desk.outcome()["decidedBy"] == "reviewer:architect_manager"
    agent.close()
    agent = desk.start(
        desk.session(may_deny=False), manager("claude_code_high_level", "deciding", "approve")
    )
    call = agent.start_call("delete_file", {"path": OUTSIDE})
    assert desk.answer("deny").returncode == 0
    agent.result(call)
    assert desk.outcome()["decidedBy"] == "reviewer:claude_code_high_level"


@pytest.mark.requirement("B-60", "B-172", "X-8")
def test_without_the_token_nothing_happens_and_the_fallback_is_asked(desk: OpenQuestions) -> None:
    agent = desk.start(
        desk.session(),
        manager("claude_code_high_level", "deciding", "approve"),
        escalation_timeout_minutes=0.12,
    )
    call = agent.start_call("delete_file", {"path": OUTSIDE})
    claims: tuple[dict[str, str], ...] = (
        {},
        {"reviewer": "architect_manager"},
        {"token": "x" * len(TOKEN)},
    )
    for word, claim in product(("approved", "denied"), claims):
        desk.person.answer({"decision": word, **claim})
    refused = desk.person.command("approve", "all")
    assert refused.returncode == 1
    assert 'only "architect_manager" may answer' in refused.stderr
    agent.result(call)
    assert desk.outcome()["decidedBy"] == "reviewer:claude_code_high_level"
    assert len(desk.installation.received("files")) == 1
    log = desk.installation.session_log.read_text()
    assert "does not count: its token is missing, or wrong" in log


@pytest.mark.requirement("X-7")
def test_a_session_is_not_asked_about_its_own_calls(desk: OpenQuestions) -> None:
    desk.installation.variables["IRONCURTAIN_SESSION_ID"] = ME
    agent = desk.start(
        desk.session(session=ME), manager("claude_code_high_level", "deciding", "approve")
    )
    agent.call("delete_file", {"path": OUTSIDE})
    assert desk.person.requests() == []
    assert desk.outcome()["decidedBy"] == "reviewer:claude_code_high_level"


def test_a_token_that_others_can_read_stops_the_start(desk: OpenQuestions) -> None:
    desk.token.chmod(0o644)
    directory = desk.installation.home / ".ironcurtain"
    directory.mkdir()
    config: Json = {"auto_confirm": {"enabled": True, "reviewers": [desk.session()]}}
    (directory / "config.json").write_bytes(orjson.dumps(config))
    proxy = desk.installation.launch()
    assert proxy.process.wait(PATIENCE) == 2
    said = (desk.installation.root / "stderr-0.txt").read_text()
    assert f"token file {desk.token} can be used by others" in said
    assert TOKEN not in said


def test_a_mailbox_that_others_can_write_stops_the_start_with_one_line(desk: OpenQuestions) -> None:
    mail = desk.person.directory
    mail.mkdir()
    mail.chmod(0o777)
    directory = desk.installation.home / ".ironcurtain"
    directory.mkdir()
    engine: Json = {"enabled": True, "reviewers": [desk.session()]}
    config: Json = {"autoApprove": {}, "auto_confirm": engine}
    (directory / "config.json").write_bytes(orjson.dumps(config))
    proxy = desk.installation.launch()
    assert proxy.process.wait(PATIENCE) == 2
    (said,) = (desk.installation.root / "stderr-0.txt").read_text().splitlines()
    assert f"{mail} can be written by other users" in said


# --- the token and the mailbox are out of reach


@pytest.mark.requirement("C-20", "A-73")
def test_no_call_reads_the_token_or_writes_an_answer(desk: OpenQuestions) -> None:
    agent = desk.start(desk.session(), manager("claude_code_high_level", "deciding", "approve"))
    response = desk.person.directory / "response-0b7e5a1c-6f0e-4d5c-9a3d-2f6d1f3c8e11.json"
    calls: list[tuple[str, Message]] = [
        ("read_file", {"path": str(desk.token)}),
        ("write_file", {"path": str(desk.token)}),
        ("delete_file", {"path": str(desk.token)}),
        ("read_file", {"path": str(desk.person.directory)}),
        ("write_file", {"path": str(response)}),
        ("delete_file", {"path": str(desk.token.parent)}),
    ]
    for tool, arguments in calls:
        assert agent.call(tool, arguments).get("isError")
        assert desk.installation.last_decision() == ("deny", "structural-protected-path")
    assert desk.installation.received("files") == []


@pytest.mark.requirement("C-12", "A-73")
@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("place", ["desk", "home/workspace/desk"])
def test_no_confined_server_reads_the_token_or_writes_an_answer(
    installation: Installation, place: str
) -> None:
    desk = OpenQuestions(installation)
    agent = _confined(desk, installation.root / place)
    mail, token = desk.person.directory, desk.token
    response = mail / "response-0b7e5a1c-6f0e-4d5c-9a3d-2f6d1f3c8e11.json"
    assert TOKEN in done(agent.call("free__read", {"path": str(token)}))
    assert TOKEN not in text(agent.call("caged__read", {"path": str(token)}))
    agent.call("caged__write", {"path": str(token), "text": "mine"})
    agent.call("caged__remove", {"path": str(token)})
    agent.call("caged__write", {"path": str(response), "text": "{}"})
    agent.call(
        "caged__rename", {"source": str(mail), "target": str(installation.workspace / "moved")}
    )
    assert token.read_text() == TOKEN
    assert mail.is_dir()
    assert list(mail.iterdir()) == []
    question = mail / "request-0b7e5a1c-6f0e-4d5c-9a3d-2f6d1f3c8e11.json"
    question.write_text(TOKEN)
    assert TOKEN not in text(agent.call("caged__read", {"path": str(question)}))


def _confined(desk: OpenQuestions, place: Path) -> RawClient:
    """A server in its sandbox, and one that is trusted; token and mailbox at this place."""
    desk.person.directory = place / "mail"
    if place != desk.token.parent:
        place.mkdir(parents=True)
        desk.token = desk.token.rename(place / "token")
    desk.installation.servers.clear()
    desk.installation.annotations.clear()
    desk.installation.rules.clear()
    add_hostile(desk.installation, "caged")
    add_hostile(desk.installation, "free", sandbox=False)
    desk.installation.variables["SANDBOX_POLICY"] = "enforce"
    return desk.start(desk.session())
