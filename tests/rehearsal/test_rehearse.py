"""A rehearsal counts the questions that `serve` would have asked, and carries nothing out."""

import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.grants.book import Remembered
from ironcurtain_proxy.grants.format import KeptGrant
from ironcurtain_proxy.model.grant import (
    FamilyPattern,
    Grant,
    GrantId,
    GrantPattern,
    WithinDirectory,
)
from ironcurtain_proxy.model.request import Family
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.rehearsal.playing import Assumed, Rehearsed, rehearse
from ironcurtain_proxy.rehearsal.transcripts import read_transcripts
from tests import program
from tests.program import PROXY
from tests.rehearsal.transcripts import HERE, recorded, write


def played(tmp_path: Path, *rows: Json, workspace: str | None = None) -> Rehearsed:
    recording = read_transcripts([write(tmp_path / "x.jsonl", rows)])
    return rehearse(recording, Assumed(home="/home/ann", workspace=workspace), os.environ)


def asked(found: Rehearsed) -> tuple[int, int, int]:
    counts = found.tallies["coding"].asked
    return counts["each"], counts["remembered"], counts["contained"]


def command(text: str, session: str = "s", *, refused: bool = False) -> Json:
    return recorded("Bash", session, command=text, refused=refused)


def test_reading_and_writing_in_the_workspace_asks_nobody(tmp_path: Path) -> None:
    found = played(
        tmp_path,
        recorded("Read", file_path=f"{HERE}/a"),
        recorded("Edit", file_path=f"{HERE}/a"),
        recorded("Grep", pattern="x"),
        command("ls && git status"),
    )
    assert found.calls == 4
    assert asked(found) == (0, 0, 0)


def test_a_command_is_asked_about_once_or_contained(tmp_path: Path) -> None:
    found = played(tmp_path, *[command("go test ./...")] * 3, command("go test -v ./x"))
    assert asked(found) == (4, 1, 0)


def test_what_reaches_out_is_asked_about_although_it_is_contained(tmp_path: Path) -> None:
    found = played(tmp_path, command("gh pr view 1"), command("gh pr view 2", "later"))
    assert asked(found) == (2, 1, 1)


def test_what_is_never_general_is_remembered_as_it_was_and_for_its_session(tmp_path: Path) -> None:
    again = command("git push --force origin feature")
    rows = [again, again, command("git push --force origin other"), {**again, "session": "t"}]  # type: ignore[dict-item]
    assert asked(played(tmp_path, *rows)) == (4, 3, 3)


def test_what_the_person_refused_is_not_remembered(tmp_path: Path) -> None:
    found = played(tmp_path, command("gh pr view 1", refused=True), command("gh pr view 1"))
    assert asked(found) == (2, 2, 2)


def test_what_is_approved_in_one_project_asks_again_in_another(tmp_path: Path) -> None:
    other = {**recorded("Bash", "t", command="go vet ./..."), "cwd": "/home/ann/other"}  # type: ignore[dict-item]
    assert asked(played(tmp_path, command("go vet ./..."), other)) == (2, 2, 0)


def test_reading_elsewhere_is_asked_about_once_for_a_directory(tmp_path: Path) -> None:
    found = played(
        tmp_path,
        recorded("Grep", path="/home/ann/other/src", pattern="x"),
        recorded("Grep", path="/home/ann/other/src/deep", pattern="x"),
        recorded("Read", file_path="/home/ann/other/src/a"),
        recorded("Read", file_path="/home/ann/other/src/deep/b"),
    )
    assert asked(found) == (4, 1, 1)


def test_the_presets_differ_as_they_promise(tmp_path: Path) -> None:
    found = played(
        tmp_path,
        recorded("Edit", file_path=f"{HERE}/a"),
        recorded("Read", file_path=f"{HERE}/.env"),
        command("make"),
        recorded("WebFetch", url="https://example.com/"),
        recorded("Edit", file_path="/home/ann/.ssh/config"),
    )
    counts = {rules: (one.asked["each"], one.denied) for rules, one in found.tallies.items()}
    assert counts == {
        "shipped": (3, 1),
        "coding": (3, 1),
        "supervised": (4, 1),
        "read-only": (0, 5),
    }


@pytest.mark.parametrize("name", ["mcp__x__y", "Task", "\x1b[31m"])
def test_a_tool_that_no_server_of_a_preset_has_is_said(tmp_path: Path, name: str) -> None:
    found = played(tmp_path, recorded(name, a=1), command("ls"))
    assert (found.calls, dict(found.passed_over)) == (1, {name: 1})


@pytest.mark.parametrize(
    "given",
    [{"command": 3}, {}, {"command": None}, {"command": "\0"}, {"command": "x" * 200_000},
     {"command": "$(" * 3000}, {"command": "ls", "cwd": "\0"}, {"command": "ls", "cwd": ["x"]}],
)  # fmt: skip
def test_no_command_of_a_transcript_stops_a_rehearsal(
    tmp_path: Path, given: dict[str, Json]
) -> None:
    row: Json = {"session": "s", "cwd": HERE, "branch": "b", "tool": "Bash", "input": given}
    found = played(tmp_path, row, command("ls"))
    assert found.calls + found.broken == 2


