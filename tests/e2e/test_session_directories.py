"""Directories of ended sessions go after their time; those that anybody uses stay."""

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.mailbox.mailboxes import ListenerLock, this_process, utc_now
from ironcurtain_proxy.sessions import SessionLock, remove_old_sessions
from tests import program
from tests.e2e.installation import Installation
from tests.e2e.raw_client import text
from tests.program import PROXY, wait_until

DAY = 86_400
REMOVER = """
import sys, time
from pathlib import Path
from ironcurtain_proxy.sessions import remove_old_sessions
print(flush=True)
while sys.stdin.readline():
    remove_old_sessions(Path(sys.argv[1]), time.time() - 1000)
    print(flush=True)
"""


@pytest.fixture
def sessions(installation: Installation) -> Path:
    found = installation.home / ".ironcurtain" / "sessions"
    found.mkdir(parents=True)
    return found


def now() -> float:
    return utc_now().timestamp()


def aged(directory: Path, days: float = 30) -> Path:
    """Make a session's directory look as if nothing had changed in it for so long."""
    directory.mkdir(exist_ok=True)
    (directory / "session.log").write_text("words")
    when = now() - days * DAY
    for entry in (*directory.iterdir(), directory):
        os.utime(entry, (when, when), follow_symlinks=False)
    return directory


def remove_after_two_weeks(sessions: Path) -> None:
    remove_old_sessions(sessions, now() - 14 * DAY)


def config(installation: Installation, **settings: int) -> str:
    file = installation.root / "config.json"
    file.write_bytes(orjson.dumps(settings))
    return str(file)


def test_an_old_directory_goes_when_a_proxy_starts_and_a_young_one_stays(
    scripted: Installation, sessions: Path
) -> None:
    old, young = aged(sessions / "old"), aged(sessions / "young", 13)
    agent = scripted.start()
    wait_until(lambda: not old.exists())
    assert text(agent.call("answer", {"text": "works"})) == "works"
    assert (young / "session.log").read_text() == "words"


def test_the_time_is_a_setting(scripted: Installation, sessions: Path) -> None:
    old, young = aged(sessions / "old", 3), aged(sessions / "young", 1)
    agent = scripted.launch("--config", config(scripted, sessionRetentionDays=2))
    agent.initialize()
    wait_until(lambda: not old.exists())
    assert young.exists()


def test_nothing_goes_where_the_time_is_0(scripted: Installation, sessions: Path) -> None:
    old = aged(sessions / "old", 3000)
    agent = scripted.launch("--config", config(scripted, sessionRetentionDays=0))
    agent.initialize()
    agent.call("answer", {"text": "works"})
    agent.close()
    assert old.exists()


def test_the_directory_of_a_living_proxy_stays_however_old_it_looks(
    scripted: Installation, sessions: Path
) -> None:
    agent = scripted.start(IRONCURTAIN_SESSION_ID="mine")
    mine = aged(sessions / "mine")
    remove_after_two_weeks(sessions)
    assert (mine / "session.log").exists()
    agent.close()
    aged(mine)
    remove_after_two_weeks(sessions)
    assert not mine.exists()


def test_a_mailbox_that_a_living_proxy_has_in_another_sessions_directory_stays(
    scripted: Installation, sessions: Path
) -> None:
    agent = scripted.start(ESCALATION_DIR=str(sessions / "shared"))
    shared = aged(sessions / "shared")
    remove_after_two_weeks(sessions)
    assert shared.exists()
    agent.close()


def test_a_question_that_a_living_process_waits_for_keeps_its_directory(sessions: Path) -> None:
    asked = sessions / "asked"
    asked.mkdir()
    owner = this_process()
    identity = "01234567-89ab-4cde-8f01-23456789abcd"
    request: dict[str, object] = {
        "escalationId": identity,
        "serverName": "s",
        "toolName": "t",
        "arguments": {},
        "reason": "r",
    }
    file = asked / f"request-{identity}.json"
    for living in (True, False):
        pid = owner.pid if living else 1 << 30
        request["owner"] = {"pid": pid, "startTime": owner.start_time}
        file.write_bytes(orjson.dumps(request))
        file.chmod(0o600)
        aged(asked)
        remove_after_two_weeks(sessions)
        assert asked.exists() == living


