"""Two clients at once have two logs, and one record."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

import anyio
import orjson
import pytest

from ironcurtain_proxy.audit.calls import CallHistory, last_calls
from ironcurtain_proxy.audit.display import Selection, columns
from ironcurtain_proxy.audit.known_logs import family
from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.verify import verify
from ironcurtain_proxy.audit.writer import LogSettings
from ironcurtain_proxy.cli import main
from ironcurtain_proxy.model.reply import AuditRecord, ResultSummary
from tests.audit.specimens import NOON, intent, record

Command = Callable[..., tuple[int, str, str]]

FIRST, SECOND = "4711", "812"


def at(number: int, changes: Mapping[str, object] | None = None) -> AuditRecord:
    """A call that arrived so many seconds after noon."""
    return record(number, {"timestamp": NOON + timedelta(seconds=number), **(changes or {})})


def write(path: Path, *records: AuditRecord) -> None:
    log = AuditLog.open(path, LogSettings(max_bytes=1500))

    async def run() -> None:
        for one in records:
            await log.record(one)

    anyio.run(run)
    log.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of one client, those of two others beside it, and files that are none."""
    path = tmp_path / "audit.jsonl"
    write(path, intent(1), at(1, {"client": "editor 1"}), *[at(n) for n in (4, 7, 10)])
    write(path.with_name(f"audit.jsonl.{FIRST}"), *[at(n, {"client": "desk"}) for n in (2, 5, 8)])
    write(path.with_name(f"audit.jsonl.{SECOND}"), *[at(n) for n in (3, 6, 9)])
    for other in ("audit.jsonl.torn-20260101T000000Z", "audit.jsonl.bak", "audit.jsonl2"):
        (tmp_path / other).write_text("no log\n", encoding="utf-8")
    return path


