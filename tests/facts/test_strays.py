"""Links out of the workspace, among the files that a pattern may name."""

from pathlib import Path

import pytest

from ironcurtain_proxy.cli.shell import looked_at, place_at
from ironcurtain_proxy.facts import commands
from ironcurtain_proxy.facts.commands import strays_among
from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.statements import parse_command


def test_only_links_that_lead_out_are_strays(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    docs = workspace / "docs"
    docs.mkdir(parents=True)
    (docs / "a.md").write_text("a")
    (docs / "in.md").symlink_to("a.md")
    (docs / "out.md").symlink_to("/etc/hostname")
    (docs / "dangling.md").symlink_to(workspace / "nowhere")
    found = strays_among([], str(workspace), globs=[str(docs)])
    assert found == (str(docs / "out.md"),)


def test_the_way_to_the_directory_counts_too(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (workspace / "docs").symlink_to("../elsewhere")
    found = strays_among([], str(workspace), globs=[str(workspace / "docs")])
    assert str(workspace / "docs") in found


@pytest.mark.parametrize(
    "command",
    ["cat deep/a/../x", "cd deep/a && cat ../x", "cd a; cat ../../x", "cd out; ls",
     "cd out; rg x -g '*.py'", "cd out && cat < ../x", "cat notes.txt", "head ./*.txt",
     "for f in notes.txt; do cat $f; done"],
)  # fmt: skip
def test_a_command_that_a_link_leads_to_a_secret_or_elsewhere_is_no_reading(
    tmp_path: Path, command: str
) -> None:
    workspace = tmp_path.resolve() / "w"
    (workspace / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "sub").mkdir(parents=True)
    (workspace / "deep/a").symlink_to(workspace)
    (workspace / "out").symlink_to("../elsewhere/sub")
    (workspace / "a").symlink_to("../elsewhere/sub")
    (workspace / ".env").write_text("x")
    (workspace / "notes.txt").symlink_to(".env")
    parsed = parse_command(command)
    place = looked_at(parsed, place_at(workspace))
    assert effect_of(parsed, place).effect in {"beyond", "local"}


def test_of_too_many_files_none_counts_as_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_MAX_ENTRIES", 3)
    for name in "abcd":
        (tmp_path / name).touch()
    assert strays_among([], str(tmp_path), globs=[str(tmp_path)]) == (str(tmp_path),)


def test_a_directory_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert strays_among([], str(tmp_path), globs=[str(tmp_path / "absent")]) == ()
