"""A family ends where a link leads a path of its command out of the project."""

from pathlib import Path

import pytest

from tests.grants.family_projects import Project
from tests.tables import table


@pytest.mark.parametrize(
    "command",
    table("grants/stretched.links", list[str]),
)
def test_a_command_whose_path_a_link_leads_out_is_not_covered(tmp_path: Path, command: str) -> None:
    """A link that comes after the approval would make the same words write elsewhere."""
    project = Project.made(tmp_path / "project")
    logs, outside = project.path / "logs", tmp_path / "outside"
    logs.mkdir()
    outside.mkdir()
    project.approve(command)
    assert project.covers(command)
    logs.rmdir()
    logs.symlink_to(outside)
    assert not project.covers(command)
    logs.unlink()
    logs.symlink_to(project.path)
    assert project.covers(command) or command.startswith("cd ")
