"""Reading elsewhere: one approval covers what only reads below the directory that was shown."""

from pathlib import Path

import pytest

from tests.grants.family_projects import Project
from tests.tables import table


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "other/sub").mkdir(parents=True)
    return Project.made(tmp_path / "project")


@pytest.mark.parametrize(
    ("command", "below"),
    table("grants/reading_below.the_question_names_the_directory", list[tuple[str, str]]),
)
def test_the_question_names_the_directory_below_which_commands_may_read(
    project: Project, command: str, below: str
) -> None:
    assert (
        project.offered(command)[0].description == f"commands that only read files below ~/{below}"
    )


@pytest.mark.parametrize("approved", ["cat ~/other/a.txt", "cd ~/other && cat sub/a.txt"])
@pytest.mark.parametrize("command", table("grants/stretched.reading_below", list[str]))
def test_all_that_only_reads_below_it_is_covered(
    project: Project, approved: str, command: str
) -> None:
    project.approve(approved)
    assert project.covers(command)


@pytest.mark.parametrize("command", table("grants/stretched.not_reading_below", list[str]))
def test_nothing_else_is_covered(project: Project, command: str) -> None:
    project.approve("cd ~/other && cat sub/a.txt")
    assert not project.covers(command)


@pytest.mark.parametrize(
    "command",
    [
        "cat ~/a.txt", "cd ~ && cat other/a.txt", "cat ~/.config/a.txt", "cat ~/.claude/x/a.md",
        "cat ~/Library/a.txt", "cat /home/somebody/a.txt", "cat /srv/a.txt", "cat /etc/hosts.txt",
        "cat ../a.txt", "cd .. && cat other/a.txt", "cat ~/other/.git/config",
        "cd ~/other/.git && cat a.txt", "find ~/other -name x", "rg x ~/other",
    ],
)  # fmt: skip
def test_no_home_no_parent_and_no_configuration_is_offered_with_all_below(
    project: Project, command: str
) -> None:
    assert not any("below" in one.description for one in project.offered(command))


def test_other_files_of_git_open_no_configuration(project: Project) -> None:
    project.approve("cat ~/.dotfiles/.git/HEAD")
    project.approve("cat ~/other/.git/HEAD")
    assert project.covers("cat ~/.dotfiles/.git/description")
    for where in ("~/.dotfiles", "~/other"):
        assert not project.covers(f"cat {where}/.git/config")
        assert not project.covers(f"cd {where}/.git && cat config")
    assert project.offered("cat ~/other/.git/config")[0].description.startswith("exactly this")


def test_files_of_two_directories_are_a_kind_below_what_holds_both_unless_that_is_a_home(
    project: Project,
) -> None:
    both = "cat ~/other/a.txt ~/b/b.txt"
    assert project.offered(both)[0].description == f"`{both}` in ~/project"
    project.approve("cd ~/other && cat a/a.txt b/b.txt")
    assert project.covers("cat ~/other/c/c.txt ~/other/d/d.txt")
    assert not project.covers("cat ~/other/c/c.txt ~/b/b.txt")


def test_a_kind_of_one_directory_lets_no_pattern_and_no_option_read_another(
    project: Project,
) -> None:
    """A pattern, and a file in the same word as an option, stand for files like any operand."""
    project.approve("cat ~/.config/a.txt")
    assert project.covers("cat ~/.config/b.txt")
    assert project.covers("cat ~/.config/*.txt")
    for command in (
        "cat ~/.config/a.txt ~/other/*.txt",
        f"grep -f{project.path.parent}/other/x ~/.config/a.txt",
        "grep --file=/srv/other/x ~/.config/a.txt",
        "cat ~/.config/a.txt ~/*/b.txt",
    ):
        assert not project.covers(command), command
