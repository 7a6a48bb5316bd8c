"""`status` shows what running sessions use, which only they know."""

import os

import orjson

from tests import program
from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message
from tests.program import wait_until


def status(installation: Installation, *arguments: str) -> str:
    # The operator's terminal has none of the client's variables.
    own = {"HOME": str(installation.home), "PATH": os.environ["PATH"]}
    command = [*installation.command, "status", *arguments]
    done = program.run(command, own)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sessions(installation: Installation) -> list[Message]:
    found: list[Message] = orjson.loads(status(installation, "--json"))["sessions"]
    return found


def test_a_running_session_shows_its_workspace_client_servers_and_questions(
    installation: Installation,
) -> None:
    installation.add_scripted("scripted", {"ask": {"text": ["write-path"]}})
    installation.rules = [rule("ask-first", "escalate", "a person must agree", tool=["ask"])]
    person = Person(installation)
    installation.variables["ESCALATION_DIR"] = str(person.directory)
    installation.variables["IRONCURTAIN_SESSION_ID"] = "mine"
    assert sessions(installation) == []
    agent = installation.start()
    agent.start_call("ask", {"text": "/srv/x"})
    person.until_asked()
    (one,) = sessions(installation)
    assert one["session"] == "mine"
    assert one["servers"] == ["scripted"]
    assert one["workspace"] == str(installation.workspace)
    assert one["client"]
    assert one["openQuestions"] == 1
    assert "1 open question" in status(installation)
    agent.close()
    assert sessions(installation) == []
    assert list(installation.home.rglob("session.json")) == []


def test_a_session_that_was_killed_and_a_file_that_is_none_are_not_shown(
    installation: Installation,
) -> None:
    installation.add_scripted("scripted")
    agent = installation.start()
    (file,) = installation.home.rglob("session.json")
    for name, raw in (("torn", file.read_bytes()[:20]), ("list", b"[]"), ("deep", b"[" * 9999)):
        (file.parents[1] / name).mkdir()
        (file.parents[1] / name / "session.json").write_bytes(raw)
    os.mkfifo(file.parents[1] / "torn" / "fifo")
    (file.parents[1] / "pipe").mkdir()
    os.mkfifo(file.parents[1] / "pipe" / "session.json")
    assert [one["session"] for one in sessions(installation)] == [file.parent.name]
    agent.process.kill()
    agent.process.wait()
    wait_until(lambda: not sessions(installation), "a dead session is not shown")
