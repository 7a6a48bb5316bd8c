"""Links out of the workspace, among the files that a pattern may name."""

from pathlib import Path

import pytest

from ironcurtain_proxy.facts import commands
from ironcurtain_proxy.facts.commands import strays_among


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


def test_of_too_many_files_none_counts_as_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_MAX_ENTRIES", 3)
    for name in "abcd":
        (tmp_path / name).touch()
    assert strays_among([], str(tmp_path), globs=[str(tmp_path)]) == (str(tmp_path),)


def test_a_directory_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert strays_among([], str(tmp_path), globs=[str(tmp_path / "absent")]) == ()
