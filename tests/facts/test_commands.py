"""The shell command of a call, and where it runs."""

from pathlib import Path

import pytest

from ironcurtain_proxy.facts import repositories
from ironcurtain_proxy.facts.commands import CommandContext, with_command
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    CommandPlace,
    Facts,
    PathValue,
)
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.shell.effects import EffectLevel, effect_of
from ironcurtain_proxy.shell.families import sought
from tests.tables import table


def facts_of(place: Path, *, said: tuple[ArgumentFact, ...] = (), **arguments: Json) -> Facts:
    """The facts of a call of a shell, whose server runs in a directory."""
    request = AccessRequest(
        server="shell", tool="run", annotated=True, has_arguments=True, arguments=said
    )
    grounds = CommandContext(
        workspace=str(place), home=str(place.parent), directory={"shell": str(place)}.get
    )
    facts = Facts(request=request, arguments={"command": "git status", **arguments})
    return with_command(facts, "command", "shell", grounds)


def effect(facts: Facts) -> EffectLevel:
    assert facts.command is not None
    return effect_of(facts.command, facts.place).effect


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a plain directory in it, and a link to the outside."""
    place = tmp_path.resolve() / "project"
    (place / ".git").mkdir(parents=True)
    (place / "src").mkdir()
    (place / "out").symlink_to("/etc")
    return place


def test_a_command_runs_where_its_server_does_unless_the_call_says(project: Path) -> None:
    assert facts_of(project).place.directory == str(project)
    inside = facts_of(project, cwd=str(project / "src"))
    assert inside.place.directory == str(project / "src")
    path = RealPath.from_text(str(project))
    said = ArgumentFact("cwd", ("read-path",), (PathValue(str(path), path),))
    assert facts_of(project, said=(said,), cwd="whatever").place.directory == str(project)


@pytest.mark.parametrize(
    ("command", "where"),
    table("facts/commands.the_commit_of_a_push", list[tuple[str, list[str]]]),
)
def test_the_commit_of_a_push_is_that_of_the_repository_it_runs_in(
    project: Path, command: str, where: list[str]
) -> None:
    made = {"": "1" * 40, "other": "2" * 40}
    for name, commit in made.items():
        (project / name / ".git/refs/heads").mkdir(parents=True)
        (project / name / ".git/objects").mkdir()
        (project / name / ".git/HEAD").write_text("ref: refs/heads/topic\n")
        (project / name / ".git/refs/heads/topic").write_text(f"{commit}\n")
    (project / "other/deep").mkdir()
    grounds = CommandContext(
        workspace=str(project), directory={"shell": str(project)}.get, sought=sought
    )
    facts = Facts(request=facts_of(project).request, arguments={"command": command})
    found = with_command(facts, "command", "shell", grounds).head
    assert found == (" ".join(made[name] for name in where) or None)


@pytest.mark.parametrize("cwd", ["src", "~", "~/x", "", ["/a", "/b"], {"a": 1}, 7, "/a\0b"])
def test_a_directory_that_is_not_absolute_is_not_known(project: Path, cwd: Json) -> None:
    expected = str(project) if cwd == "" else None
    assert facts_of(project, cwd=cwd).place.directory == expected


@pytest.mark.parametrize("name", ["workdir", "directory"])
def test_a_directory_that_the_call_leaves_out_is_the_servers_for_the_rules_too(
    name: str, project: Path
) -> None:
    left_out = ArgumentFact(name, ("read-path", "write-path"), ())
    other = ArgumentFact("log", ("write-path",), ())
    here = PathValue(str(project), RealPath.from_text(str(project)))
    judged = facts_of(project, said=(left_out, other)).request.arguments
    assert judged == (ArgumentFact(name, ("read-path", "write-path"), (here,)), other)
    # A call that names a directory in another argument, or one that cannot be read, is not helped.
    assert facts_of(project, said=(left_out,), cwd="src").request.arguments == (left_out,)
    assert facts_of(project, said=(left_out,), workdir=7).request.arguments == (left_out,)


@pytest.mark.parametrize(
    ("command", "is_known"),
    table("facts/commands.a_branch_that_changes_ends_only", list[tuple[str, bool]]),
)
def test_a_branch_that_changes_ends_only_questions_about_commands_that_it_matters_to(
    project: Path, command: str, is_known: bool
) -> None:
    seen = []
    for branch in ("one", "two"):
        (project / ".git/HEAD").write_text(f"ref: refs/heads/{branch}\n")
        seen.append(facts_of(project, command=command))
    assert (seen[0] != seen[1]) is is_known


@pytest.mark.parametrize(
    ("command", "is_known"),
    [
        ("git push", True),
        ("cd src && git commit -m x && /usr/bin/git push origin topic", True),
        ("sh -c 'git push'", True),
        ("git commit -m x", False),
        ("npm test", False),
    ],
)
def test_a_commit_that_comes_meanwhile_ends_only_questions_about_pushes(
    project: Path, command: str, is_known: bool
) -> None:
    (project / ".git/HEAD").write_text("ref: refs/heads/topic\n")
    (project / ".git/refs/heads").mkdir(parents=True, exist_ok=True)
    seen = []
    for commit in ("1" * 40, "2" * 40):
        (project / ".git/refs/heads/topic").write_text(f"{commit}\n")
        seen.append(facts_of(project, command=command))
    assert (seen[0] != seen[1]) is is_known


def test_two_directories_are_none(project: Path) -> None:
    assert facts_of(project, cwd=str(project), workdir="/tmp").place.directory is None


def test_a_link_is_the_place_that_it_leads_to(project: Path) -> None:
    facts = facts_of(project, command="cat passwd", cwd=str(project / "out"))
    assert (facts.place.directory, effect(facts)) == ("/etc", "beyond")


def test_git_only_reads_where_the_directory_has_a_repository_of_its_own(project: Path) -> None:
    assert effect(facts_of(project)) == "reads"
    assert effect(facts_of(project, cwd=str(project / "src"))) != "reads"
    (project / "src" / ".git").write_text("gitdir: ../evil\n")
    assert effect(facts_of(project, cwd=str(project / "src"))) != "reads"
    (project / "src" / ".git").unlink()
    (project / "src" / ".git").symlink_to(project / ".git")
    assert effect(facts_of(project, cwd=str(project / "src"))) != "reads"


@pytest.mark.parametrize(
    "more",
    [
        {"env": {"PATH": "./bin"}},
        {"shell": "./evil"},
        {"args": ["push"]},
        {"stdin": "rm x"},
        {"session": "1"},
    ],
)
def test_a_command_beside_what_may_change_it_is_not_read(
    project: Path, more: dict[str, Json]
) -> None:
    facts = facts_of(project, said=(), **more)
    assert effect(facts) == "unknown"
    assert facts.command is not None
    assert next(iter(more)) in str(facts.command.unreadable)


def test_what_tells_people_of_a_command_changes_nothing(project: Path) -> None:
    facts = facts_of(project, description="look", timeout=5, background=False, env={}, shell=None)
    assert effect(facts) == "reads"


@pytest.mark.parametrize("command", [7, ["git", "status"], {"a": "b"}, None])
def test_what_is_no_text_is_no_command(project: Path, command: Json) -> None:
    assert effect(facts_of(project, command=command)) != "reads"


def test_git_only_reads_in_a_worktree_that_git_made(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repositories, "_TEMPORARY", ())
    monkeypatch.setattr(repositories, "gettempdir", lambda: "/nowhere")
    made, evil = project / "wt", project / "evil/.git/worktrees/wt"
    (project / ".git/worktrees/wt").mkdir(parents=True)
    made.mkdir()
    evil.mkdir(parents=True)

    def judged(leads_to: Path, back: str, common: str = "../..") -> EffectLevel:
        (made / ".git").write_text(f"gitdir: {leads_to}\n")
        (leads_to / "gitdir").write_text(f"{back}\n")
        (leads_to / "commondir").write_text(f"{common}\n")
        return effect(facts_of(project, cwd=str(made)))

    genuine = project / ".git/worktrees/wt"
    assert judged(genuine, f"{made}/.git") == "reads"
    assert judged(genuine, f"{project}/other/.git") != "reads"
    assert judged(genuine, f"{made}/.git", "../../../evil/.git") != "reads"
    assert judged(evil, f"{made}/.git") != "reads"
    outside = project.parent / "repository/.git/worktrees/wt"
    outside.mkdir(parents=True)
    assert judged(outside, f"{made}/.git") == "reads"
    (project.parent / "link").symlink_to(project / "evil")
    assert judged(project.parent / "link/.git/worktrees/wt", f"{made}/.git") != "reads"


def test_what_a_script_says_is_part_of_the_place(project: Path) -> None:
    """Else it could be exchanged while a person reads the command."""
    script = project / "src/b.sh"
    grounds = CommandContext(workspace=str(project), directory={"shell": "/"}.get, sought=sought)
    request = AccessRequest(
        server="shell", tool="run", annotated=True, has_arguments=True, arguments=()
    )
    facts = Facts(request=request, arguments={"command": f"git push; sh {script}"})

    def now() -> CommandPlace:
        return with_command(facts, "command", "shell", grounds).place

    seen = [now()]
    script.write_text("echo good")
    seen.append(now())
    script.write_text("echo evil")
    seen.append(now())
    script.unlink()
    script.mkdir()
    seen.append(now())
    assert len(set(seen)) == 4
    assert now() == seen[-1]
