"""What servers print: always drained, masked, bounded, and never anybody's trouble."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.downstream import session_log
from ironcurtain_proxy.downstream.environment import Masker
from ironcurtain_proxy.downstream.process import StderrDrain
from ironcurtain_proxy.downstream.session_log import OutputLimit, SessionLog
from tests.downstream.scripted_servers import OPTIONS, running, scripted, text_of
from tests.program import PATIENCE, until

pytestmark = pytest.mark.anyio


def logged(
    path: Path, data: bytes, secrets: tuple[str, ...] = (), ration: OutputLimit | None = None
) -> str:
    """What is in the log after a server named `s` has printed this and ended."""
    log = SessionLog(path)
    read, write = os.pipe()
    drain = StderrDrain("s", read, Masker(secrets), log, ration or OutputLimit())
    view = memoryview(data)
    while view:
        view = view[os.write(write, view) :]
    os.close(write)
    drain.join(PATIENCE)
    log.close()
    return path.read_text(encoding="utf-8") if path.exists() else ""


def test_every_line_bears_the_servers_name_and_the_last_needs_no_newline(tmp_path: Path) -> None:
    assert logged(tmp_path / "log", b"one\ntwo\r\n\nthree") == "[s] one\n[s] two\n[s] \n[s] three\n"


def test_control_characters_cannot_play_tricks_on_a_terminal(tmp_path: Path) -> None:
    text = logged(tmp_path / "log", "a\x1b[2Jb\x00\tc\x7f\u202ed\xff".encode() + b"\xff\rf\n")
    assert text == "[s] a\\x1b[2Jb\\x00\tc\\x7f\\u202edÿ\\xff\\x0df\n"


def test_a_line_without_end_is_broken_up(tmp_path: Path) -> None:
    text = logged(tmp_path / "log", b"x" * 300_000)
    lines = text.splitlines()
    assert sum(len(line) - len("[s] ") for line in lines) == 300_000
    assert max(map(len, lines)) < 100_000


def test_no_more_is_kept_of_one_server_than_the_disk_can_bear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_log, "_MOST_PRINTED", 1 << 20)
    ration = OutputLimit()
    text = logged(tmp_path / "log", b"0123456789abcde\n" * 500_000, ration=ration)
    assert len(text) < 2 << 20
    assert text.count("no more is kept)\n") == 1
    kept = text.count("0123456789abcde\n")
    assert text.endswith(f"[s] ({500_000 - kept} lines left out)\n")
    again = logged(tmp_path / "log", b"after a restart\n" * 1000, ration=ration)
    assert again.removeprefix(text) == "[s] (1000 lines left out)\n"


def test_what_one_server_prints_in_a_rush_is_cut_and_counted(tmp_path: Path) -> None:
    ration = OutputLimit(clock=lambda: 0.0)
    text = logged(tmp_path / "log", b"0123456789abcde\n" * 1_000_000, ration=ration)
    kept = text.count("0123456789abcde\n")
    assert 100_000 < kept < 400_000
    assert text.endswith(f"[s] ({1_000_000 - kept} lines left out)\n")


def test_escapes_and_names_count_as_the_bytes_that_they_are_in_the_log(tmp_path: Path) -> None:
    for data in (b"\0" * (8 << 20), b"\n" * (8 << 20)):
        path = tmp_path / f"log{data[0]}"
        assert len(logged(path, data, ration=OutputLimit(clock=lambda: 0.0))) < 5 << 20


def test_a_server_that_was_cut_is_heard_again(tmp_path: Path) -> None:
    seconds = 0.0
    ration = OutputLimit(clock=lambda: seconds)
    logged(tmp_path / "log", b"0123456789abcde\n" * 1_000_000, ration=ration)
    seconds = 60.0
    assert logged(tmp_path / "log", b"hello\n", ration=ration).endswith("[s] hello\n")


def test_a_full_log_is_set_aside_once_by_all_who_write_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_log, "_MOST", 10_000)
    path = tmp_path / "log"
    one, two = SessionLog(path), SessionLog(path)
    for number in range(2000):
        (one if number % 2 else two).write("s", f"line {number}")
    text = path.read_text()
    aside = (tmp_path / "log.1").read_text()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["log", "log.1"]
    assert len(text) <= 10_000
    assert len(aside) <= 10_000
    numbers = [int(line.rpartition(" ")[2]) for line in (aside + text).splitlines()]
    assert numbers == list(range(numbers[0], 2000))


@pytest.mark.parametrize("how", ["directory in the way", "link"])
def test_a_full_log_that_cannot_be_set_aside_stops_growing_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(session_log, "_MOST", 10_000)
    path, file = tmp_path / "log", tmp_path / "log"
    if how == "link":
        file = tmp_path / "elsewhere" / "file"
        file.parent.mkdir()
        path.symlink_to(file)
    else:
        (tmp_path / "log.1" / "x").mkdir(parents=True)
    log = SessionLog(path)
    for number in range(2000):
        log.write("s", f"line {number:04}")
    kept = file.read_text()
    assert len(kept) <= 10_000
    os.truncate(file, 0)
    log.write("s", "room again")
    lost = 2000 - len(kept.splitlines())
    assert file.read_text() == f"({lost} lines left out: the log was full)\n[s] room again\n"


def test_the_log_is_the_owners_alone_also_if_it_was_not_before(tmp_path: Path) -> None:
    path = tmp_path / "new" / "log"
    SessionLog(path).close()
    path.chmod(0o644)
    SessionLog(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("path", [None, Path("/dev/full"), Path("/proc/nowhere/log")])
async def test_a_flood_is_drained_whether_or_not_it_can_be_logged(path: Path | None) -> None:
    options = replace(OPTIONS, session_log=path)
    async with running(options=options) as servers:
        assert await text_of(servers, "flood", {"kib": 20_000, "end": ""}) == "flooded"


async def test_a_log_that_is_a_pipe_nobody_reads_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    options = replace(OPTIONS, session_log=tmp_path / "pipe")
    async with running(options=options) as servers:
        assert await text_of(servers, "flood", {"kib": 2000}) == "flooded"


async def test_secrets_are_masked_also_if_they_come_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "log"
    options = replace(OPTIONS, session_log=path)
    server = scripted(credentials={"X": "hunter2hunter2"}, env={"GITHUB_TOKEN": "ghp_1234"})
    async with running(server, options=options) as servers:
        await text_of(servers, "say", {"text": "is hunt|er2hun|ter2 and ghp_|1234!\n"})
        await text_of(servers, "raw", {"bytes": "out hunter2hunter2 ghp_1234\n", "answer": True})
    text = path.read_text(encoding="utf-8")
    assert "[one] is ***REDACTED*** and ***REDACTED***!\n" in text
    assert "that is not JSON: out ***REDACTED*** ***REDACTED***\n" in text


async def test_a_flood_of_garbage_on_stdout_does_not_fill_the_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    options = replace(OPTIONS, session_log=path)
    async with running(options=options) as servers:
        await text_of(servers, "raw", {"bytes": "garbage\n" * 10_000, "answer": True})
    assert path.stat().st_size < 4096


async def test_the_last_words_of_a_crash_are_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    options = replace(OPTIONS, session_log=path)
    async with running(options=options) as servers:
        await text_of(servers, "say", {"text": "dying"})
        with pytest.raises(Exception, match="ended"):
            await text_of(servers, "crash")
        await until(lambda: servers.status()["one"].starts == 2)
    text = path.read_text(encoding="utf-8")
    assert "[one] dying\n" in text
    assert '[one] (proxy) server "one" ended: it exited with status 3' in text


async def test_a_server_that_ends_says_its_last_words_and_where_the_log_is(tmp_path: Path) -> None:
    path = tmp_path / "log"
    options = replace(OPTIONS, session_log=path)
    code = "import sys; sys.exit('Traceback\\nModuleNotFoundError: hunter2 \x1b[2J\\n\\n')"
    server = replace(scripted(credentials={"X": "hunter2"}), args=("-I", "-S", "-c", code))
    async with running(server, options=options) as servers:
        await servers.tools()
        why = servers.status()["one"].error
    assert why == (
        'server "one" ended: it exited with status 1; it said last: "ModuleNotFoundError: '
        f'***REDACTED*** \\x1b[2J" (log: {path})'
    )


NODE = b"""node:internal/fs/utils:356
    throw err;
    ^

