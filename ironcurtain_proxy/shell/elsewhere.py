"""Commands that may read files of the user's outside the workspace.

A sandbox hides credentials, and lets a command read everything else. So a command that names a file
of a home elsewhere is asked about, as a file tool would be. A shell can name it in many ways:

    directly        an operand, a part of a word behind `=`, `:` or an option, braces, a pattern, a
                    variable, a text that an interpreter runs
    by its place    all that runs behind `cd ~/other`
    by what is told one part shows, keeps or links the name (`ls`, `echo`, `F=`, `ln -s`), another
                    one opens what it only knows when it runs (`xargs cat`, `cat "$f"`)

Where a program makes up the name itself, nothing here finds it.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ironcurtain_proxy.model.request import CommandPlace, SimpleCommand, Word
from ironcurtain_proxy.shell.grammar import directory_after, read_options, reading_program
from ironcurtain_proxy.shell.literal_text import loose_paths
from ironcurtain_proxy.shell.outward import (
    is_symbolic_link,
    name_of,
    sub_commands,
)
from ironcurtain_proxy.shell.places import is_within, may_write, normal
from ironcurtain_proxy.shell.programs import word_set
from ironcurtain_proxy.shell.readers import why_not_find
from ironcurtain_proxy.shell.statements import TEXT_RUNNERS
from ironcurtain_proxy.shell.words import told_by

ELSEWHERE: Final = "it reads files outside the workspace"
HOMES: Final = ("/home", "/root", "/Users", "/Volumes", "/mnt", "/media", "/srv")
SHOW_NO_CONTENT: Final = word_set("show-no-content")
"""Programs that show no content of the files that they are given, at most names and sizes."""
_RUN_TEXTS: Final = word_set("family-table-interpreters") | TEXT_RUNNERS | {
    "awk", "gawk", "mawk", "trap", "alias"
}  # fmt: skip
_WALKS: Final = frozenset({"find", "gfind", "fd", "fdfind", "tree"})


def reads_elsewhere(command: SimpleCommand, place: CommandPlace) -> bool:
    """Return whether a command names a file elsewhere that it may read, or runs elsewhere."""
    inputs = [one.target for one in command.redirections if one.operator == "<"]
    if any(names_elsewhere(one, place) for one in inputs):
        return True
    if shows_no_content(command) or is_symbolic_link(command):
        return False
    if any(words_elsewhere(command, place)) or _sets_elsewhere(command, place):
        return True
    # `cd ~/other && grep -rn x` reads what `grep -rn x ~/other` does.
    is_there = _is_there(place) and not _shows_own_history(command, place)
    return is_there and bool(command.words) and _files(command) != ()


def _shows_own_history(command: SimpleCommand, place: CommandPlace) -> bool:
    """Return whether git shows what the workspace's repository holds, from its first worktree.

    In the workspace it shows the same. What is not committed there is shown by other sub-commands.
    """
    # INVARIANT: an option before the sub-command, or a variable, may name another repository.
    is_led = command.assignments or any(one.startswith("GIT_") for one in command.set_before)
    first = " ".join([one.text or "" for one in command.words[:2]])
    is_own = place.repository == f"{place.directory}/.git"
    return is_own and not is_led and first in {"git log", "git show"}


def _is_there(place: CommandPlace) -> bool:
    return place.directory is not None and _is_someones(f"{place.directory}/.x", place)


def words_elsewhere(command: SimpleCommand, place: CommandPlace) -> Iterator[Word]:
    """Yield the words of a command that name files of the user's outside the workspace."""
    name = name_of(command)
    runs = name in _RUN_TEXTS
    files = None if runs else _files(command)
    given = command.words[1:] if files is None else files
    yield from (one for one in given if names_elsewhere(one, place, runs=runs))
    if files != ():
        yield from (one for one in given if _holds_homes(one, place))
    for one in command.redirections:
        is_text = one.operator in {"<<", "<<<"}
        if (not is_text or runs) and names_elsewhere(one.target, place, runs=is_text):
            yield one.target


