"""State files of sessions that are torn, or hold something else."""

from pathlib import Path

import pytest

from ironcurtain_proxy.sessions import FILE_NAME, running_sessions
from tests.sessions.session_fixture import SESSION, a_session

DAMAGED = {
    "empty": b"",
    "torn": b'{"pid": 1, "startTi',
    "another form": b"[]",
    "no UTF-8": b'{"pid": 1, "startTime": "\xff"}',
    "nested without end": b'{"x":' + b"[" * 100_000,
}


@pytest.mark.parametrize("raw", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_state_file_is_no_session_and_hides_no_other(tmp_path: Path, raw: bytes) -> None:
    home, box = tmp_path / "home", tmp_path / "box"
    home.mkdir()
    sessions = a_session(home, box).session_dir.parent
    damaged = sessions / "a-damaged-one"
    damaged.mkdir()
    (damaged / FILE_NAME).write_bytes(raw)
    assert [one.session for one in running_sessions(sessions)] == [SESSION]
