"""The shell command of a call, and the place where it would run.

For each command it reads the disk: the repository of its directory, the current branch and the
target of a push, the files of its tasks, and the paths that lead out of the workspace. `shell` says
which files and paths to read.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.facts.arguments import WORKING_DIRECTORY_ARGUMENTS
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.pushes import may_run_hooks, repository_root, shows_credentials
from ironcurtain_proxy.facts.repositories import (
    OriginBranches,
    current_branch,
    current_commit,
    is_worktree,
    repository_of,
)
from ironcurtain_proxy.model.annotation import PATH_ROLES
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    CommandPlace,
    DiskLookups,
    Facts,
    ParsedCommand,
    PathValue,
)
from ironcurtain_proxy.model.values import Arguments, Json, RealPath, text_of

_PROSE: Final = frozenset({"description", "explanation", "purpose", "reason", "title"})
"""Arguments with text for people, which change nothing."""

_BRANCH_PROGRAMS: Final = frozenset({"git", "gh"})
"""Programs whose commands are read by the current branch."""


class CommandContext(Struct, frozen=True, kw_only=True):
    """The environment of a session's commands."""

    workspace: str | None = None
    home: str | None = None
    directory: Callable[[str], str | None] = lambda _: None
    """Gives the working directory of a server, by the operator's name, or None if it is unknown."""
    sought: Callable[[ParsedCommand, CommandPlace], DiskLookups] = lambda _command, _place: (
        DiskLookups()
    )
    """The files that give a command its meaning."""
    remotes: Callable[[str], GitRemotes | None] = lambda _: None
    """Gives git as a server would run it, by the operator's name."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Gives the private directory of a server."""
    own_tmp: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Gives the places that a server has for itself: `/tmp`, folders of the home directory."""
    branches: OriginBranches = field(default_factory=OriginBranches)
    """The branches of `origin` that the session has seen."""
    shown: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Gives the paths in that directory that are the machine's, and not writable."""

    def base(self, server: str) -> str | None:
        """Return where relative paths of a server start: never in its private directory."""
        return self.workspace if server in self.own else self.directory(server) or self.workspace


def with_command(facts: Facts, argument: str, server: str, grounds: CommandContext) -> Facts:
    """Return the facts of a call with the command in an argument of it.

    Args:
        facts: of the call.
        argument: the name of the argument.
        server: the operator's name of the server.
        grounds: the environment of the session's commands.
    """
    command = _parsed(facts.arguments.get(argument))
    odd = changes_the_command(facts.arguments, argument)
    if odd is not None and command.unreadable is None:
        command = replace(command, unreadable=f"the argument {odd} may change what it does")
    place = observed(
        command,
        _place(facts, server, grounds),
        grounds,
        server,
        text=text_of(facts.arguments.get(argument)),
    )
    request = _in_directory(facts, place.directory)
    if _names(command, "push"):
        facts = replace(facts, head=_pushed_commits(grounds.sought(command, place), place))
    return replace(facts, command=command, place=place, request=request)


def _pushed_commits(sought: DiskLookups, place: CommandPlace) -> str | None:
    """Return the commits that pushes would publish, each where it runs: `cd sub && git push`."""
    at = [one for family, one in sought.reaching if "push" in family.words().split()]
    roots = [repository_root(RealPath.from_text(one)) for one in at or [place.directory] if one]
    heads = [current_commit(one) for one in roots if isinstance(one, RealPath)]
    return " ".join([one for one in dict.fromkeys(heads) if one]) or None


def _in_directory(facts: Facts, directory: str | None) -> AccessRequest:
    """Return the request with the server's own directory for one that the call leaves out.

    Most calls of a shell leave it out. Without it each of them would be asked about, as a call that
    may name any directory.
    """
    request = facts.request
    names = [one for one in WORKING_DIRECTORY_ARGUMENTS if one in facts.arguments]
    if directory is None or names:
        return request
    value = PathValue(directory, RealPath.from_text(directory))
    return replace(
        request,
        arguments=tuple(
            [
                ArgumentFact(one.name, one.roles, (value,))
                if one.name in WORKING_DIRECTORY_ARGUMENTS and _is_path(one)
                else one
                for one in request.arguments
            ]
        ),
    )


