"""Approved kinds, stretched: every approval with every way to make it do more.

The combinations are made here, so that a new kind meets all the old tricks. Each is tried where a
sandbox holds the local parts, and where none does.
"""

from typing import Final

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.grants.families import covering
from tests.grants.family_projects import Project, RememberedAnswers
from tests.tables import table

APPROVED: Final = table("grants/stretched_kinds.approved", tuple[str, ...])
AROUND: Final = table("grants/stretched.around", tuple[str, ...])
WITHIN: Final = table("grants/stretched.within", tuple[str, ...])


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project.made(tmp_path_factory.mktemp("stretched") / "project")
    made.write("package.json", '{"scripts": {"test": "jest", "deploy": "x"}}')
    made.write("a.go", "package a\n")
    made.git("config", "branch.feature-x.remote", "origin")
    made.git("config", "branch.feature-x.merge", "refs/heads/main")
    made.remotes = RememberedAnswers(made.environment)
    for command in APPROVED:
        made.approve(command)
    return made


def spares(project: Project, command: str) -> bool:
    call = project.call(command)
    return any(
        covering(project.grants, replace(call, held=held)) is not None for held in (True, False)
    )


def test_what_was_approved_is_covered(project: Project) -> None:
    assert [one for one in APPROVED if not spares(project, one)] == []


@pytest.mark.parametrize("template", AROUND)
def test_nothing_around_an_approved_command_is_covered(project: Project, template: str) -> None:
    stretched = [template.format(command) for command in APPROVED]
    assert [one for one in stretched if spares(project, one)] == []


def test_no_approved_command_stretches(project: Project) -> None:
    # Where a sandbox holds what a pull changes, it is no more than a fetch.
    for command in ("git pull", "git pull --rebase", "git pull --ff-only origin main"):
        assert not project.covers(command), command
    assert [command for command in WITHIN if spares(project, command)] == []
