"""Kinds of commands that only read files: below a directory elsewhere, and one file with secrets.

To the person who is asked, `cat ~/notes/a.txt` and `cd ~/notes && sed -n 1,9p x/b.txt` are one
thing: files below `~/notes` are read. Every operand, pattern and option with a file counts, because
an approval of one directory must not open another. What walks through a directory by itself, as
`find` and `rg` do, is no such kind: nobody saw which files that would be.
"""

import posixpath
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from ironcurtain_proxy.model.request import (
    ONLY_READS,
    READS_BELOW,
    CommandPlace,
    Family,
    Word,
)
from ironcurtain_proxy.model.values import words
from ironcurtain_proxy.shell.effects import Part, effect_of_part, only_reads_elsewhere
from ironcurtain_proxy.shell.elsewhere import HOMES
from ironcurtain_proxy.shell.outward import sub_commands
from ironcurtain_proxy.shell.places import (
    glob_directory,
    is_in_git_data,
    is_inside,
    is_within,
    may_write,
    names_a_secret,
    path_of,
    shows_git_configuration,
)


def reading_of_files(part: Part) -> Family | None:
    """Return the family of all commands that only read files of the same directory elsewhere.

    An approval is offered for all that lies below it, or below the directory that a `cd` before
    named. What shows all that lies below a directory is a family of its own. None: the part does
    more, or names files of several directories.
    """
    command, place = part.command, part.place
    is_asked = part.effect == "beyond" or (part.effect == "local" and part.program in _WALK)
    if not is_asked or not only_reads_elsewhere(command, place):
        return None
    named = (*command.words, *[one.target for one in command.redirections])
    files = part.program in _OF_FILES
    read = {one for word in named[1:] for one in _directories_read(word, place, files=files)}
    if not read or "" in read or (part.program in _WALK and len(read) > 1):
        return None
    if part.program in _WALK:
        return Family(program=(part.program or "", ONLY_READS), directory=min(read))
    top = place.directory or ""
    top = top if top and all(is_within(one, top) for one in read) else posixpath.commonpath(read)
    main = _main_worktree(place)
    top = main if main and is_within(top, main) else top
    of_git = shows_git_configuration(named) or is_in_git_data(place.directory)
    wide = ((READS_BELOW,), (top,)) if _is_one_matter(top, place) and not of_git else None
    # INVARIANT: other files of `.git` open no configuration, with its tokens.
    family = Family(program=(ONLY_READS,), directory=min(read), wide=wide, is_general=not of_git)
    several = None if wide is None else replace(family.widened(), wide=wide)
    return several if len(read) > 1 else family


def _directories_read(word: Word, place: CommandPlace, *, files: bool) -> Iterator[str]:
    """Yield the directories elsewhere of the files that a word names, or "" for one not known.

    Args:
        word: an operand, an option or the target of a redirection.
        place: where the command runs.
        files: whether the program reads no directory.
    """
    if word.is_glob:
        at = glob_directory(word, place) if "/" in word.pattern else place.directory
        found = [(at or "", at or "")]
    else:
        given, texts = word.prefix, [word.prefix]
        if given.startswith("-"):
            # `-f/x`, `-nfx` and `--file=x` name a file, too.
            short = "" if given.startswith("--") else given[1:].partition("f")[2]
            texts = [given.partition("=")[2], short, given[2:] if given[2:3] in "/~." else ""]
        found = []
        for text in texts:
            path = path_of(Word(text), place)
            # A name without a slash may be a pattern, or a file of the directory that it runs in.
            is_name = "/" not in text and not text.startswith(("~", ".."))
            at = (
                place.directory
                if is_name or path is None
                else _directory_of(path, place, files=files)
            )
            found += [] if path is None else [(path, at or "")]
    yield from (at for path, at in found if not (is_inside(path, place) or may_write(path, place)))


def _main_worktree(place: CommandPlace) -> str:
    """Return the first worktree of the repository of which the workspace is another, or ""."""
    above, _, name = (place.repository or "").rpartition("/")
    return above if name == ".git" and above != place.workspace else ""


def _is_one_matter(directory: str, place: CommandPlace) -> bool:
    """Return whether all that lies below a directory is of one matter: no home, no parent."""
    homes = () if place.home is None else (place.home,)
    above = next((one for one in (*homes, *HOMES) if is_within(directory, one)), "/")
    names = directory.removeprefix(above).split("/")[1:]
    # Below `/home` and its like the first name is somebody's.
    names = names if above in homes else names[1:]
    # A name with a dot may be a file of the home itself.
    is_plain = names[:1] and not names[0].startswith(".") and (names[1:] or "." not in names[0])
    is_parent = is_within(place.workspace or "/", directory) and directory != _main_worktree(place)
    return above != "/" and bool(is_plain) and names != ["Library"] and not is_parent


def reading_of_a_secret(part: Part, parts: Sequence[Part]) -> Family | None:
    """Return the family of all commands that only read one file of the project with secrets.

    None: the part does more, or another part reaches out, to which it could hand what it reads.
    """
    command, place = part.command, part.place
    named = [word for word in command.words if names_a_secret([word])]
    is_known = part.program not in {None, "git"} or sub_commands(command.words[1:])[:1] == ["diff"]
    if part.effect != "local" or len(named) != 1 or not is_known:
        return None
    path = path_of(named[0], place)
    given = [one for one in command.words if part.program != "grep" or one.text != "-r"]
    plain = [Word("notes") if word is named[0] else word for word in given]
    is_reading = effect_of_part(replace(command, words=tuple(plain)), place) == "reads"
    reaches_out = any(one.effect in {"outward", "beyond"} for one in parts)
    if path is None or not is_reading or reaches_out or not is_inside(path, place):
        return None
    return Family(program=(ONLY_READS,), kept=(path,))


def _directory_of(path: str, place: CommandPlace, *, files: bool) -> str:
    """Return the directory of a file, by its program or its ending, or the path itself."""
    above, _, name = path.rpartition("/")
    is_wide = place.home is None or is_within(place.home, above or "/") or above.count("/") < _DEEP
    return path if is_wide or not (files or "." in name.lstrip(".")) else above


_OF_FILES: Final = words(
    "cat head tail sed wc jq xxd od hexdump md5 md5sum shasum sha256sum cksum strings nl tac cut"
)
"""Programs that read no directory."""
_DEEP: Final = 2
_WALK: Final = frozenset({"find", "gfind", "fd", "fdfind", "tree", "rg"})
"""Programs that show what lies below a directory."""
