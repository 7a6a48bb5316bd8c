"""The page about calls: its figures add up, and nothing that an agent says becomes markup."""

from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.audit.calls import recorded_calls
from ironcurtain_proxy.audit.display import Selection
from ironcurtain_proxy.audit.known_logs import Member
from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.writer import LogSettings
from ironcurtain_proxy.cli import main
from ironcurtain_proxy.model.reply import AuditRecord, ResultSummary
from ironcurtain_proxy.report.fleet import Day, calls_part, count_calls
from ironcurtain_proxy.report.plots import page, shown
from tests.audit.specimens import NOON, intent, record
from tests.report.parsed import Parsed

EVIL = "<script>alert(1)</script> \u202e\x1b[31m"
DENIED = {"effect": "deny", "rule": EVIL, "result": ResultSummary(status="denied", error=EVIL)}
APPROVED = {"effect": "escalate", "escalation_result": "approved"}

CALLS: tuple[AuditRecord, ...] = (
    record(1),
    record(2, {**DENIED, "arguments": {"path": EVIL}, "tool": EVIL}),
    record(3, {**APPROVED, "decided_by": "human", "context": (("waitedMs", 4000),)}),
    record(4, {**APPROVED, "decided_by": "containment"}),
    record(5, {**APPROVED, "decided_by": "grant:7"}),
    record(6, {"result": ResultSummary(status="error", error="ENOENT")}),
    record(7, {"timestamp": NOON - timedelta(hours=3)}),
    intent(8),
    record(
        9,
        {
            "effect": "escalate",
            "escalation_result": "denied",
            "decided_by": "kernel",
            "context": (("refusedBy", "no-reviewer"),),
            "result": ResultSummary(status="denied", error="nobody reviews"),
        },
    ),
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    one = AuditLog.open(tmp_path / "audit.jsonl", LogSettings())

    async def write() -> None:
        for call in CALLS:
            await one.record(call)

    anyio.run(write)
    one.close()
    return one.path


@pytest.fixture
def day(log: Path) -> Day:
    return count_calls(call.entry for call in recorded_calls((Member(log),), Selection()))


def test_each_call_is_of_one_kind_and_the_bars_add_up(day: Day) -> None:
    assert day.total == len(CALLS) == day.kinds.total()
    assert day.kinds == {
        "allowed": 4,
        "without a question": 2,
        "by a person": 1,
        "refused": 1,
        "denied": 1,
    }
    for counts in (day.minutes, day.tools, day.clients):
        assert sum(one.total() for one in counts.values()) == day.total
    assert (day.questions, day.errors) == (1, 1)


def test_a_call_that_was_refused_because_nobody_reviewed_counts_as_a_question(day: Day) -> None:
    assert day.unreviewed == 1
    text = "".join(Parsed(page(calls_part(day, NOON, str), NOON)).words)
    assert "1 asked, 1 refused because nobody reviewed" in text
    assert "22.2" in text


def test_the_page_has_every_section_and_no_words_of_an_agent_as_markup(day: Day) -> None:
    parsed = Parsed(page(calls_part(day, NOON, str), NOON))
    assert parsed.open == []
    assert parsed.tags["svg"] == 3
    assert parsed.tags["table"] == 3
    assert not parsed.tags.keys() & {"script", "img", "link"}
    text = "".join(parsed.words)
    assert "<script>alert(1)</script>" in text
    assert "\x1b" not in text
    assert "9 calls of 1 session and 1 client" in text


def test_a_page_about_no_call_says_so() -> None:
    parsed = Parsed(page(calls_part(count_calls(()), NOON, str), NOON))
    assert parsed.words.count("Nothing yet.") == 6


@given(st.text())
def test_no_text_becomes_markup(text: str) -> None:
    parsed = Parsed(f'<p title="{shown(text)}">{shown(text)}</p>')
    assert parsed.tags == {"p": 1}
    assert parsed.attributes == {"title"}
    assert all(char.isprintable() for char in shown(text))


def test_anybody_gets_a_report_of_their_audit_log(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    target = tmp_path / "page.html"
    assert main(["report", "--log", str(log), "--output", str(target)]) == 0
    assert capsys.readouterr().out == f"wrote {target}\n"
    assert target.stat().st_mode & 0o777 == 0o600
    assert "Questions per 100 calls" in target.read_text("utf-8")


def test_a_page_that_cannot_be_written_is_said(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["report", "--log", str(log), "--output", "/nowhere/page.html"]) == 2
    said = "ironcurtain-proxy: /nowhere/page.html: No such file or directory\n"
    assert capsys.readouterr().err == said


def test_a_report_of_nothing_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["report", "--output", str(tmp_path / "page.html")]) == 2
    assert "no call was recorded yet" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
