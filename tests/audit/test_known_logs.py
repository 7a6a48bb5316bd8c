"""A log that only one client's environment names is found by who asks later."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.audit import known_logs
from ironcurtain_proxy.audit.files import head_path, lock_path
from ironcurtain_proxy.audit.known_logs import MOST_LOGS, all_logs, note_log
from ironcurtain_proxy.cli import main
from tests.audit.specimens import write_log
from tests.audit.test_family import at, write
from tests.e2e.installation import Installation

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AUDIT_LOG_PATH", raising=False)
    return tmp_path / "home/.ironcurtain"


@pytest.fixture
def other(tmp_path: Path, state: Path) -> Path:
    """A log of two calls elsewhere, noted."""
    path = tmp_path / "elsewhere/audit.jsonl"
    write(path, at(1), at(2))
    note_log(state, path)
    return path


@pytest.fixture
def audit(state: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    assert not (state / "audit.jsonl").exists()

    def command(*arguments: str) -> tuple[int, str, str]:
        code = main(["audit", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def notes(state: Path) -> set[str]:
    return {note.name for note in (state / "audit-logs").iterdir()}


def plant(state: Path, path: bytes) -> Path:
    """A note that somebody else wrote."""
    note = state / "audit-logs" / hashlib.sha256(path).hexdigest()[:32]
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    note.write_bytes(path)
    return note


def test_a_log_that_a_proxy_was_told_by_its_client_is_read_by_all_commands(
    tmp_path: Path, audit: Command
) -> None:
    installation = Installation(tmp_path)
    installation.add_scripted()
    installation.allow_scripted()
    log = installation.root / "of one client.jsonl"
    try:
        installation.start(AUDIT_LOG_PATH=str(log)).call("echo", {"text": "hello"})
    finally:
        installation.end()
    assert orjson.loads(audit("stats", "--json")[1])["calls"] == 1
    number = audit("tail")[1].splitlines()[1].split()[0]
    assert "hello" in audit("show", number)[1]
    code, out, _ = audit("verify")
    assert code == 0
    assert str(log) in out


def test_both_the_users_log_and_those_elsewhere_are_one_record(
    state: Path, other: Path, audit: Command
) -> None:
    write(state / "audit.jsonl", at(3))
    write(other.with_name("audit.jsonl.4711"), at(4))
    lines = audit("tail")[1].splitlines()[1:]
    assert [line.split("/srv/")[1][0] for line in lines] == ["1", "2", "3", "4"]
    for line in lines:
        number, path = line.split()[0], line.split("/srv/")[1].split()[0]
        code, out, _ = audit("show", number)
        assert code == 0
        assert f'"path": "/srv/{path}"' in out
    other.write_bytes(other.read_bytes().replace(b"/srv/1", b"/etc/1"))
    assert audit("verify")[0] == 1
    assert audit("verify", "--log", str(state / "audit.jsonl"))[0] == 0


def test_a_log_is_read_once_whatever_leads_to_it(
    state: Path, other: Path, audit: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = state.parent / "link"
    link.symlink_to(other.parent)
    note_log(state, link / "audit.jsonl")
    monkeypatch.setenv("AUDIT_LOG_PATH", str(link / "audit.jsonl"))
    assert orjson.loads(audit("stats", "--json")[1])["calls"] == 2


def test_a_log_that_is_gone_is_passed_over_by_those_that_read_and_missed_by_verify(
    state: Path, other: Path, audit: Command
) -> None:
    write(state / "audit.jsonl", at(3))
    assert len(notes(state)) == 1
    other.unlink()
    assert orjson.loads(audit("stats", "--json")[1])["calls"] == 1
    for _ in range(2):
        code, out, _ = audit("verify")
        assert (code, f"PROBLEM  the log {other} is gone" in out) == (1, True), out
        note_log(state, state / "audit.jsonl")
    assert not orjson.loads(audit("verify", "--json")[1])["ok"]
    assert audit("verify", "--forget", str(other))[0] == 0
    assert audit("verify", "--forget", str(other))[0] == 2
    assert audit("verify")[0] == 0


def removed(log: Path) -> None:
    for one in (log, head_path(log), lock_path(log)):
        one.unlink()


def without_log(log: Path) -> None:
    log.unlink()


def without_lock(log: Path) -> None:
    for one in (log, lock_path(log)):
        one.unlink()


@pytest.mark.parametrize("remove", [removed, without_log, without_lock])
def test_the_users_own_log_is_missed_while_another_is_there(
    state: Path, other: Path, audit: Command, remove: Callable[[Path], None]
) -> None:
    own = state / "audit.jsonl"
    write_log(own, 2)
    note_log(state, own)
    assert audit("verify")[0] == 0
    remove(own)
    assert other.exists()
    code, out, _ = audit("verify")
    assert (code, f"PROBLEM  the log {own} is gone" in out) == (1, True), out


def test_a_log_of_a_second_process_whose_head_is_left_is_missed(
    state: Path, audit: Command
) -> None:
    write_log(state / "audit.jsonl", 1)
    second = state / "audit.jsonl.4711"
    write_log(second, 1)
    second.unlink()
    assert f"the log {second} is gone" in audit("verify")[1]


def test_a_log_that_is_rolled_back_together_with_its_head_is_found(
    state: Path, audit: Command
) -> None:
    own = state / "audit.jsonl"
    write_log(own, 2)
    older = {path: path.read_bytes() for path in (own, head_path(own))}
    write_log(own, 2)
    note_log(state, own)
    assert audit("verify")[0] == 0
    for path, raw in older.items():
        path.write_bytes(raw)
    code, out, _ = audit("verify")
    assert (code, "replaced by an older copy" in out) == (1, True), out


def test_a_note_that_another_proxy_is_writing_is_left_to_it(state: Path, other: Path) -> None:
    writing, left = (state / "audit-logs" / f".{name}.tmp" for name in ("writing", "left"))
    for note in (writing, left):
        note.write_bytes(b"/srv")
    os.utime(left, (0, 0))
    note_log(state, other)
    assert (writing.exists(), left.exists()) == (True, False)


def test_notes_are_for_this_user_alone(state: Path, other: Path) -> None:
    assert other.exists()
    (note,) = notes(state)
    assert (state / "audit-logs").stat().st_mode & 0o777 == 0o700
    assert (state / "audit-logs" / note).stat().st_mode & 0o777 == 0o600


def test_of_very_many_logs_those_noted_longest_ago_are_forgotten(
    state: Path, tmp_path: Path
) -> None:
    logs = [tmp_path / f"{number}.jsonl" for number in range(MOST_LOGS + 5)]
    for number, log in enumerate(logs):
        log.touch()
        lock_path(log).touch()
        note_log(state, log)
        name = hashlib.sha256(os.fsencode(log)).hexdigest()[:32]
        os.utime(state / "audit-logs" / name, (number, number))
    note_log(state, logs[-1])
    assert len(notes(state)) == MOST_LOGS
    paths = {member.path for member in all_logs(logs[-1], state)}
    assert paths == set(logs[5:])


def test_hostile_notes_do_no_harm(state: Path, other: Path, audit: Command, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    lock_path(pipe).touch()
    directory = tmp_path / "directory.jsonl"
    directory.mkdir()
    lock_path(directory).touch()
    linked = tmp_path / "linked.jsonl"
    linked.symlink_to("/proc/kmsg")
    lock_path(linked).touch()
    for path in (pipe, directory, linked):
        plant(state, os.fsencode(path))
    for raw in (b"/etc/passwd", b"/dev/zero", b"relative", b"/nul\0", b"", b"/x" * 3000, b"/\xff"):
        plant(state, raw)
    plant(state, b"/etc/hostname").rename(state / "audit-logs/other")
    (state / "audit-logs/link").symlink_to("/dev/zero")
    os.mkfifo(state / "audit-logs/pipe")
    (state / "audit-logs/directory").mkdir()
    # A rotated file of a log that is noted, which nobody could read to its end.
    os.mkfifo(other.with_name("audit.jsonl.812"))
    counted = orjson.loads(audit("stats", "--json")[1])
    assert (counted["calls"], counted["logs"]) == (2, 1)
    assert audit("verify")[0] == 0
    note_log(state, other)
    assert len(notes(state)) <= 2


def test_a_directory_of_notes_that_others_may_write_is_not_read(
    state: Path, other: Path, audit: Command
) -> None:
    write(state / "audit.jsonl", at(3))
    assert other.exists()
    (state / "audit-logs").chmod(0o777)
    assert orjson.loads(audit("stats", "--json")[1])["calls"] == 1


def test_two_logs_are_never_called_the_same(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_logs, "_SHORTEST_LABEL", 0)
    for number in range(20):
        path = tmp_path / f"{number}.jsonl"
        write(path, at(1))
        note_log(state, path)
    members = all_logs(state / "audit.jsonl", state)
    assert len({member.process for member in members}) == len(members) == 20


def test_a_proxy_that_cannot_note_its_log_serves_all_the_same(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    installation.add_scripted()
    installation.allow_scripted()
    state = installation.home / ".ironcurtain"
    state.mkdir(mode=0o700)
    (state / "audit-logs").write_text("in the way")
    try:
        answer = installation.start().call("echo", {"text": "hello"})
    finally:
        installation.end()
    assert "isError" not in answer
    assert "finds this log by its name only" in (tmp_path / "stderr-0.txt").read_text()
