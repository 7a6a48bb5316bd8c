"""What a person, and a program, see of the log."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import orjson
import pytest

from ironcurtain_proxy.audit.calls import LogFollower
from ironcurtain_proxy.audit.known_logs import Member
from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.verify import verify
from ironcurtain_proxy.audit.writer import LogSettings
from ironcurtain_proxy.cli import main
from ironcurtain_proxy.model.reply import AuditRecord, ResultSummary
from tests.audit.specimens import intent, record, write_log

Command = Callable[..., tuple[int, str, str]]

DAY: tuple[AuditRecord, ...] = (
    intent(1),
    record(1),
    record(
        2,
        {
            "effect": "deny",
            "rule": "protected-path",
            "reason": "~/.ssh is protected",
            "arguments": {"path": "/home/joe/.ssh/id_rsa"},
            "result": ResultSummary(status="denied", error="~/.ssh is protected"),
            "duration_ms": 0,
        },
    ),
    record(
        3,
        {
            "effect": "escalate",
            "escalation_result": "denied",
            "rule": "ask-outside",
            "reason": "Writing outside needs a review",
            "result": ResultSummary(status="denied"),
        },
    ),
    intent(4, {"effect": "escalate", "escalation_result": "approved", "decided_by": "human"}),
    record(4, {"effect": "escalate", "escalation_result": "approved", "decided_by": "human"}),
    intent(5),
    record(5, {"result": ResultSummary(status="error", error="ENOENT: \x1b[2J\nno such file")}),
    intent(6, {"tool": "read_\u202etxt.exe"}),
)


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times are shown as the clock on the wall shows them: here it shows UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """What was recorded on one day; the last call never came to an end."""
    one = AuditLog.open(tmp_path / "audit.jsonl", LogSettings(max_bytes=2000))

    async def write() -> None:
        for entry in DAY:
            await one.record(entry)

    anyio.run(write)
    one.close()
    return one.path


@pytest.fixture
def audit(log: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `ironcurtain-proxy audit …` on that log."""

    def command(*arguments: str) -> tuple[int, str, str]:
        code = main(["audit", *arguments, "--log", str(log)])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def test_tail_shows_one_aligned_line_a_call(audit: Command) -> None:
    code, out, _ = audit("tail")
    assert code == 0
    lines = out.splitlines()
    titles = lines[0].replace("(UTC)", "").split()
    assert titles == ["NO", "TIME", "DECISION", "BY", "SERVER/TOOL", "RULE", "ARGUMENT", "OUTCOME"]
    assert [line.split()[:5] for line in lines[1:]] == [
        ["2", "2026-11-21", "12:00:00", "allowed", "policy"],
        ["3", "2026-11-21", "12:00:00", "DENIED", "policy"],
        ["4", "2026-11-21", "12:00:00", "REFUSED", "policy"],
        ["6", "2026-11-21", "12:00:00", "approved", "person"],
        ["8", "2026-11-21", "12:00:00", "allowed", "policy"],
        ["9", "2026-11-21", "12:00:00", "allowed", "policy"],
    ]
    assert lines[1].endswith("ok, 3 ms")
    assert lines[2].endswith("~/.ssh is protected")
    assert lines[6].endswith("no outcome recorded")
    column = lines[0].index("OUTCOME")
    assert {line[column - 2 : column] for line in lines} == {"  "}


def test_what_would_move_a_terminal_is_escaped(audit: Command) -> None:
    for command in (("tail",), ("show", str(record(5).request_id)), ("show", "9"), ("stats",)):
        _, out, _ = audit(*command)
        assert "\x1b" not in out
        assert "\u202e" not in out
    assert r"ENOENT: \x1b[2J\nno such file" in audit("tail")[1]
    assert r"read_\u202etxt" in audit("tail")[1]


def test_tail_shows_as_many_calls_as_asked_for_across_rotated_files(audit: Command) -> None:
    assert len(audit("tail", "-n", "2")[1].splitlines()) == 3
    assert len(audit("tail", "-n", "0")[1].splitlines()) == 1
    raw = audit("tail", "--json", "-n", "4")[1].splitlines()
    assert [orjson.loads(line)["seq"] for line in raw] == [6, 7, 8, 9]


