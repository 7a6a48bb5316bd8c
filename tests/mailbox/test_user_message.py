"""The user's last message, as a session leaves it."""

import os
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.mailbox.session_state import (
    FILE_NAME,
    ContextFile,
    is_pty_session,
    read_user_context,
)
from tests.fakes import FakeClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)  # what FakeClock starts at


def write(directory: Path, document: object, mode: int = 0o600) -> Path:
    path = directory / FILE_NAME
    path.write_bytes(document if isinstance(document, bytes) else orjson.dumps(document))
    path.chmod(mode)
    return path


@pytest.mark.requirement("A-56", "A-44", "A-45")
def test_the_message_is_read_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path, {"userMessage": ' push "it"\n\u00e9 '})
    assert read_user_context(tmp_path) == ' push "it"\n\u00e9 '


NO_MESSAGES = {
    "not JSON": b"{userMessage",
    "empty": b"",
    "null": b"null",
    "a list": b'["userMessage"]',
    "no message": b'{"message":"x"}',
    "a number": b'{"userMessage":3}',
    "null in it": b'{"userMessage":null}',
    "an empty message": b'{"userMessage":""}',
    "a blank message": b'{"userMessage":" \\n\\t"}',
    "no UTF-8": b'{"userMessage":"\xff"}',
    "too large": b'{"userMessage":"' + b"x" * (1 << 20) + b'"}',
    "deep": b"[" * 100_000,
    "two messages": b'{"userMessage":"push","userMessage":"push"}',
}


@pytest.mark.requirement("A-54", "A-56", "A-81")
@pytest.mark.parametrize("data", NO_MESSAGES.values(), ids=NO_MESSAGES.keys())
def test_what_holds_no_message_is_no_message(tmp_path: Path, data: bytes) -> None:
    write(tmp_path, data)
    assert read_user_context(tmp_path) is None
    assert ContextFile(directory=tmp_path, clock=FakeClock())() is None


@pytest.mark.requirement("A-16", "A-56")
def test_no_file_and_no_directory_are_no_message(tmp_path: Path) -> None:
    assert read_user_context(tmp_path) is None
    assert read_user_context(tmp_path / "nowhere") is None


def test_what_is_no_regular_file_of_ours_is_not_read(tmp_path: Path) -> None:
    """A pipe must not make us wait, nor a link lead us elsewhere."""
    real = tmp_path / "elsewhere.json"
    real.write_bytes(b'{"userMessage":"push"}')
    path = tmp_path / FILE_NAME
    path.symlink_to(real)
    assert read_user_context(tmp_path) is None
    path.unlink()
    os.mkfifo(path, 0o600)
    assert read_user_context(tmp_path) is None
    path.unlink()
    path.mkdir()
    assert read_user_context(tmp_path) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_belongs_to_somebody_else_is_not_read(tmp_path: Path) -> None:
    os.chown(write(tmp_path, {"userMessage": "push"}), 12345, 12345)
    assert read_user_context(tmp_path) is None


def test_what_everybody_may_write_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, {"userMessage": "push"}, mode=0o666)
    assert read_user_context(tmp_path) is None


TRUST = {
    # (is_pty, source, seconds since it was written): trusted
    "a session of our own": ((False, None, None), True),
    "fresh": ((False, None, 10), True),
    "of two minutes ago": ((False, None, 120), True),
    "too old": ((False, None, 121), False),
    "from the future": ((False, None, -1), False),
    "a terminal, trusted and fresh": ((True, "mux-trusted-input", 10), True),
    "a terminal, trusted, without a time": ((True, "mux-trusted-input", None), False),
    "a terminal, trusted, too old": ((True, "mux-trusted-input", 121), False),
    "a terminal, somebody else": ((True, "agent", 10), False),
    "a terminal, nobody": ((True, None, 10), False),
}


@pytest.mark.parametrize(("case", "trusted"), TRUST.values(), ids=TRUST.keys())
def test_source_and_age_decide_whether_it_counts(
    tmp_path: Path, case: tuple[bool, str | None, int | None], trusted: bool
) -> None:
    """G6."""
    is_pty, source, age = case
    document: dict[str, object] = {"userMessage": "push"}
    if source is not None:
        document["source"] = source
    if age is not None:
        document["timestamp"] = "2026-01-01T00:00:00.000Z"
    write(tmp_path, document)
    clock = FakeClock(seconds=age or 0)
    read = ContextFile(directory=tmp_path, clock=clock, is_pty=is_pty)()
    assert (read is not None) is trusted
    if read is not None:
        assert read.text == "push"


def test_optional_fields_of_the_wrong_type_count_as_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"userMessage": "push", "source": 3, "timestamp": ["now"]})
    assert ContextFile(directory=tmp_path, clock=FakeClock())() is not None
    assert ContextFile(directory=tmp_path, clock=FakeClock(), is_pty=True)() is None


def test_a_time_that_is_none_counts_as_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"userMessage": "push", "timestamp": "this morning"})
    assert ContextFile(directory=tmp_path, clock=FakeClock())() is not None


def test_message_and_trust_come_from_one_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G7."""
    path = write(tmp_path, {"userMessage": "push"})
    opened: list[object] = []
    real_open = os.open

    def counting(target: object, *args: int, **more: int) -> int:
        if target == path:
            opened.append(target)
        return real_open(path if target == path else str(target), *args, **more)

    monkeypatch.setattr(os, "open", counting)
    assert ContextFile(directory=tmp_path, clock=FakeClock())() is not None
    assert len(opened) == 1


@pytest.mark.requirement("A-47", "A-19")
def test_the_next_turn_takes_the_place_of_the_last(tmp_path: Path) -> None:
    source = ContextFile(directory=tmp_path, clock=FakeClock())
    path = write(tmp_path, {"userMessage": "push"})
    os.utime(path, ns=(1, 1))
    first = source()
    write(tmp_path, {"userMessage": "push"})
    second = source()
    assert first is not None
    assert second is not None
    assert first.text == second.text
    assert first.turn != second.turn


def test_a_terminal_session_is_one_that_says_1() -> None:
    """G6."""
    assert is_pty_session({"IRONCURTAIN_PTY_SESSION": "1"})
    assert not is_pty_session({"IRONCURTAIN_PTY_SESSION": "true"})
    assert not is_pty_session({})


@given(data=st.binary(max_size=200))
def test_no_bytes_make_it_raise(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    directory = tmp_path_factory.mktemp("context")
    write(directory, data)
    read_user_context(directory)
    ContextFile(directory=directory, clock=FakeClock(), is_pty=True)()
