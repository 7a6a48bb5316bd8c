"""Commands that write or delete where no snapshot holds it, or change the machine itself."""

from collections.abc import Iterator
from typing import Final

from ironcurtain_proxy.model.command import Redirection, SimpleCommand, Word
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.model.vocabulary import words
from ironcurtain_proxy.shell.outward import name_of, sub_commands, why_privileged
from ironcurtain_proxy.shell.places import may_write, path_of

_WRITERS: Final = words(
    """
    rm rmdir unlink shred truncate mv cp ln touch mkdir tee chmod chown chgrp install dd patch
    rsync trash setfacl chattr split
    """
)


_REMOVERS: Final = words("rm mv shred rmdir unlink trash")
_PRUNES: Final = words("gc prune repack")


def why_beyond(command: SimpleCommand, place: Place) -> str | None:
    """The reason why a command cannot be taken back; None: nothing says so."""
    privileged = why_privileged(command)
    if privileged is not None:
        return privileged
    if any(_leaves(one, place) for one in command.redirections):
        return "output is written to a file outside the workspace"
    name = name_of(command)
    if name == "git" and _PRUNES & set(sub_commands(command.words[1:])[:1]):
        return "git removes objects for good"
    if name not in _WRITERS:
        return None
    reasons = (_why_not_here(name, word, place) for word in _operands(command))
    return next((reason for reason in reasons if reason is not None), None)


def paths_beyond(command: SimpleCommand, place: Place) -> Iterator[str]:
    """The paths that a command names and changes where its sandbox does not let it."""
    if why_privileged(command) is not None:
        return
    written = [one.target for one in command.redirections if _leaves(one, place)]
    if name_of(command) in _WRITERS:
        written += _operands(command)
    for word in written:
        path = path_of(word, place)
        if path is not None and not may_write(path, place):
            yield path


def _operands(command: SimpleCommand) -> list[Word]:
    operands = [word for word in command.words[1:] if not word.prefix.startswith("-")]
    return operands[-1:] if name_of(command) == "cp" else operands


def _leaves(one: Redirection, place: Place) -> bool:
    if one.operator not in {">", ">>", ">|", "&>", "&>>", "<>"}:
        return False
    path = path_of(one.target, place)
    return path is not None and not may_write(path, place)


def _why_not_here(name: str, word: Word, place: Place) -> str | None:
    path = path_of(word, place)
    if path is None:
        # Of `/tmp/x/*.log` the directory is known. What else it leads to, the sandbox holds.
        around = path_of(Word(word.prefix.rpartition("/")[0] or "/"), place)
        absolute = word.prefix.startswith(("/", "~"))
        outside = absolute and (around is None or not may_write(around, place))
        return f"{name} works outside the workspace" if outside else None
    if not may_write(path, place):
        return f"{name} works outside the workspace"
    if name in _REMOVERS and (path == place.workspace or path.endswith("/.git")):
        return f"{name} removes a whole repository"
    return None
