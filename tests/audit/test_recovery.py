"""A log is opened by one process alone, whole or repaired, and its chain goes on."""

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.audit import recovery
from ironcurtain_proxy.audit.files import head_path, head_text, lock_path, read_head
from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.records import Link
from ironcurtain_proxy.audit.recovery import open_log, refuse_unusable
from ironcurtain_proxy.audit.verify import verify
from ironcurtain_proxy.audit.writer import LogSettings
from ironcurtain_proxy.errors import ConfigurationError
from tests.audit.specimens import lines_of, write_log


def test_a_new_log_and_its_directories_are_for_their_owner_alone(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        log = write_log(tmp_path / "a" / "b" / "audit.jsonl", 1)
    finally:
        os.umask(previous)
    for path in (log.path, head_path(log.path), lock_path(log.path)):
        assert path.stat().st_mode & 0o777 == 0o600
    for directory in (tmp_path / "a", tmp_path / "a" / "b"):
        assert directory.stat().st_mode & 0o777 == 0o700


def test_a_log_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.touch(0o644)
    write_log(path, 1)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.requirement("C-35")
def test_what_stands_in_a_log_stays_there(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 3)
    before = path.read_bytes()
    log = write_log(path, 2, first=4)
    assert path.read_bytes().startswith(before)
    assert log.notices == ()
    assert [line["seq"] for line in lines_of(path)] == [1, 2, 3, 4, 5]
    assert verify(path).problems == ()


# --- what is refused -----------------------------------------------------------------------------


def refusal(path: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        AuditLog.open(path)
    assert "\n" not in str(caught.value)
    assert "AUDIT_LOG_PATH" in str(caught.value)
    return str(caught.value)


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious\n", encoding="utf-8")
    path = tmp_path / "audit.jsonl"
    path.symlink_to(target)
    assert "symbolic link" in refusal(path)
    assert target.read_text(encoding="utf-8") == "precious\n"
    target.unlink()
    assert "symbolic link" in refusal(path)
    assert not target.exists()


def test_a_link_in_the_place_of_the_lock_or_the_head_is_not_followed(tmp_path: Path) -> None:
    path, target = tmp_path / "audit.jsonl", tmp_path / "target"
    target.write_text("precious\n", encoding="utf-8")
    lock_path(path).symlink_to(target)
    refusal(path)
    lock_path(path).unlink()
    head_path(path).with_name("audit.jsonl.head.new").symlink_to(target)
    assert "audit.jsonl.head cannot be written" in refusal(path)
    assert target.read_text(encoding="utf-8") == "precious\n"


def test_a_pipe_is_refused_and_nobody_waits_for_its_reader(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    os.mkfifo(path)
    assert "not a regular file" in refusal(path)


def test_a_device_is_refused_and_nothing_is_put_beside_it() -> None:
    assert "not a regular file" in refusal(Path("/dev/null"))
    assert not Path("/dev/null.lock").exists()


def test_a_full_disk_is_said_with_its_remedy_and_not_with_that_of_a_wrong_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for part, look in (("write_head", open_log), ("try_writing", refuse_unusable)):
        with monkeypatch.context() as patched:
            patched.setattr(recovery, part, fill)
            with pytest.raises(
                ConfigurationError, match=r"No space left.*; make space on its disk"
            ):
                look(tmp_path / "audit.jsonl")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert "not a regular file" in refusal(tmp_path)


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert str(tmp_path / "file" / "audit.jsonl") in refusal(tmp_path / "file" / "audit.jsonl")


def test_a_directory_that_cannot_be_written_is_refused() -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o555)
        if os.geteuid() != 0:
            assert "Permission denied" in refusal(Path(directory) / "audit.jsonl")
            return
        os.seteuid(65534)
        try:
            said = refusal(Path(directory) / "audit.jsonl")
        finally:
            os.seteuid(0)
    assert "Permission denied" in said


def test_the_log_of_another_user_is_refused() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        path = Path(directory) / "audit.jsonl"
        path.touch()
        path.chmod(0o666)
        os.seteuid(65534)
        try:
            assert "another user" in refusal(path)
        finally:
            os.seteuid(0)


# --- one process, one file -----------------------------------------------------------------------

HOLDER = """
import sys
from ironcurtain_proxy.audit.log import AuditLog
log = AuditLog.open(sys.argv[1])
print(log.path, *log.notices, sep="\\n", flush=True)
sys.stdin.read()
"""


def test_a_second_process_writes_a_log_of_its_own_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    first = AuditLog.open(path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as second:
        own = f"{path}.{second.pid}"
        said, _ = second.communicate("")
    first.close()
    assert said.splitlines()[0] == own
    assert (
        said.splitlines()[1]
        == f"audit log {path} is in use by another process; writing {own} instead"
    )


def test_the_lock_is_free_after_close(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for _ in range(3):
        log = AuditLog.open(path)
        assert log.path == path
        log.close()


def test_the_lock_outlives_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path, LogSettings(max_bytes=1))
    path.rename(tmp_path / "audit.jsonl.000001")
    other = AuditLog.open(path)
    assert other.path != path
    other.close()
    log.close()


def test_a_program_that_we_start_does_not_inherit_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        log.close()
        again = AuditLog.open(path)
        child.kill()
    assert again.path == path
    again.close()


def test_the_log_of_another_process_is_not_taken_for_a_rotated_one(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 2)
    write_log(tmp_path / "audit.jsonl.4711", 3)
    assert verify(path).lines == 2
    assert verify(path).files == 1


# --- after a crash -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "torn", [b'{"timestamp":"20', b"\0" * 5000, b"{" * 200_000, b'{"seq":9', b"\xff\xfe", b"{}"]
)
def test_a_torn_last_line_is_set_aside_and_the_chain_goes_on(tmp_path: Path, torn: bytes) -> None:
    """G20."""
    path = tmp_path / "audit.jsonl"
    write_log(path, 3)
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    log = write_log(path, 1, first=4)
    assert path.read_bytes().startswith(whole)
    (kept,) = tmp_path.glob("audit.jsonl.torn-*")
    assert kept.read_bytes() == torn
    assert kept.stat().st_mode & 0o777 == 0o600
    assert len(log.notices) == 1
    assert str(kept) in log.notices[0]
    assert verify(path).problems == ()
    assert verify(path).last.seq == 4


def test_a_log_that_is_nothing_but_a_torn_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"timest')
    write_log(path, 2)
    assert verify(path).problems == ()
    assert verify(path).lines == 2


def test_each_torn_line_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for number in range(3):
        path.write_bytes((path.read_bytes() if path.exists() else b"") + b"torn%d" % number)
        os.utime(path, (1000, 1000))
        AuditLog.open(path).close()
    kept = sorted(tmp_path.glob("audit.jsonl.torn-*"))
    assert [one.read_bytes() for one in kept] == [b"torn0", b"torn1", b"torn2"]


def test_a_line_that_lacks_only_its_end_is_completed(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 3)
    path.write_bytes(path.read_bytes()[:-1])
    log = write_log(path, 1, first=4)
    assert "added" in log.notices[0]
    assert len(lines_of(path)) == 4
    assert verify(path).problems == ()


def test_a_log_in_use_is_not_repaired_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path)
    with path.open("ab") as file:
        file.write(b"half a li")
    AuditLog.open(path).close()
    assert path.read_bytes() == b"half a li"
    log.close()


def test_a_crash_between_the_two_steps_of_a_rotation_is_survived(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 3)
    path.rename(tmp_path / "audit.jsonl.000001")
    head_path(path).write_bytes(head_text(Link(1, "ab" * 32)))
    log = write_log(path, 2, first=4)
    assert log.notices == ()
    assert [line["seq"] for line in lines_of(path)] == [4, 5]


def test_a_head_file_that_is_behind_does_not_hold_the_chain_back(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 2)
    # Of a process that was killed, which did not close the log.
    behind = head_path(path).read_bytes().replace(b',"closed":true', b"")
    write_log(path, 2, first=3)
    head_path(path).write_bytes(behind)
    assert verify(path).problems == ()
    write_log(path, 1, first=5)
    assert verify(path).problems == ()
    assert verify(path).last.seq == 5


# --- after someone was at it ---------------------------------------------------------------------


def cut_last(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))


