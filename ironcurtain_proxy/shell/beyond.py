"""Commands that work outside the workspace.

They write or delete where no snapshot holds it, change the machine itself, or read files of the
user's that a file tool would ask about.
"""

import re
from collections.abc import Iterator
from typing import Final

from ironcurtain_proxy.model.command import Redirection, SimpleCommand, Word
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.model.vocabulary import words
from ironcurtain_proxy.shell.outward import name_of, sub_commands, why_privileged
from ironcurtain_proxy.shell.places import is_within, may_write, path_of

_WRITERS: Final = words(
    """
    rm rmdir unlink shred truncate mv cp ln touch mkdir tee chmod chown chgrp install dd patch
    rsync trash setfacl chattr split
    """
)


_REMOVERS: Final = words("rm mv shred rmdir unlink trash")
_PRUNES: Final = words("gc prune repack")
_WHOLE: Final = "removes a whole repository"


def why_beyond(command: SimpleCommand, place: Place) -> str | None:
    """Return the reason why a command works outside the workspace; None: nothing says so."""
    privileged = why_privileged(command)
    if privileged is not None:
        return privileged
    if any(_leaves(one, place) for one in command.redirections):
        return "output is written to a file outside the workspace"
    name = name_of(command)
    if name == "git" and _PRUNES & set(sub_commands(command.words[1:])[:1]):
        return "git removes objects for good"
    if name in _WRITERS:
        reasons = (_why_not_here(name, word, place) for word in _operands(command))
        found = next((reason for reason in reasons if reason is not None), None)
        if found is not None:
            return found
    if name not in SHOW_NO_CONTENT and not _is_symbolic_link(command):
        words = (*command.words[1:], *(one.target for one in command.redirections))
        if any(_is_someones(word, place) for word in words):
            return ELSEWHERE
    return None


def words_beyond(command: SimpleCommand, place: Place) -> Iterator[Word]:
    """Yield the words of a command that name what it changes outside the workspace."""
    yield from (one.target for one in command.redirections if _leaves(one, place))
    name = name_of(command)
    if name in _WRITERS:
        found = ((word, _why_not_here(name, word, place)) for word in _operands(command))
        yield from (word for word, why in found if why is not None and _WHOLE not in why)


def deletes_repository(command: SimpleCommand, place: Place) -> bool:
    """Return whether a command removes the workspace, or the data of a repository in it."""
    name = name_of(command)
    found = (_why_not_here(name, one, place) for one in _operands(command) if name in _REMOVERS)
    return any(why is not None and _WHOLE in why for why in found)


def words_elsewhere(command: SimpleCommand, place: Place) -> Iterator[Word]:
    """Yield the words of a command that name files of the user's outside the workspace."""
    given = (*command.words[1:], *(one.target for one in command.redirections))
    return (word for word in given if _is_someones(word, place))


ELSEWHERE: Final = "it reads files outside the workspace"
SHOW_NO_CONTENT: Final = words(
    "cd pushd popd source . export mkdir test [ [[ ls stat du readlink realpath namei"
)
"""Programs that show no content of the files that they are given, at most names and sizes."""
_HOMES: Final = ("/home", "/root", "/Users", "/Volumes", "/mnt", "/media", "/srv")


def _is_someones(word: Word, place: Place) -> bool:
    """Return whether a word names a file of the user's outside the workspace.

    A file tool asks about it, too. Files of the system are no secret.
    """
    whole = word.prefix
    if "/" not in whole:
        return False
    for text in (whole, whole.partition("=")[2]):
        if text.startswith(("/", "~/", "../")):
            path = path_of(Word(text), place)
            homes = _HOMES if place.home is None else (*_HOMES, place.home)
            if (
                path is not None
                and any(is_within(path, home) and path != home for home in homes)
                and not may_write(path, place)
            ):
                return True
    return False


def _is_symbolic_link(command: SimpleCommand) -> bool:
    """Return whether a command makes a link, whose target is neither written nor read."""
    if name_of(command) != "ln":
        return False
    options = [word.text or "" for word in command.words[1:] if word.prefix.startswith("-")]
    known = all(_LINK.fullmatch(one) for one in options)
    return known and any(_SYMBOLIC.fullmatch(one) for one in options)


_LINK: Final = re.compile(
    r"-[sfnrvibT]*t?|--(?:symbolic|force|no-dereference|relative|verbose|interactive|backup"
    r"|no-target-directory|target-directory=.*)"
)
_SYMBOLIC: Final = re.compile(r"-[a-zT]*s[a-zT]*|--symbolic")


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
    if _is_symbolic_link(command):
        return _made_links(command, operands)
    is_copy = name_of(command) == "cp" and not any(
        re.match(r"-\w*t|--t", word.prefix) for word in command.words[1:]
    )
    return operands[-1:] if is_copy else operands


def _made_links(command: SimpleCommand, operands: list[Word]) -> list[Word]:
    """Return the words that say where a symbolic link is made; its targets are no such places."""
    given = command.words[1:]
    for at, word in enumerate(given):
        if word.prefix.startswith("--target-directory="):
            return [Word(None if word.text is None else word.text.partition("=")[2])]
        if re.fullmatch(r"-[a-zT]*t", word.prefix):
            return [*given[at + 1 : at + 2]]
    # `ln -s TARGET` makes a link of the target's name in the working directory.
    return operands[1:][-1:]


def _leaves(one: Redirection, place: Place) -> bool:
    if one.operator not in {">", ">>", ">|", "&>", "&>>", "<>"}:
        return False
    path = path_of(one.target, place)
    return path is not None and not may_write(path, place)


def _why_not_here(name: str | None, word: Word, place: Place) -> str | None:
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
        return f"{name} {_WHOLE}"
    return None