def _is_path(fact: ArgumentFact) -> bool:
    return not PATH_ROLES.isdisjoint(fact.roles)


def observed(
    command: ParsedCommand,
    place: CommandPlace,
    grounds: CommandContext,
    server: str,
    *,
    text: str = "",
) -> CommandPlace:
    """Return a place, completed by what the disk shows about a command there.

    Args:
        command: the command.
        place: where it would run.
        grounds: the environment of the session's commands.
        server: the operator's name of the server.
        text: the command as it came.
    """
    remotes = grounds.remotes(server)
    if place.has_repository and place.directory is not None:
        grounds.branches.watch(place.directory)
    is_unknown = place.has_repository and place.directory is not None and place.branch is None
    if is_unknown and place.directory is not None and _asks_for_branch(command):
        place = replace(place, branch=current_branch(RealPath.from_text(place.directory)))
    if place.branch is not None and place.directory and remotes and _names(command, "push"):
        place = replace(
            place,
            push_to=remotes.push_target(place.directory, place.branch),
            own_branches=grounds.branches.new_among(
                place.directory, _pushed(command, place.branch), text
            ),
        )
    if place.has_repository and place.directory is not None and remotes and _uses_git(command):
        place = replace(place, runs_hooks=may_run_hooks(place.directory, remotes))
    if place.has_repository and place.directory is not None and remotes and _names(command, "gh"):
        own = remotes.only_repository(place.directory)
        place = replace(place, forge=None if own is None else (place.directory, own))
    if place.workspace is not None:
        named = grounds.sought(command, place)
        place = replace(place, strays=strays_among(named.paths, place.workspace, globs=named.globs))
    # Only a command has a meaning that lies in files.
    from ironcurtain_proxy.facts.meanings import settled  # noqa: PLC0415

    # Sought again with the strays: a path that a link leads out of the workspace has no family.
    return settled(place, grounds.sought(command, place), remotes)


def _asks_for_branch(command: ParsedCommand) -> bool:
    """Return whether the current branch may matter; to any other command it is left out.

    A question about `npm test` must not end because somebody changes the branch meanwhile.
    """
    return command.unreadable is not None or any(
        word.text is None or word.text.rpartition("/")[2] in _BRANCH_PROGRAMS
        for one in command.every_command()
        for word in one.words
    )


def _names(command: ParsedCommand, text: str) -> bool:
    return any(word.text == text for one in command.every_command() for word in one.words)


def _pushed(command: ParsedCommand, branch: str) -> tuple[str, ...]:
    """Return the words of pushes that may name a branch, and the current branch."""
    named = [
        word.text
        for one in command.every_command()
        if any(word.text == "push" for word in one.words)
        for word in one.words[1:]
        if word.text is not None and not word.text.startswith("-")
    ]
    return tuple(dict.fromkeys([*named, branch]))


def _uses_git(command: ParsedCommand) -> bool:
    """Return whether git runs together with other programs, or pulls.

    Else its hooks need no check.
    """
    of_git = [one for one in command.commands if one.words and one.words[0].text == "git"]
    pulls = any(word.text == "pull" for one in of_git for word in one.words)
    return bool(of_git) and (pulls or len(command.commands) > 1)


def _parsed(value: Json) -> ParsedCommand:
    # Only a tool that was declared to run commands needs the parser.
    from ironcurtain_proxy.shell.statements import parse_command  # noqa: PLC0415

    if value is None:
        return ParsedCommand()
    if not isinstance(value, str):
        return ParsedCommand(unreadable="it is not a text")
    return parse_command(value)


