"""A second instance that leaves what would run outside its sandbox, beside what was approved.

With a real sandbox, and a person at the mailbox.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.confined_installation import escalations, folder
from tests.e2e.installation import Installation
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient, at, text, texts
from tests.e2e.test_containment import CONFIG, contained, last
from tests.e2e.test_own_shell import shelled
from tests.e2e.test_sandbox_steering import make_repository
from tests.e2e.test_twins import approved

pytestmark = pytest.mark.usefixtures("sandbox")

BESIDE = (
    ".claude/settings.json",
    ".mcp.json",
    "new/.git/hooks/pre-commit",
    "new/deep/.vscode/tasks.json",
)
INSIDE = (
    "project/.claude/settings.json",
    "project/.git/config",
    "project/.git/hooks/pre-commit",
    "project/.git/hooks/pre-push",
)


def planting(installation: Installation, place: Path) -> str:
    """A command that writes all of them, where a person who approves it does not see it."""
    script = folder(installation, "scripts") / "build.sh"
    lines = [f"mkdir -p $(dirname {place}/{name}); echo x > {place}/{name}" for name in BESIDE]
    lines += [f"mkdir -p $(dirname {place}/{name}); echo x > {place}/{name}" for name in INSIDE]
    script.write_text("\n".join(lines))
    return f"sh {script}"


def started(installation: Installation, *, is_own: bool) -> tuple[str, RawClient]:
    """The tool that runs commands, in our own shell or in a server of somebody else."""
    if is_own:
        return "run_command", shelled(installation)
    return "shell", contained(installation, CONFIG)


@pytest.mark.parametrize("is_own", [False, True])
def test_an_approved_path_beside_the_workspace_leaves_the_workspace_open(
    installation: Installation, *, is_own: bool
) -> None:
    escalations(installation)
    place = folder(installation, "projects")
    installation.workspace = folder(installation, "projects/workspace")
    (place / "other").mkdir()
    (place / "other/kept").write_text("kept")
    tool, agent = started(installation, is_own=is_own)
    person, here = Person(installation), installation.workspace
    script = folder(installation, "scripts") / "more.sh"
    script.write_text(f"mkdir {place}/made; echo x > {place}/other/kept; echo x > {place}/beside")
    command = f"cd {here}; echo new > made; cp made {place}/copy; sh {script}; mv made moved"
    approved(agent, person, tool, {"command": command})
    assert last(installation)["opened"] == [f"write {place}/copy"]
    assert (place / "copy").read_text() == (here / "moved").read_text() == "new\n"
    assert sorted(one.name for one in place.iterdir()) == ["copy", "other", "workspace"]
    assert (place / "other/kept").read_text() == "kept"


@pytest.mark.parametrize("is_own", [False, True])
def test_nothing_that_steers_is_left_where_an_approved_command_may_write(
    installation: Installation, *, is_own: bool
) -> None:
    escalations(installation)
    (installation.workspace / "x").write_text("new")
    tool, agent = started(installation, is_own=is_own)
    person = Person(installation)
    for number, target in enumerate(("y", "project", "project/y")):
        place = folder(installation, f"outside{number}")
        answer = steered(
            installation, place, target, lambda given: approved(agent, person, tool, given)
        )
        if target != "project":
            # Nothing but the file itself came out of the sandbox.
            assert last(installation).get("putBack") is None
        else:
            assert "can make programs run outside every sandbox" in texts(answer)[-1]
            assert at(last(installation), "putBack", 0)


def steered(
    installation: Installation, place: Path, target: str, result_of: Callable[[Message], Message]
) -> Message:
    """Have a command approved that writes one target, and plants what steers beside it."""
    make_repository(place / "project")
    hook, config = place / "project/.git/hooks/pre-push", place / "project/.git/config"
    hook.write_text("mine")
    before = config.read_bytes()
    copy = f"cp {installation.workspace}/x {place}/{target}"
    answer = result_of({"command": f"{copy}; {planting(installation, place)}"})
    assert last(installation)["opened"] == [f"write {place}/{target}"]
    written = place / target / "x" if target == "project" else place / target
    assert written.read_text() == "new", target
    left = [name for name in (*BESIDE, *INSIDE) if (place / name).exists()]
    assert left == ["project/.git/config", "project/.git/hooks/pre-push"], target
    assert (hook.read_text(), config.read_bytes()) == ("mine", before)
    return answer


def test_what_an_approved_command_deletes_in_a_directory_is_deleted_with_its_hooks(
    installation: Installation,
) -> None:
    escalations(installation)
    place = folder(installation, "outside")
    make_repository(place / "project")
    (place / "project/.git/hooks/pre-push").write_text("mine")
    agent, person = contained(installation, CONFIG), Person(installation)
    answer = approved(agent, person, "shell", {"command": f"rm -rf {place}/project"})
    # The directory itself is what was opened, and stays.
    assert "busy" in text(answer)
    assert [*place.iterdir()] == [place / "project"]
    assert [*(place / "project").iterdir()] == []