def test_a_listening_reviewer_keeps_its_directory(sessions: Path) -> None:
    watched = aged(sessions / "watched")
    lock = ListenerLock.acquire(watched)
    assert lock is not None
    aged(watched)
    remove_after_two_weeks(sessions)
    assert watched.exists()
    lock.release()
    aged(watched)
    remove_after_two_weeks(sessions)
    assert not watched.exists()


def test_no_link_is_followed_and_what_it_leads_to_stays(sessions: Path, tmp_path: Path) -> None:
    precious = aged(tmp_path / "precious")
    (sessions / "link").symlink_to(precious)
    (sessions / "file").write_text("words")
    old = sessions / "old"
    (old / "one.cwd").mkdir(parents=True)
    (old / "link").symlink_to(precious)
    (old / "one.cwd" / "link").symlink_to(precious / "session.log")
    (old / "one.cwd" / "directory").symlink_to(precious)
    aged(old)
    when = now() - 30 * DAY
    for entry in sessions.iterdir():
        os.utime(entry, (when, when), follow_symlinks=False)
    remove_after_two_weeks(sessions)
    assert (precious / "session.log").read_text() == "words"
    assert sorted(entry.name for entry in sessions.iterdir()) == ["file", "link"]


def test_directories_deeper_than_a_stack_and_closed_ones_go_too(sessions: Path) -> None:
    old = sessions / "old"
    place = old / "one.cwd"
    place.mkdir(parents=True)
    closed = place / "closed" / "inner"
    closed.mkdir(parents=True)
    (closed / "file").touch()
    closed.chmod(0)
    closed.parent.chmod(0o500)
    descriptor = os.open(place, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    aged(old)
    remove_after_two_weeks(sessions)
    assert list(sessions.iterdir()) == []


def test_what_a_removal_left_half_done_goes_at_the_next_start(sessions: Path) -> None:
    aged(sessions / ".removed-0123456789abcdef", 0)
    remove_after_two_weeks(sessions)
    assert list(sessions.iterdir()) == []


def test_a_proxy_that_starts_while_its_old_directory_goes_makes_a_new_one(sessions: Path) -> None:
    directory = sessions / "mine"
    command = [sys.executable, "-c", REMOVER, str(sessions)]
    with subprocess.Popen(
        command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as remover:
        assert remover.stdout is not None
        assert remover.stdin is not None
        assert remover.stdout.readline()
        for _ in range(10):
            aged(directory)
            remover.stdin.write(b"\n")
            hold = SessionLock.of(directory)
            assert hold is not None
            assert remover.stdout.readline()
            assert os.path.samestat(directory.stat(), os.fstat(hold.descriptor))
            hold.release()
        remover.stdin.close()


def live_check(installation: Installation, **variables: str) -> subprocess.CompletedProcess[str]:
    installation.write_policy()
    command = [*PROXY, "check", "--live", "--config", config(installation)]
    return program.run(command, {**installation.environment(), **variables})


def test_check_live_leaves_no_directory_unless_there_is_something_to_read(
    scripted: Installation, sessions: Path
) -> None:
    elsewhere = scripted.variables
    elsewhere["SESSION_LOG_PATH"] = ""
    live_check(scripted)
    assert list(sessions.iterdir()) == []
    scripted.add_server("broken", ["/bin/sh", "-c", "echo no >&2; exit 3"])
    live_check(scripted)
    (left,) = sessions.iterdir()
    assert "[broken] no" in (left / "session.log").read_text()


def test_check_live_leaves_a_directory_that_was_there(
    scripted: Installation, sessions: Path
) -> None:
    mine = aged(sessions / "mine")
    live_check(scripted, SESSION_LOG_PATH="", IRONCURTAIN_SESSION_ID="mine")
    assert (mine / "session.log").exists()
