"""A project on the disk, whose commands are approved and tried again."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ironcurtain_proxy.facts.commands import CommandContext, observed
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.git_process import GitOutput
from ironcurtain_proxy.facts.repositories import OriginBranches, repository_of
from ironcurtain_proxy.grants.families import command_candidates, covering, single_families
from ironcurtain_proxy.grants.patterns import EscalatedCall
from ironcurtain_proxy.model.grant import CallPattern, Candidate, FamilyPattern, Grant, GrantId
from ironcurtain_proxy.model.request import AccessRequest, CommandPlace
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.shell.families import sought
from ironcurtain_proxy.shell.statements import parse_command

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Project:
    """A repository with a remote, and what was approved in it."""

    path: Path
    grants: list[Grant] = field(default_factory=list)
    remotes: GitRemotes = field(init=False)
    branches: OriginBranches = field(default_factory=OriginBranches)

    def __post_init__(self) -> None:
        self.remotes = GitRemotes(self.environment)

    @classmethod
    def made(cls, path: Path) -> "Project":
        project = cls(path.resolve())
        for name, content in _repository():
            file = project.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return project

    @property
    def environment(self) -> dict[str, str]:
        home = str(self.path.parent)
        return {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER")
               for what in ("NAME", "EMAIL")},
        }  # fmt: skip

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.path, env=self.environment, check=True)

    def write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def call(self, command: str, cwd: str = "", **more: Json) -> EscalatedCall:
        directory = os.path.realpath(self.path / cwd)
        place = CommandPlace(
            workspace=str(self.path),
            directory=directory,
            home=str(self.path.parent),
            has_repository=Path(directory, ".git").is_dir(),
            repository=repository_of(str(self.path)),
        )
        parsed = parse_command(command)
        grounds = CommandContext(
            sought=sought, remotes=lambda _server: self.remotes, branches=self.branches
        )
        return EscalatedCall(
            server="shell",
            tool="run",
            definition="d",
            request=AccessRequest(
                server="shell", tool="run", annotated=True, has_arguments=True, arguments=()
            ),
            arguments={"command": command, **more},
            roles=(),
            command=parsed,
            place=observed(parsed, place, grounds, "shell", text=command),
        )

    def offered(self, command: str, cwd: str = "", **more: Json) -> Sequence[Candidate]:
        found = command_candidates(
            self.call(command, cwd, **more), RealPath.from_text(str(self.path.parent))
        )
        assert found is not None
        return found.patterns

    def approve(self, command: str, cwd: str = "", *, kind: int = 0, **more: Json) -> None:
        """Approve a command and remember one of what is offered."""
        self.remember(self.offered(command, cwd, **more)[kind])

    def remember(self, chosen: Candidate) -> None:
        assert isinstance(chosen, FamilyPattern | CallPattern)
        self.grants += [
            Grant(id=GrantId(f"g{len(self.grants)}{n}"), pattern=one, created=NOW, source="q",
                  reason="")
            for n, one in enumerate(single_families(chosen))
        ]  # fmt: skip

    def covers(self, command: str, cwd: str = "", **more: Json) -> bool:
        return covering(self.grants, self.call(command, cwd, **more)) is not None


class RememberedAnswers(GitRemotes):
    """Asks git each question once: for a project that no test changes."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(environment)
        self._known: dict[object, list[GitOutput]] = {}

    def _run(
        self,
        directory: str,
        commands: tuple[tuple[str, ...], ...],
        settings: tuple[tuple[str, str], ...] = (),
        *,
        no_repository: bool = False,
    ) -> list[GitOutput]:
        asked = directory, commands, settings, no_repository
        if asked not in self._known:
            self._known[asked] = super()._run(
                directory, commands, settings, no_repository=no_repository
            )
        return self._known[asked]


@cache
def _repository() -> Sequence[tuple[Path, bytes]]:
    """The files of a repository with a remote and one commit, made by git once for all projects."""
    with TemporaryDirectory() as directory:
        project = Project(Path(directory, "app"))
        project.path.mkdir()
        project.git("init", "-q", "-b", "feature-x", "--template=")
        project.git("remote", "add", "origin", "https://example.org/me/app.git")
        project.git("commit", "-q", "--allow-empty", "-m", "one")
        files = [file for file in project.path.rglob("*") if file.is_file()]
        return [(file.relative_to(project.path), file.read_bytes()) for file in files]