def edit_last(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200].replace(b"srv", b"etc") + path.read_bytes()[-200:])


@pytest.mark.parametrize(
    "tamper", [cut_last, edit_last, Path.unlink, lambda path: path.write_bytes(b"")]
)
def test_going_on_after_a_cut_does_not_launder_it(
    tmp_path: Path, tamper: Callable[[Path], object]
) -> None:
    """The chain goes on from the line that the head file knows: the gap stays."""
    path = tmp_path / "audit.jsonl"
    write_log(path, 6)
    tamper(path)
    log = write_log(path, 3, first=7)
    if tamper is not edit_last:
        assert "verify" in log.notices[0]
    assert verify(path).problems
    write_log(path, 3, first=10)
    assert verify(path).problems


def test_a_damaged_head_file_is_said_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 2)
    for damaged in (b"", b"[]", b'{"seq":"2"}', b"\xff"):
        head_path(path).write_bytes(damaged)
        log = write_log(path, 1, first=3)
        assert "head file" in log.notices[0]
        assert read_head(path) is not None
    assert verify(path).problems == ()


def test_a_log_of_the_original_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    old = orjson.dumps({"timestamp": "2026-01-01T00:00:00.000Z", "requestId": "x"}) + b"\n"
    path.write_bytes(old * 3)
    write_log(path, 2)
    write_log(path, 2, first=3)
    assert path.read_bytes().startswith(old * 3)
    verdict = verify(path)
    assert verdict.problems == ()
    assert verdict.last.seq == 4
    assert verdict.notes == ("3 lines from before the chain began are not covered",)


def test_a_line_that_is_no_record_does_not_keep_the_log_from_opening(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 2)
    path.write_bytes(path.read_bytes() + b"\x00garbage\n")
    opened = open_log(path)
    os.close(opened.file)
    os.close(opened.lock)
    # It stands after the line with which the log was closed, and is not continued.
    assert opened.last.seq == 2
    write_log(path, 1, first=3)
    assert "line 3 is not a record" in str(
        [f"{one.where} {one.what}" for one in verify(path).problems]
    ).replace("audit.jsonl ", "")
