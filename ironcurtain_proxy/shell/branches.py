"""The branches that a shell command commits and pushes to.

They are known only where nothing in the command could lead git elsewhere: another directory or
repository, a variable, a wrapper, a remote that the repository does not have. The engine treats an
unknown branch as `main`.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from ironcurtain_proxy.model.command import ParsedCommand, SimpleCommand, Word
from ironcurtain_proxy.shell.wrappers import inner_commands

CURRENT: Final = "HEAD"
"""The mark for the current branch of the repository."""

_GIT: Final = frozenset({"git", "/usr/bin/git", "/bin/git", "/usr/local/bin/git"})

_HARMLESS: Final = frozenset({"-P", "--no-pager"})
"""Git's own options that leave the repository where it is."""

_PUSH_OPTIONS: Final = frozenset(
    {"-u", "--set-upstream", "-q", "--quiet", "-v", "--verbose", "--progress", "--no-progress"}
    | {"-n", "--dry-run", "--porcelain", "--atomic", "-4", "-6", "--thin", "--no-thin"}
)
"""Options of a push that name nothing, and add no other branch."""

_STATEFUL: Final = frozenset(
    {"cd", "chdir", "pushd", "popd", "export", "declare", "typeset", "readonly", "local", "unset"}
    | {"set", "shopt", "alias", "unalias", "source", ".", "eval", "exec", "trap", "read", "mapfile"}
    | {"readarray", "let", "getopts", "builtin", "command", "enable", "hash", "umask", "coproc"}
)
"""Commands that change the shell for the commands after them."""

_REMOTE: Final = "origin"
"""The remote that a push may name. An address or a path leads anywhere, and to git any other name
may be a directory, whose hooks it runs."""


def branches_of_command(parsed: ParsedCommand) -> tuple[str, ...] | None:
    """The refspecs of all its commits and pushes, in order; None: they are not known.

    Args:
        parsed: the command.

    Returns:
        `HEAD` for a commit; the refspecs of a push, as they stand there.
    """
    if parsed.unreadable is not None:
        return None
    direct = {id(command) for command in parsed.commands}
    found: list[str] = []
    for command in inner_commands(parsed):
        refspecs = _of_one(command, wrapped=id(command) not in direct)
        if refspecs is None:
            return None
        found += refspecs
    return tuple(dict.fromkeys(found))


def _of_one(command: SimpleCommand, *, wrapped: bool) -> Sequence[str] | None:
    if command.assignments:
        return None
    if not command.words:
        return ()
    name = command.words[0].text
    if name is None or name in _STATEFUL:
        return None
    if name not in _GIT:
        # A git of another directory is another program.
        return None if name.endswith("/git") else ()
    return None if wrapped else _of_git(command.words[1:])


def _of_git(words: Sequence[Word]) -> Sequence[str] | None:
    texts = list(_texts(words))
    while texts and texts[0] in _HARMLESS:
        del texts[0]
    match texts:
        case ["commit", *_]:
            return (CURRENT,)
        case ["push", *arguments]:
            return _of_push(arguments)
        case [str() as command, *_] if not command.startswith("-"):
            return ()
        case _:
            return None


def _of_push(arguments: Sequence[str | None]) -> Sequence[str] | None:
    """The refspecs of a push; None: not known. Without one, git's configuration decides."""
    named = [text for text in arguments if text not in _PUSH_OPTIONS]
    if any(text is None or text.startswith("-") for text in named) or named[:1] != [_REMOTE]:
        return None
    refspecs = [text for text in named[1:] if text is not None]
    return refspecs or None


def _texts(words: Sequence[Word]) -> Iterator[str | None]:
    return (word.text for word in words)