@pytest.mark.parametrize("path", ["\0", "x" * 5000, "~nobody/x", "/" + "a/" * 3000, "\ud800"])
def test_no_path_of_a_transcript_stops_a_rehearsal(tmp_path: Path, path: str) -> None:
    row = b'{"session": "s", "cwd": "/home/ann/p", "tool": "Read", "input": {"file_path": %s}}'
    text = path.encode("utf-8", "backslashreplace").replace(b"\0", b"\\u0000")
    write(tmp_path / "x.jsonl", [row % (b'"' + text + b'"'), command("ls")])
    recording = read_transcripts([tmp_path / "x.jsonl"])
    found = rehearse(recording, Assumed(home="/home/ann"), os.environ)
    assert found.calls >= 1


def test_a_session_that_names_no_place_needs_one(tmp_path: Path) -> None:
    row = {**recorded("Bash", command="make"), "cwd": None}  # type: ignore[dict-item]
    assert played(tmp_path, row).without_place == 1
    assert played(tmp_path, row, workspace=HERE).calls == 1


def a_family(workspace: str) -> FamilyPattern:
    return FamilyPattern(
        server="my-shell",
        tool="run_command",
        definition="another",
        workspace=RealPath.from_text(workspace),
        families=(Family(program=("go", "test")),),
        phrases=("`go test`",),
        description="x",
    )


def a_grant(
    workspace: str | None, tool: str = "read_text_file", pattern: FamilyPattern | None = None
) -> KeptGrant:
    """As a session of another set-up kept it, whose server has another name."""
    directory = WithinDirectory("read-path", RealPath.from_text("/home/ann/other"))
    kept = pattern or GrantPattern(
        server="my-files",
        tool=tool,
        definition="another",
        constraints=(directory,),
        description="x",
    )
    when = datetime(2026, 1, 1, tzinfo=UTC)
    grant = Grant(id=GrantId("1"), pattern=kept, created=when, source="x", reason="x",
                  expires=when + timedelta(days=1))  # fmt: skip
    return KeptGrant(
        remembered=Remembered(grant=grant),
        scope="user" if workspace is None else "project",
        workspace=None if workspace is None else RealPath.from_text(workspace),
        policy_version="x",
        server_digest="x",
    )


@pytest.mark.parametrize(
    ("kept", "spared"),
    [
        (a_grant(None), 2),
        (a_grant(HERE), 2),
        (a_grant("/home/ann/elsewhere"), 0),
        (a_grant(None, "write_file"), 0),
        (a_grant(None, "unheard_of"), 0),
        (a_grant(HERE, pattern=a_family(HERE)), 1),
        (a_grant(None, pattern=a_family("/home/ann/elsewhere")), 0),
    ],
)
def test_what_the_grants_of_a_file_would_have_spared_is_counted(
    tmp_path: Path, kept: KeptGrant, spared: int
) -> None:
    rows = [recorded("Read", file_path=f"/home/ann/{name}") for name in ("other/a", "other/b", "c")]
    rows.append(command("go test ./x"))
    recording = read_transcripts([write(tmp_path / "x.jsonl", rows)])
    found = rehearse(recording, Assumed(home="/home/ann", kept=[kept]), os.environ)
    assert found.tallies["coding"].asked["each"] == 4
    assert found.tallies["coding"].spared_by_grants == spared


# --- the command ---------------------------------------------------------------------------------


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "HOME": str(home)}
    return program.run([*PROXY, "rehearse", *arguments], environ)


def test_the_command_prints_figures_and_leaves_nothing_behind(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    mark = tmp_path / "carried-out"
    file = write(tmp_path / "x.jsonl", [command(f"touch {mark}"), command("gh pr view"), b"{"])
    done = run(home, str(file))
    text = done.stdout
    assert done.returncode == 0
    assert "1 lines or calls are broken" in text
    assert "a command that reaches out" in text
    assert "gh commands that only read" in text
    assert not mark.exists()
    assert list(home.iterdir()) == []
    document = orjson.loads(run(home, str(file), "--json").stdout)
    assert document["calls"] == 2
    assert document["rules"]["coding"]["ways"]["each"]["per100"] == 100.0


def test_the_command_says_that_there_is_nothing_to_rehearse(tmp_path: Path) -> None:
    assert run(tmp_path, str(write(tmp_path / "x.jsonl", [b'{"a": 1}']))).returncode == 1
    done = run(tmp_path, str(tmp_path / "none"))
    assert done.returncode == 2
    assert "no such file" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_branch_the_workspace_is_a_repository_unless_it_is_here(tmp_path: Path) -> None:
    def committed(where: str) -> tuple[int, int, int]:
        row: Json = {"session": "s", "cwd": where, "tool": "Bash", "input": {"command": "git log"}}
        return asked(played(tmp_path, row))

    assert committed("/home/ann/project") == (0, 0, 0)
    here = tmp_path / "no-repository"
    here.mkdir()
    assert committed(str(here))[0] == 1