def changes_the_command(arguments: Arguments, command: str) -> str | None:
    """Return the argument that may change a command's effect: its environment, shell or input."""
    known = {command, *WORKING_DIRECTORY_ARGUMENTS, *_PROSE}
    for name, value in arguments.items():
        if name not in known and isinstance(value, str | list | dict) and value:
            return name[:40] if name.isidentifier() else "beside it"
    return None


def _place(facts: Facts, server: str, grounds: CommandContext) -> CommandPlace:
    directory, own = _directory(facts, server, grounds), _real(grounds.own.get(server))
    workspace = _real(grounds.workspace)
    return CommandPlace(
        workspace=workspace,
        directory=directory,
        home=_real(grounds.home),
        writable=(*(() if own is None else (own,)), *grounds.own_tmp.get(server, ())),
        closed=grounds.shown.get(server, ()),
        has_repository=directory is not None and has_repository(directory, grounds.workspace),
        repository=None if workspace is None else repository_of(workspace),
        shows_credentials=any(
            shows_credentials(place) for place in {workspace, directory} if place is not None
        ),
    )


def _directory(facts: Facts, server: str, grounds: CommandContext) -> str | None:
    """Return the directory of a command: the call's only working directory, else the server's."""
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
    # An argument that is not annotated as a path is sent unchanged.
    return _real(value) if isinstance(value, str) else None


def _real(path: str | None) -> str | None:
    if path is None or not path.startswith("/") or "\0" in path:
        return None
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return None


def has_repository(directory: str, workspace: str | None) -> bool:
    """Return whether a directory has a `.git` of its own: a directory, or the file of a worktree.

    Any other file of that name leads to a repository that the agent could have laid out.
    """
    try:
        if stat.S_ISDIR(os.lstat(f"{directory}/.git").st_mode):
            return True
        return is_worktree(directory, _real(workspace))
    except (OSError, ValueError):
        return False


_MAX_PATHS: Final = 500
"""The most paths of one command that are checked. With more, none counts as inside."""
_MAX_ENTRIES: Final = 5000
"""The most entries of directories of which a pattern names files."""


def strays_among(
    paths: Iterable[str], workspace: str, *, globs: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return links that lead out of the workspace or to a secret, each by its own path.

    Args:
        paths: below the workspace, as text; one with `..` is read as the system reads it.
        workspace: free of links.
        globs: directories of which a pattern may name any file.
    """
    found: dict[str, None] = {}
    for count, path in enumerate(dict.fromkeys([*paths, *globs])):
        if count >= _MAX_PATHS:
            return (workspace,)
        links = [path] if ".." in path else _ancestors(path, workspace)
        stray = next((link for link in links if _leads_out(link, workspace)), None)
        if stray is not None:
            found[os.path.normpath(stray)] = None
    left = _MAX_ENTRIES
    for directory in globs:
        links, seen = _links_in(directory, left)
        left -= seen
        if left <= 0:
            return (workspace,)
        found |= dict.fromkeys(link for link in links if _leads_out(link, workspace))
    return tuple(found)


def _leads_out(link: str, workspace: str) -> bool:
    try:
        real = os.path.realpath(link)
    except (OSError, ValueError):
        real = ""
    if real == workspace:
        return False
    # Only a command has links among its files; nothing else needs the table.
    from ironcurtain_proxy.shell.places import names_a_secret_file  # noqa: PLC0415

    within = real.removeprefix(f"{workspace.rstrip('/')}/")
    return within == real or names_a_secret_file(within)


def _links_in(directory: str, most: int) -> tuple[list[str], int]:
    """Return the links of a directory, and how many entries were looked at."""
    try:
        with os.scandir(directory) as entries:
            seen = list(islice(entries, most))
            return [entry.path for entry in seen if entry.is_symlink()], len(seen)
    except (OSError, ValueError):
        return [], 0


def _ancestors(path: str, workspace: str) -> Iterator[str]:
    """Yield the links on the way from the workspace to a path."""
    at = workspace.rstrip("/")
    for name in path.removeprefix(at).split("/"):
        if name:
            at = f"{at}/{name}"
            if os.path.islink(at):  # noqa: PTH114  microseconds
                yield at
