"""Which branch a call changes, and which repositories are one."""

import subprocess
from pathlib import Path

import pytest

from ironcurtain_proxy.facts.arguments import plan_for
from ironcurtain_proxy.facts.facts import FactReader
from tests.facts.conftest import Tree
from tests.facts.test_facts import PUSH, SHELL, annotation, gather


def run(repository: Path, *command: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", "-C", str(repository), *who, *command], check=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path.resolve() / "repo"
    path.mkdir()
    run(path, "init", "-q", "-b", "main")
    run(path, "remote", "add", "origin", "https://github.com/acme/x.git")
    return path


def test_no_branch_is_known_where_git_names_what_cannot_be_a_path(
    tree: Tree, tmp_path: Path
) -> None:
    place = tmp_path.resolve()
    (place / ".git").write_bytes(b"gitdir: a\0b\n")
    assert gather(tree, SHELL, command="git commit", cwd=str(place)).branch is None
    status = annotation("git", "git_status", path=("read-path",))
    assert gather(tree, status, path=str(place)).repository is not None


def test_worktrees_of_one_repository_are_one_repository(
    tree: Tree, repository: Path, tmp_path: Path
) -> None:
    """G8: they have one configuration: who rewrites it in one changes where the other pushes to."""
    other = str(tmp_path.resolve() / "other")
    run(repository, "commit", "-q", "--allow-empty", "-m", "x")
    run(repository, "worktree", "add", "-q", other)
    status = annotation("git", "git_status", path=("read-path",))
    one, two = gather(tree, status, path=str(repository)), gather(tree, status, path=other)
    assert one.request.repository != two.request.repository
    assert one.repository == two.repository
    assert two.branch == "other"


@pytest.mark.requirement("B-76", "B-77")
@pytest.mark.parametrize(
    ("config", "known"),
    [
        ({}, True),
        ({"push.default": "upstream", "branch.feature/x.merge": "refs/heads/feature/x"}, True),
        ({"push.default": "simple", "branch.feature/x.merge": "refs/heads/main"}, True),
        ({"push.default": "upstream", "branch.feature/x.merge": "refs/heads/main"}, False),
        ({"push.default": "tracking", "branch.other.merge": "refs/heads/main"}, False),
        ({"remote.origin.push": "refs/heads/feature/x:refs/heads/main"}, False),
    ],
)
@pytest.mark.parametrize("by_shell", [True, False])
def test_no_branch_is_known_where_a_push_may_go_to_one_of_another_name(
    tree: Tree, repository: Path, config: dict[str, str], *, known: bool, by_shell: bool
) -> None:
    run(repository, "symbolic-ref", "HEAD", "refs/heads/feature/x")
    for key, value in config.items():
        run(repository, "config", key, value)
    where = str(repository)
    facts = (
        gather(tree, SHELL, command="git push origin feature/x", cwd=where)
        if by_shell
        else gather(tree, PUSH, path=where, remote="origin", branch="feature/x")
    )
    assert facts.branch == ("feature/x" if known else None)
    # It is asked only about what may push.
    assert gather(tree, SHELL, command="git commit", cwd=where).branch == "feature/x"


def test_git_is_asked_about_a_command_that_may_push(tree: Tree) -> None:
    reader = FactReader(tree.reader())
    assert reader.looks_up(plan_for(SHELL), {"command": "git push origin x", "cwd": "."}) is None
    assert reader.looks_up(plan_for(SHELL), {"command": "git commit", "cwd": "."}) == 1
    assert reader.looks_up(plan_for(SHELL), {"command": "git push origin x"}) == 0


@pytest.mark.requirement("B-76", "B-77")
@pytest.mark.parametrize("by_link", [True, False])
def test_a_branch_that_only_stands_for_another_is_not_known(
    tree: Tree, repository: Path, *, by_link: bool
) -> None:
    """Whoever may write files can make one, and commits to it or pushes of it go to the other."""
    run(repository, "commit", "-q", "--allow-empty", "-m", "x")
    place = repository / ".git/refs/heads/feature/x"
    place.parent.mkdir()
    if by_link:
        place.symlink_to("refs/heads/main")
    else:
        place.write_text("ref: refs/heads/main\n")
    where = str(repository)
    assert gather(tree, SHELL, command="git commit", cwd=where).branch == "main"
    # Git itself refuses to push what is a link.
    pushed = gather(tree, SHELL, command="git push origin feature/x", cwd=where)
    assert pushed.branch == ("main" if by_link else None)
    run(repository, "symbolic-ref", "HEAD", "refs/heads/feature/x")
    assert gather(tree, SHELL, command="git commit", cwd=where).branch is None


def test_no_branch_is_known_where_references_lie_in_a_table(tree: Tree, repository: Path) -> None:
    """Git keeps them there from `--ref-format=reftable` on, and heeds no file but the table."""
    (repository / ".git/reftable").mkdir()
    (repository / ".git/HEAD").write_text("ref: refs/heads/.invalid\n")
    assert gather(tree, SHELL, command="git commit", cwd=str(repository)).branch is None


@pytest.mark.parametrize("head", ["ref: refs/heads/", "ref: refs/tags/x", "0" * 40, ""])
def test_no_branch_is_known_where_the_head_is_on_none(
    tree: Tree, repository: Path, head: str
) -> None:
    (repository / ".git/HEAD").write_text(head)
    assert gather(tree, SHELL, command="git commit", cwd=str(repository)).branch is None


def test_the_branch_of_a_new_repository_is_known(tree: Tree, repository: Path) -> None:
    where = str(repository)
    assert gather(tree, SHELL, command="git push origin main", cwd=where).branch == "main"
