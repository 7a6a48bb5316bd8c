"""`metrics` and `patterns`, as a person or a program would use them."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.auto_confirm.store.store import Store, open_store
from ironcurtain_proxy.cli import main, parser_of
from ironcurtain_proxy.own_process import SystemClock
from tests.auto_confirm.store.specimens import auto_approved, ends, interaction, reviewed
from tests.program import PATIENCE

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("IRONCURTAIN_CONFIG", "MCP_SERVERS_CONFIG", "ESCALATION_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def used(home: Path) -> Iterator[Store]:
    with open_store(None, home / ".ironcurtain", SystemClock()) as store:
        for _ in range(4):
            reviewed(store, interaction(scope="/srv/app/docs/a.md", decision_ms=3.0))
        auto_approved(store)
        yield store


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_metrics_are_shown_beside_their_targets(used: Store, run: Run) -> None:
    code, out, _ = run("metrics")
    assert code == 0
    lines = {line[:34].strip(): line[34:] for line in out.splitlines()}
    assert lines["interactions"].strip() == "5"
    assert "1 of 5 (20.0%)" in lines["safe operations auto-approved"]
    assert "target: 95% or more" in lines["safe operations auto-approved"]
    assert "3 / 3 ms" in lines["time to decide, p50 / p99"]
    assert "0 of 0" in lines["high risk sent to a reviewer"]
    assert "✗ missed, target: 95% or more" in lines["safe operations auto-approved"]
    assert "✓ target: below 100 ms" in lines["time to decide, p50 / p99"]
    assert "✗" not in lines["high risk sent to a reviewer"]


@pytest.mark.requirement(*(f"B-{n}" for n in range(173, 180)), "B-11")
def test_metrics_as_json_have_every_metric_of_the_document(used: Store, run: Run) -> None:
    document = orjson.loads(run("metrics", "--json")[1])
    assert document["safeAutoApproved"] == {"count": 1, "of": 5, "rate": 0.2}
    assert document["decisionMs"]["p99"] == 3.0
    assert document["manualInterventions"] == 0
    assert document["highRiskEscalated"]["rate"] is None
    assert document["responseSeconds"]["count"] == 4
    assert document["stuckSessions"] == 0
    assert document["audited"]["rate"] == 1.0
    assert (document["autoApproved"]["count"], document["escalated"]["count"]) == (1, 4)
    assert {"decision": "approved", "decidedBy": "engine", "count": 1} in document["decisions"]


def test_metrics_can_be_written_for_prometheus(used: Store, run: Run) -> None:
    out = run("metrics", "--prometheus")[1]
    assert 'ironcurtain_decisions{decision="approved",decided_by="reviewer"} 4\n' in out


NAME = "file_edit in /srv/app/docs"


def test_a_proposal_approves_only_once_it_is_promoted(used: Store, run: Run) -> None:
    code, out, _ = run("patterns", "propose")
    assert code == 0
    assert out == f"{NAME}  LOW  /srv/app/docs/.*  (4 approved, 0 refused, in 1 session)\n"
    assert run("patterns", "list")[1] == "there are no patterns\n"
    assert used.patterns() == ()
    assert run("patterns", "promote", NAME)[:2] == (0, f"promoted {NAME}\n")
    assert used.patterns()[0].auto_approve
    assert run("patterns", "propose")[1] == "nothing to propose\n"
    assert f"{NAME}  approves  LOW  /srv/app/docs/.*" in run("patterns", "list")[1]
    assert run("patterns", "disable", NAME)[:2] == (0, f"disabled {NAME}\n")
    assert not used.patterns()[0].auto_approve
    assert f"{NAME}  disabled" in run("patterns", "list")[1]
    assert run("patterns", "promote", NAME)[0] == 0
    assert used.patterns()[0].auto_approve


def test_patterns_can_be_read_by_programs(used: Store, run: Run) -> None:
    (proposal,) = orjson.loads(run("patterns", "propose", "--json")[1])
    assert (proposal["name"], proposal["approved"], proposal["rejected"]) == (NAME, 4, 0)
    done = orjson.loads(run("patterns", "promote", NAME, "--json")[1])
    assert done == {"name": NAME, "state": "promoted"}
    (pattern,) = orjson.loads(run("patterns", "list", "--json")[1])
    assert (pattern["scope_regex"], pattern["auto_approve"]) == ("/srv/app/docs/.*", True)


def test_what_is_not_there_cannot_be_promoted_or_disabled(used: Store, run: Run) -> None:
    for action in ("promote", "disable"):
        code, out, err = run("patterns", action, "nothing")
        assert (code, out) == (1, "")
        assert "'nothing'" in err


def test_more_evidence_can_be_asked_for(used: Store, run: Run) -> None:
    assert run("patterns", "propose", "--min", "5")[1] == "nothing to propose\n"
    assert run("patterns", "promote", NAME, "--min", "5")[0] == 1


def test_names_with_control_characters_are_shown_as_escapes(used: Store, run: Run) -> None:
    for _ in range(4):
        reviewed(used, interaction(operation="\x1b[2Jevil\n", scope="/srv/x/y/a"), ends())
    out = run("patterns", "propose")[1]
    assert "\x1b" not in out
    assert "\\x1b[2Jevil\\n in /srv/x/y" in out


@pytest.mark.parametrize(
    "command", [["metrics"], ["patterns", "list"], ["patterns", "promote", "x"]]
)
def test_without_a_store_there_is_nothing_to_show_and_none_is_made(
    run: Run, home: Path, command: list[str]
) -> None:
    code, out, err = run(*command)
    assert (code, out) == (1, "")
    assert "there is no such store" in err
    assert not (home / ".ironcurtain").exists()


@pytest.mark.parametrize("span", ["", "0h", "7", "h", "7w", "-1d", "7d ", "999999d"])
def test_a_span_that_is_none_is_refused(span: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser_of(["metrics"]).parse_args(["metrics", f"--since={span}"])
    assert "30m, 24h or 7d" in capsys.readouterr().err


def test_help_does_not_wait_for_the_database_library() -> None:
    code = "import sys, ironcurtain_proxy.cli.engine; sys.exit('sqlalchemy' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, timeout=PATIENCE).returncode == 0
    )


def test_serving_does_not_import_the_database_library() -> None:
    code = (
        "import sys, ironcurtain_proxy.wiring, ironcurtain_proxy.cli.serve, "
        "ironcurtain_proxy.auto_confirm.store.rows, ironcurtain_proxy.auto_confirm.store.rows; "
        "sys.exit('sqlalchemy' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, timeout=PATIENCE).returncode == 0
    )