def _sets_elsewhere(command: SimpleCommand, place: CommandPlace) -> bool:
    found = [one for one in command.assignments if one.name not in _tools() and command.words]
    return any(names_elsewhere(one.value, place) for one in found)


def shows_no_content(command: SimpleCommand) -> bool:
    """Return whether a program shows no content of files, at most names and sizes."""
    name = name_of(command)
    if name in {"source", "."}:
        return all(_SCRIPT.search(told_by(word)[0]) for word in command.words[1:2])
    if name != "git":
        return name in SHOW_NO_CONTENT or _only_lists(name or "", command.words[1:])
    path = sub_commands(command.words[1:])
    if command.words[1:2] and command.words[1].text in word_set("git-shows-names"):
        return True
    # What is only known at run time may be `-p`, but for the value of `--grep=$x`.
    texts = [
        word.text or (word.prefix if "=" in word.prefix else "-p") for word in command.words[1:]
    ]
    if path[:1] == ["status"] and any(one.startswith(("-v", "--v")) for one in texts):
        return False
    if not {*path[:1]} <= word_set("git-shows-no-content") or any(map(_CONTENT.match, texts)):
        return False
    whole = path[:1] in (["diff"], ["show"], ["cat-file"])
    return not whole or (
        any(one.partition("=")[0] in _STATISTICS for one in texts) and ":" not in "".join(path)
    )


def shows_objects(command: SimpleCommand) -> bool:
    """Return whether git shows what its repository holds, and no file beside it, in any case.

    Its further words may be known only when it runs: as a path outside, none is read.
    """
    shows = [one.text for one in command.words[1:2]]
    return name_of(command) == "git" and not word_set("git-shows-objects").isdisjoint(shows)


def _only_lists(name: str, rest: Sequence[Word]) -> bool:
    """Return whether a program shows names alone with these options, as `find` without an action.

    What is known only when it runs could be an action.
    """
    if name in {"find", "gfind"}:
        return why_not_find(rest, _ANYWHERE, frozenset()) is None
    found = reading_program(name)
    if found is None or not (found.operands == "listed" or name in _WALKS):
        return False
    return not isinstance(read_options(found.grammar, rest, globs=True), str)


_ANYWHERE: Final = CommandPlace(workspace="/", directory="/", home="/")
_SCRIPT: Final = re.compile(r"(?:\.(?:sh|bash|zsh)|/activate|/env|/\.\w+)$")
_STATISTICS: Final = word_set("names-only") | {"--no-patch", "-s", "-t", "--batch-check"}
_CONTENT: Final = re.compile(
    r"-[^-]*[puUcmWLSG]|--(?:pa(?!re)|un(?!t|r)|fun|word|color-|bin|subm|te|ext|cc|che|rem|diff-m|pi)"
)
"""Options, also shortened ones, with which git shows content beside names."""


def _files(command: SimpleCommand) -> Sequence[Word] | None:
    """Return the words that name files of a program of the table; None if that is not known.

    It is empty where the program only reads its input.
    """
    found = reading_program(name_of(command) or "")
    if found is None or found.operands not in {"files", "pattern"}:
        return None
    read = read_options(found.grammar, command.words[1:], globs=True)
    if isinstance(read, str):
        return None
    options = found.grammar.options
    given = any(name in options and options[name].is_pattern for name, _ in read.options)
    skipped = 1 if found.operands == "pattern" and not given else 0
    named = [
        value for name, value in read.options if value and name in options and
        options[name].kind == "p"
    ]  # fmt: skip
    walks = found.here is not None and (not found.here or read.has(*found.here))
    files = (*read.operands[skipped:], *named)
    return files or ((Word("."),) if walks else ())


# --- names that one part tells another one


