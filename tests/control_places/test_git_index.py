"""Gitlinks of an index, against git itself."""

import subprocess
from pathlib import Path

import pytest

from ironcurtain_proxy.control_places.git_files import (
    UnreadableIndexError,
    names_worktree_alone,
    notes_of,
)

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"}


def gitlinks(index: bytes, *, hash_length: int = 20) -> frozenset[bytes]:
    """The paths of the gitlinks in an index."""
    notes = notes_of(index, hash_length=hash_length)
    return frozenset([path for (path, _), one in notes.items() if one.is_gitlink])


def git(directory: Path, *words: str) -> str:
    """Run git in a directory, as a user without a configuration."""
    command = ("git", "-c", "user.name=a", "-c", "user.email=a@b", *words)
    done = subprocess.run(command, cwd=directory, env=ENVIRONMENT, check=True, capture_output=True)
    return done.stdout.decode()


def repository(directory: Path, *options: str) -> Path:
    """Make a repository with one commit."""
    directory.mkdir(parents=True)
    git(directory, "init", "-q", *options)
    (directory / "a").write_text("a")
    git(directory, "add", "a")
    git(directory, "commit", "-qm", "a")
    return directory


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize(("form", "length"), [("sha1", 20), ("sha256", 32)])
def test_the_gitlinks_are_those_that_git_lists(
    tmp_path: Path, version: str, form: str, length: int
) -> None:
    top = repository(tmp_path / "top", f"--object-format={form}")
    for name in ("deep/down/one", "two", "deep/two"):
        repository(top / name, f"--object-format={form}")
    for number in range(40):
        (top / f"file{number:0{number + 1}}").write_text("x")
    git(top, "-c", "advice.addEmbeddedRepo=false", "add", "-A")
    if version == "3":
        (top / "later").write_text("x")
        git(top, "add", "--intent-to-add", "later")
    git(top, "update-index", "--index-version", version)
    listed = {
        line.partition("\t")[2].encode()
        for line in git(top, "ls-files", "--stage").splitlines()
        if line.startswith("160000")
    }
    assert listed == {b"deep/down/one", b"two", b"deep/two"}
    assert gitlinks((top / ".git/index").read_bytes(), hash_length=length) == listed


def test_an_index_that_leaves_entries_to_another_file_is_refused(tmp_path: Path) -> None:
    top = repository(tmp_path / "top")
    git(top, "update-index", "--split-index")
    with pytest.raises(UnreadableIndexError, match="split"):
        gitlinks((top / ".git/index").read_bytes())


def test_an_index_cut_anywhere_is_refused_or_shows_no_other_gitlinks(tmp_path: Path) -> None:
    top = repository(tmp_path / "top")
    repository(top / "sub")
    git(top, "-c", "advice.addEmbeddedRepo=false", "add", "-A")
    whole = (top / ".git/index").read_bytes()
    for end in range(1, len(whole)):
        try:
            found = gitlinks(whole[:end])
        except UnreadableIndexError:
            continue
        assert found == {b"sub"}


def test_an_index_that_is_not_there_has_no_gitlinks() -> None:
    assert gitlinks(b"") == frozenset()


@pytest.mark.parametrize("form", ["split", "sparse"])
def test_an_index_that_git_reads_with_others_may_name_files_of_the_worktree(
    tmp_path: Path, form: str
) -> None:
    top = repository(tmp_path / "top")
    for name in ("kept/a", "left/b"):
        (top / name).parent.mkdir()
        (top / name).write_text("x")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "b")
    if form == "sparse":
        git(top, "sparse-checkout", "set", "--cone", "--sparse-index", "kept")
    else:
        git(top, "update-index", "--split-index")
        (top / "a").write_text("b")
        git(top, "add", "a")
    for one in (top / ".git").glob("*index*"):
        assert names_worktree_alone(one.read_bytes(), b"")
    with pytest.raises(UnreadableIndexError):
        gitlinks((top / ".git/index").read_bytes())
