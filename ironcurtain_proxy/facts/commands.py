"""The shell command of a call, and where it would run.

Looks at the disk once for each command: whether its directory has a repository of its own. Does not
know what a command does.
"""

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ironcurtain_proxy.model.command import ParsedCommand
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.model.request import Facts, PathValue

WORKING_DIRECTORY_ARGUMENTS: Final = (
    *("cwd", "workdir", "workDir", "working_dir", "workingDir"),
    *("working_directory", "workingDirectory"),
)
_PROSE: Final = frozenset({"description", "explanation", "purpose", "reason", "title"})
"""Arguments that tell people about a command, and change nothing."""


def _no_directory(_server: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """What is known of every command of a session."""

    workspace: str | None = None
    home: str | None = None
    directory: Callable[[str], str | None] = _no_directory
    """By the operator's server name: where that server runs; None: not known."""
    own: Mapping[str, str] = field(default_factory=dict)
    """By the same: the directory that was made for that server and holds nothing of anybody's."""


def with_command(facts: Facts, argument: str, server: str, grounds: Grounds) -> Facts:
    """The facts of a call with the command in an argument of it.

    Args:
        facts: of the call.
        argument: the name of the argument.
        server: the operator's name of the server.
        grounds: what is known of every command.
    """
    command = _parsed(facts.arguments.get(argument))
    odd = _changes_the_command(facts.arguments, argument)
    if odd is not None and command.unreadable is None:
        command = replace(command, unreadable=f"the argument {odd} may change what it does")
    return replace(facts, command=command, place=_place(facts, server, grounds))


def _parsed(value: Json) -> ParsedCommand:
    # Only a tool that was declared to run commands needs the parser.
    from ironcurtain_proxy.shell.parse import parse_command  # noqa: PLC0415

    if value is None:
        return ParsedCommand()
    if not isinstance(value, str):
        return ParsedCommand(unreadable="it is not a text")
    return parse_command(value)


def _changes_the_command(arguments: Arguments, command: str) -> str | None:
    """An argument that may change what a command does: its environment, its shell, its input."""
    known = {command, *WORKING_DIRECTORY_ARGUMENTS, *_PROSE}
    for name, value in arguments.items():
        if name not in known and isinstance(value, str | list | dict) and value:
            return name[:40] if name.isidentifier() else "beside it"
    return None


def _place(facts: Facts, server: str, grounds: Grounds) -> Place:
    directory, own = _directory(facts, server, grounds), _real(grounds.own.get(server))
    return Place(
        workspace=_real(grounds.workspace),
        directory=directory,
        home=_real(grounds.home),
        writable=() if own is None else (own,),
        has_repository=directory is not None and _has_repository(directory),
    )


def _directory(facts: Facts, server: str, grounds: Grounds) -> str | None:
    """Where a command starts: the one working directory of the call, else the server's own."""
    said = [
        name
        for name in WORKING_DIRECTORY_ARGUMENTS
        if facts.arguments.get(name) is not None and facts.arguments[name] != ""
    ]
    if not said:
        return _real(grounds.directory(server))
    if len(said) > 1:
        return None
    for fact in facts.request.arguments:
        if fact.name == said[0] and len(fact.values) == 1 and isinstance(fact.values[0], PathValue):
            return str(fact.values[0].path)
    value = facts.arguments[said[0]]
    # What is not annotated as a path goes to the server as it came.
    return _real(value) if isinstance(value, str) else None


def _real(path: str | None) -> str | None:
    if path is None or not path.startswith("/") or "\0" in path:
        return None
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return None


def _has_repository(directory: str) -> bool:
    """Whether a directory has a `.git` of its own that is a directory.

    A file of that name leads to a repository elsewhere, which the agent could have laid out.
    """
    try:
        return stat.S_ISDIR(os.lstat(f"{directory}/.git").st_mode)
    except (OSError, ValueError):
        return False