def tells(command: SimpleCommand, place: CommandPlace) -> bool:
    """Return whether a command hands on a name of a file elsewhere, without its content."""
    name = name_of(command)
    texts = [one.target for one in command.redirections if one.operator == "<<<"]
    texts += [] if not written(command) else _documents(command)
    if any(names_elsewhere(one, place, runs=True) for one in texts):
        return True
    if any(_SAYS_HOME.search(one.prefix) for one in command.words[1:]):
        return True
    if command.is_certain and name in {"cd", "pushd"} and not command.assignments:
        # The place of what follows says it.
        return directory_after(command.words[1:], place) is None and any(
            names_elsewhere(one, place) for one in command.words[1:]
        )
    shows = shows_no_content(command) or not command.words
    if not shows and not is_symbolic_link(command):
        return False
    words = command.words[1:] if name != "export" else _exported(command)
    values = [one.value for one in command.assignments if one.name not in _tools()]
    runs = name in {"echo", "printf"}
    if any(names_elsewhere(one, place, runs=runs) for one in (*values, *words)):
        return True
    above = name == "dirname" and any("PWD" in one.variables for one in words)
    holds = name in _WALKS and any(_holds_homes(one, place) for one in words)
    return above or holds or (_is_there(place) and bool(command.words))


def _documents(command: SimpleCommand) -> list[Word]:
    return [one.target for one in command.redirections if one.operator == "<<"]


def written(command: SimpleCommand) -> frozenset[str]:
    """Return the files that a command writes its output to: `r.sh` of `echo x > ./r.sh`."""
    targets = [one.target for one in command.redirections if one.operator in {">", ">>", ">|"}]
    targets += command.words[1:] if name_of(command) == "tee" else []
    return frozenset([(one.text or "").removeprefix("./") for one in targets])


def runs_one_of(command: SimpleCommand, files: frozenset[str]) -> bool:
    """Return whether a command may run one of these files."""
    runs = name_of(command) in {"source", ".", "make", *_RUN_TEXTS}
    given = command.words if runs else command.words[:1]
    return any((one.text or "").removeprefix("./") in files for one in given)


_SAYS_HOME: Final = re.compile(r"\b(?:HOME|OLDPWD)\b")


def _tools() -> frozenset[str]:
    return word_set("places-of-tools")


def _exported(command: SimpleCommand) -> list[Word]:
    return [one for one in command.words[1:] if one.prefix.partition("=")[0] not in _tools()]


def leads(command: SimpleCommand, place: CommandPlace) -> bool:
    """Return whether a command changes what the words of others mean: `cd`, links, variables."""
    name = name_of(command)
    moves = name in {"cd", "pushd", "export", "declare", "typeset", "readonly"}
    sets = not command.words and any(one.name == "CDPATH" for one in command.assignments)
    return (moves or sets or is_symbolic_link(command)) and tells(command, place)


def opens_files(command: SimpleCommand) -> bool:
    """Return whether a command may read another file than its input."""
    if any(one.operator == "<" for one in command.redirections):
        return True
    return bool(command.words) and not shows_no_content(command) and _files(command) != ()


def takes_names(command: SimpleCommand) -> bool:
    """Return whether a command may open files whose names come from elsewhere in the text."""
    name = name_of(command)
    inputs = [one.target for one in command.redirections if one.operator == "<"]
    if any(one.text is None and not one.is_glob for one in inputs):
        return True
    if name in {"cd", "pushd", "source", "."}:
        return any(one.text is None for one in command.words[1:])
    if shows_no_content(command) or shows_objects(command) or not command.words:
        return False
    words = command.words[1:]
    files = _files(command)
    given = words if files is None else files
    return (
        name in {None, *word_set("takes-names")}
        or (name in _RUN_TEXTS and all(map(_is_code, words)))
        or any(_FROM_LIST.match(one.prefix) for one in words)
        or any(one.text is None and not one.is_glob for one in given)
    )


def _is_code(word: Word) -> bool:
    """Return whether a word of an interpreter names no file that it runs."""
    return word.prefix.startswith("-") or _CODE.search(word.prefix) is not None