Error: ENOENT: no such file or directory, mkdir '/home/u/.desk'
    at Object.mkdirSync (node:fs:1364:3) {
  errno: -2,
  code: 'ENOENT'
}

Node.js v22.23.3
"""
PYTHON = b"""Traceback (most recent call last):
  File "/x.py", line 1, in <module>
    raise ValueError("first: Error: no")
ModuleNotFoundError: No module named 'mcp'
"""


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (NODE, "Error: ENOENT: no such file or directory, mkdir '/home/u/.desk'"),
        (PYTHON, "ModuleNotFoundError: No module named 'mcp'"),
        (b"Cannot find the database\nUsage: x\n", "Cannot find the database"),
        (b"fatal: not a git repository\nbye\n", "fatal: not a git repository"),
        (b"Error: old\nError: new\nNode.js v22\n", "Error: new"),
        (b"API key is required\nsee https://x\n", "API key is required"),
        (b"thread 'main' panicked at src/main.rs:1:\nnote: run with RUST_BACKTRACE=1\n",
         "thread 'main' panicked at src/main.rs:1:"),
        (b"npm error 404 no x.\nnpm error A complete log of this run can be found in: /h\n",
         "npm error 404 no x."),
        (b"no words of trouble\nonly these\n", "only these"),
    ],
)  # fmt: skip
def test_last_words_name_the_error_rather_than_what_came_after_it(
    printed: bytes, words: str
) -> None:
    test_last_words_are_the_last_line_that_says_something(printed, words)


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (b"", ""),
        (b"a\nb\n \n\n", "b"),
        (b"a\r\n", "a"),
        (b"x" * 5000, "x" * 200 + "\u2026"),
        (b"Error: no\n    at Error: y (x.js)\n  code: 'E'\n}\n\nNode.js v22.23.3\n", "Error: no"),
        (b"Cannot open it\nbye\n", "Cannot open it"),
    ],
    ids=["nothing", "blank lines", "carriage return", "long", "node", "its reason"],
)
def test_last_words_are_the_last_line_that_says_something(printed: bytes, words: str) -> None:
    read, write = os.pipe()
    drain = StderrDrain("s", read, Masker(()), SessionLog(), OutputLimit())
    os.write(write, printed)
    os.close(write)
    drain.join(PATIENCE)
    assert drain.last_words == words