@pytest.fixture
def audit(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Runs `ironcurtain-proxy audit …` as a user does who names no log."""
    monkeypatch.setenv("AUDIT_LOG_PATH", str(log))

    def command(*arguments: str) -> tuple[int, str, str]:
        code = main(["audit", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def test_a_family_is_the_log_and_those_beside_it(log: Path) -> None:
    assert [one.process for one in family(log)] == ["", SECOND, FIRST]
    assert [one.process for one in family(log.with_name(f"audit.jsonl.{FIRST}"))] == [""]


def test_tail_shows_the_calls_of_all_clients_in_their_order(audit: Command) -> None:
    lines = audit("tail")[1].splitlines()[1:]
    assert [line.split("/srv/")[1].split(".")[0] for line in lines] == [
        str(number) for number in range(1, 11)
    ]
    assert [line.split()[0] for line in lines[:4]] == ["2", f"{FIRST}:1", f"{SECOND}:1", "3"]
    assert [line.split("/srv/")[1][0] for line in audit("tail", "-n", "3")[1].splitlines()[1:]] == [
        "8",
        "9",
        "1",
    ]
    raw = audit("tail", "--json", "-n", "2")[1].splitlines()
    assert [orjson.loads(line)["arguments"]["path"] for line in raw] == [
        "/srv/9.txt",
        "/srv/10.txt",
    ]


@pytest.mark.parametrize("most", [1, 2, 200])
@pytest.mark.parametrize("budget", [1, 2, 3, 100])
@pytest.mark.parametrize(
    "chosen", [Selection(), Selection(client="desk"), Selection(text="/srv/1")]
)
def test_looks_that_follow_each_other_show_each_call_once(
    log: Path, monkeypatch: pytest.MonkeyPatch, chosen: Selection, budget: int, most: int
) -> None:
    # The intent of a call that ended long after others, and a line of another program.
    late = at(11, {"timestamp": NOON, "duration_ms": 11_000})
    write(log, intent(12), intent(11), at(2), late)
    with log.open("ab") as file:
        file.write(b'{"timestamp": 7, "toolName": "x"}\nno record\n')
    monkeypatch.setattr("ironcurtain_proxy.audit.calls.MOST_READ", budget)
    history = CallHistory(lambda: family(log), str)
    one = history.look(chosen, most=most)
    found = [*one.calls]
    while one.before:
        before, one = one.before, history.look(chosen, before=one.before, most=most)
        assert one.before < before
        found += one.calls
    assert [entry.number for entry in found] == [
        entry.number for entry in last_calls(family(log), 1000, chosen)[::-1]
    ]
    assert len(found) == len({entry.number for entry in found}) > 0


def test_a_number_of_another_clients_log_leads_to_its_call(audit: Command) -> None:
    for line in audit("tail")[1].splitlines()[1:]:
        number, path = line.split()[0], line.split("/srv/")[1].split()[0]
        code, out, _ = audit("show", number)
        assert code == 0
        assert f'"path": "/srv/{path}"' in out
    assert audit("show", "99:1")[0] == 1


def test_stats_count_all_clients(audit: Command) -> None:
    counted = orjson.loads(audit("stats", "--json")[1])
    assert counted["calls"] == 10
    assert counted["logs"] == 3
    assert counted["clients"] == {"editor 1": 1, "desk": 3, "(not known)": 6}
    assert counted["first"] == "2026-11-21T12:00:01.799Z"
    assert counted["last"] == "2026-11-21T12:00:10.799Z"


def test_verify_looks_at_every_log(audit: Command, log: Path) -> None:
    code, out, _ = audit("verify")
    assert code == 0
    assert "11 lines in 3 logs" in out
    other = log.with_name(f"audit.jsonl.{FIRST}")
    anchors = [verify(path).last.digest for path in (log, other)]
    for anchor in anchors:
        assert audit("verify", "--expect", anchor)[0] == 0
    assert audit("verify", "--expect", "ab" * 32)[0] == 1
    assert orjson.loads(audit("verify", "--json", "--expect", "ab" * 32)[1])["ok"] is False
    other.write_bytes(other.read_bytes().replace(b"/srv/8", b"/etc/8"))
    code, out, _ = audit("verify")
    assert code == 1
    assert "NOT WHOLE" in out
    assert orjson.loads(audit("verify", "--json")[1])["ok"] is False


def test_tail_follows_a_client_that_begins_later(log: Path, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "ironcurtain_proxy", "audit", "tail", "-n", "1", "-f"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "AUDIT_LOG_PATH": str(log)},
    ) as process:
        shown = process.stdout
        try:
            assert shown is not None
            assert shown.readline().startswith("NO")
            assert "/srv/10." in shown.readline()
            write(tmp_path / "audit.jsonl.99", at(11), at(12))
            assert "/srv/11." in shown.readline()
            assert "/srv/12." in shown.readline()
            write(log.with_name(f"audit.jsonl.{FIRST}"), at(13))
            assert "/srv/13." in shown.readline()
        finally:
            process.kill()


DECIDED: tuple[tuple[dict[str, object], str, str], ...] = (
    ({"decided_by": "human", "escalation_result": "approved"}, "approved", "person"),
    ({"decided_by": "grant:g1+g2", "escalation_result": "approved"}, "approved", "grant"),
    ({"decided_by": "auto-approver", "escalation_result": "approved"}, "approved", "auto-approver"),
    ({"decided_by": "engine:pattern", "escalation_result": "approved"}, "approved", "engine"),
    ({"decided_by": "reviewer:bob", "escalation_result": "approved"}, "approved", "bob"),
)
REFUSED: tuple[tuple[dict[str, object], str, str], ...] = (
    ({"context": (("refusedBy", "held"),), "effect": "escalate"}, "HELD", "nobody"),
    (
        {
            "context": (("refusedBy", "no-reviewer"),),
            "effect": "escalate",
            "escalation_result": "denied",
        },
        "REFUSED",
        "nobody",
    ),
    (
        {
            "context": (("refusedBy", "declined"), ("note", "use ./proj")),
            "effect": "deny",
            "escalation_result": "denied",
            "decided_by": "human",
        },
        "REFUSED",
        "person",
    ),
    (
        {
            "context": (("refusedBy", "policy"), ("refusalRule", "sandbox")),
            "effect": "escalate",
            "escalation_result": "denied",
        },
        "DENIED",
        "sandbox",
    ),
)


@pytest.mark.parametrize(("changes", "decision", "by"), [*DECIDED, *REFUSED])
def test_tail_says_who_decided(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
    decision: str,
    by: str,
) -> None:
    path = tmp_path / "audit.jsonl"
    given = dict(changes)
    if "context" in given:
        given["result"] = ResultSummary(status="denied", error="the sandbox would not let it")
    write(path, record(1, given))
    main(["audit", "tail", str(path)])
    line = capsys.readouterr().out.splitlines()[1]
    assert line.split()[3:5] == [decision, by]
    if by == "sandbox":
        assert line.split()[6] == "sandbox"
        assert line.endswith("the sandbox would not let it")
    if "note" in str(changes):
        assert '"use ./proj": ' in line


def test_the_time_a_reviewer_took_is_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, record(1, {"duration_ms": 41_495, "context": (("waitedMs", 41_465),)}))
    main(["audit", "tail", str(path)])
    assert capsys.readouterr().out.splitlines()[1].endswith("ok, 30 ms (waited 41.5 s)")


@pytest.mark.parametrize("width", [20, 60, 80, 120, 250])
def test_a_line_is_never_wider_than_the_terminal(log: Path, width: int) -> None:
    wide = {"tool": "日本語のツール" * 5, "arguments": {"path": "/日本語/" + "x" * 300}}
    write(log, at(11, wide), at(12, {"result": ResultSummary(status="error", error="x" * 500)}))
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_TERMINAL, str(width), str(log)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1", "TZ": "Asia/Tokyo"},
    )
    lines = done.stdout.replace("\r", "").splitlines()
    assert len(lines) == 13
    assert max(columns(line) for line in lines) <= width
    if width >= 60:
        assert "21:00:10" in done.stdout
        assert " allowed " in lines[-1]


_IN_A_TERMINAL = """
import fcntl, os, pty, struct, sys, termios
width, log = int(sys.argv[1]), sys.argv[2]
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    os.environ.pop("COLUMNS", None)
    os.execv(sys.executable, [sys.executable, "-m", "ironcurtain_proxy", "audit", "tail", log])
while True:
    try:
        data = os.read(terminal, 65536)
    except OSError:
        break
    if not data:
        break
    sys.stdout.buffer.write(data)
os.waitpid(pid, 0)
"""