_FROM_LIST: Final = re.compile(r"-T|-@|--(?:files0?|pathspec)-fr|--stdin|[a-z]*[cx][a-z]*T[a-z]*$")


# --- words


def names_elsewhere(word: Word, place: CommandPlace, *, runs: bool = False) -> bool:
    """Return whether a word names a file of the user's outside the workspace.

    A file tool asks about it, too. Files of the system are no secret.

    Args:
        word: an operand, an option, a value.
        place: where the command runs.
        runs: whether a text of several words may be run, so that each part of it counts.
    """
    if not word.variables.isdisjoint(_ABOVE):
        return True
    for text in told_by(word):
        if runs and _CODE.search(text):
            parts, is_known = [*loose_paths(text)], False
        elif "/" in text or "~" in text or ".." in text:
            parts, is_known = _named(text), word.text is not None
        else:
            continue
        if any(_leads_out(one, place, is_known=is_known) for one in parts):
            return True
    return False


_ABOVE: Final = frozenset({"HOME", "OLDPWD"})
"""Variables that are not replaced where they could be set otherwise."""
_CODE: Final = re.compile(r"[\s(){}'\"`;|&<>]")
_OPTION: Final = re.compile(r"--?[\w-]*?(?=[/~]|\.\.(?:/|$))")


def _named(text: str) -> list[str]:
    if any(blank in text for blank in " \n\t"):
        return [text, text.partition("=")[2]]
    option = _OPTION.match(text)
    return [*re.split(r"[=:@,]", text), *([text[option.end() :]] if option else [])]


def _leads_out(text: str, place: CommandPlace, *, is_known: bool) -> bool:
    """Return whether a part of a text is a path to somebody's files, or may become one."""
    if _OF_PROCESS.match(text) or text.startswith("/.."):
        return True
    if text == "~+" or text.startswith("~+/"):
        text = f".{text[2:]}"
    if _HOME_OF.match(text):
        return True
    known, star, _ = text.partition("*") if not is_known else (text, "", "")
    if star and _CLIMBS.search(text):
        return True
    if not star:
        path = _absolute(known, place)
        return path is not None and (_is_someones(path, place) or (not is_known and path in HOMES))
    above, slash, _ = known.rpartition("/")
    path = _absolute(above or slash, place)
    # Of `/h*/x` and `/home/*/x` what matches may be a home.
    return path is not None and not may_write(path, place) and (
        any(is_within(home, path) for home in _homes(place)) or _is_someones(f"{path}/.x", place)
    )  # fmt: skip


_HOME_OF: Final = re.compile(r"~[\w.+-]+(?:/|$)", re.ASCII)
_CLIMBS: Final = re.compile(r"\*[^/]*/(?:[^/]*/)*?\.\.(?:/|$)")


def _absolute(text: str, place: CommandPlace) -> str | None:
    """Return the path of a text, without a look at links."""
    if text == "~" or text.startswith("~/"):
        text = (place.home or "/root") + text[1:]
    elif not text.startswith("/"):
        if place.directory is None or ".." not in text.split("/"):
            return None
        text = f"{place.directory}/{text}"
    return normal(text)


def _homes(place: CommandPlace) -> tuple[str, ...]:
    return HOMES if place.home is None else (*HOMES, place.home)


def _is_someones(path: str, place: CommandPlace) -> bool:
    if may_write(path, place) or (place.repository and is_within(path, place.repository)):
        return False
    if place.home is not None and is_within(path, place.home):
        return True
    return any(is_within(path, one) and path != one for one in HOMES)


_OF_PROCESS: Final = re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?(?:root|cwd)(?:/|$)")


def _holds_homes(word: Word, place: CommandPlace) -> bool:
    """Return whether a word is a directory with homes below it: what walks there reads them."""
    path = _absolute(word.text or "", place)
    return path is not None and any(is_within(home, path) for home in _homes(place))