def test_tail_follows_a_growing_log_through_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 2)
    with subprocess.Popen(
        [sys.executable, "-m", "ironcurtain_proxy", "audit", "tail", "-f", "--log", str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        shown = process.stdout
        try:
            assert shown is not None
            assert shown.readline().startswith("NO")
            assert "/srv/1.txt" in shown.readline()
            write_log(path, 2, first=3)
            assert "/srv/3.txt" in shown.readline()
            write_log(path, 10, LogSettings(max_bytes=1500), first=5)
            for number in (5, 7, 9, 11, 13):
                assert f"/srv/{number}.txt" in shown.readline()
        finally:
            process.kill()


def test_show_prints_intent_and_outcome_of_one_call(audit: Command) -> None:
    code, out, _ = audit("show", str(record(4).request_id))
    assert code == 0
    assert len(re.findall(r"^audit\.jsonl\S* line \d+$", out, re.MULTILINE)) == 2
    assert "approved" in out
    assert '"path": "/srv/4.txt"' in out
    raw = audit("show", "3", "--json")[1]
    assert orjson.loads(raw)["seq"] == 3


def test_show_takes_what_tail_prints_and_shows_the_whole_call(audit: Command) -> None:
    for line in audit("tail")[1].splitlines()[1:]:
        number = line.split()[0]
        code, out, _ = audit("show", number, "--json")
        assert code == 0
        lines = [orjson.loads(raw) for raw in out.splitlines()]
        assert number in {str(one["seq"]) for one in lines}
        assert len({one["requestId"] for one in lines}) == 1
        assert len(lines) == {"3": 1, "4": 1, "9": 1}.get(number, 2)


def test_show_takes_the_beginning_of_an_id(audit: Command) -> None:
    whole = str(record(4).request_id)
    code, out, _ = audit("show", whole[:-1], "--json")
    assert code == 0
    assert len(out.splitlines()) > 2
    code, out, err = audit("show", "75b32e3b")
    assert (code, out) == (1, "")
    assert err.startswith("ironcurtain-proxy: 6 calls begin with 75b32e3b")
    assert audit("show", whole)[1].count(whole) == 2


def test_show_says_when_there_is_no_such_call(audit: Command) -> None:
    code, out, err = audit("show", "no-such-\x1bid")
    assert (code, out) == (1, "")
    assert r"no record no-such-\x1bid" in err


def test_verify_says_that_a_log_is_whole_and_lists_what_is_open(audit: Command, log: Path) -> None:
    code, out, _ = audit("verify")
    assert code == 0
    assert f"no outcome of call {intent(6).request_id}" in out
    assert "9 lines in 3 files, as they were written" in out
    assert verify(log).last.digest in out


def test_verify_exits_1_and_names_the_line(audit: Command, log: Path) -> None:
    first = log.with_name("audit.jsonl.000001")
    first.write_bytes(first.read_bytes().replace(b"/srv/1", b"/etc/1", 1))
    code, out, _ = audit("verify")
    assert code == 1
    assert (
        "PROBLEM  audit.jsonl.000001 line 2: does not follow from audit.jsonl.000001 line 1" in out
    )
    assert "NOT WHOLE" in out
    code, out, _ = audit("verify", "--json")
    assert code == 1
    assert orjson.loads(out)["ok"] is False


def test_verify_takes_an_anchor(audit: Command, log: Path) -> None:
    anchor = verify(log).last.digest
    assert audit("verify", "--expect", anchor.upper())[0] == 0
    assert audit("verify", "--expect", "ab" * 32)[0] == 1
    code, out, err = audit("verify", "--expect", "abc")
    assert (code, out) == (2, "")
    assert "64 hexadecimal digits" in err


def test_stats_count_every_call_once(audit: Command) -> None:
    code, out, _ = audit("stats", "--json")
    assert code == 0
    counted = orjson.loads(out)
    assert counted["calls"] == 5
    assert counted["decisions"] == {"allowed": 2, "DENIED": 1, "REFUSED": 1, "approved": 1}
    assert counted["results"] == {"success": 2, "denied": 2, "error": 1}
    assert counted["unfinished"] == 1
    assert counted["medianMs"] == 5
    assert "5 calls, 2026-11-21 12:00:00 to" in audit("stats")[1]


@pytest.mark.parametrize(
    "command", [["tail"], ["tail", "-f"], ["show", "1"], ["verify"], ["stats"]]
)
def test_a_log_that_is_not_there_is_one_line_and_exit_2(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", *command, "--log", str(tmp_path / "none.jsonl")]) == 2
    out, err = capsys.readouterr()
    assert err.count("none.jsonl") == 1
    assert err.count("\n") == 1
    assert out == ""


@pytest.mark.parametrize("name", ["audit.jsonl", "audit.jsonl.000001", "audit.jsonl.head"])
@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_or_a_device_in_the_place_of_a_file_holds_no_reader(
    audit: Command, log: Path, name: str, put: Callable[[Path], None]
) -> None:
    log.with_name(name).unlink()
    put(log.with_name(name))
    for command in (("verify",), ("stats",), ("tail", "-n", "100"), ("show", "1")):
        code, _, err = audit(*command)
        is_read = command[0] == "verify" or not name.endswith(".head")
        assert (code, "it is not a regular file" in err) == ((2, True) if is_read else (0, False))


def test_a_log_that_is_cut_off_while_it_is_followed_is_followed_from_there(log: Path) -> None:
    follower = LogFollower(lambda: (Member(log),))
    log.write_bytes(b'{"requestId":"begun anew"}\n')
    assert [line for _, line in follower.new_lines()] == [b'{"requestId":"begun anew"}']
    for written, shown in ((b"x" * (2 << 20), []), (b"\n{}\n", [b"", b"{}"])):
        with log.open("ab") as file:
            file.write(written)
        assert [line for _, line in follower.new_lines()] == shown


def test_the_log_is_found_as_the_proxy_finds_it(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUDIT_LOG_PATH", str(log))
    assert main(["audit", "verify"]) == 0
    monkeypatch.setenv("AUDIT_LOG_PATH", "/nowhere")
    assert main(["audit", "verify", str(log)]) == 0
    monkeypatch.delenv("AUDIT_LOG_PATH")
    monkeypatch.setenv("HOME", str(log.parent))
    (log.parent / ".ironcurtain").mkdir()
    write_log(log.parent / ".ironcurtain" / "audit.jsonl", 2)
    assert main(["audit", "verify"]) == 0
    assert "2 lines" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["tail", "show", "verify", "stats"])
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["audit", command, "--help"])
    assert caught.value.code == 0
    assert f"ironcurtain-proxy audit {command}" in capsys.readouterr().out.split("example")[1]


def test_a_log_of_another_program_is_shown_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.jsonl"
    path.write_bytes(b'not JSON\n[]\n{}\n{"policyDecision":7,"arguments":[],"seq":"x"}\n')
    for command in ("tail", "stats"):
        assert main(["audit", command, str(path)]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_a_log_of_other_lines_is_not_shown_as_an_empty_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_text("garbage\n")
    assert main(["audit", "tail", "--log", str(log)]) == 0
    assert "no such call: `ironcurtain-proxy audit verify`" in capsys.readouterr().err
