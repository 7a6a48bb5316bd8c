"""Sub-commands of git that only read.

git runs programs that its configuration names: pagers, diff drivers, a file system monitor. That
configuration is a protected file wherever it lies; so these sub-commands only read in a directory
with a `.git` of its own, where nothing else is taken for a configuration.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.model.vocabulary import words
from ironcurtain_proxy.shell.grammar import ParsedOptions
from ironcurtain_proxy.shell.places import path_of
from ironcurtain_proxy.shell.reads import Check, reading_program, why_not_reader
from ironcurtain_proxy.shell.secrets import names_a_secret_file


def _format(reading: ParsedOptions) -> str | None:
    """Check that a format runs no program, as one with a signature does."""
    shown = reading.values_of("--format", "--pretty")
    if any(word.text is None or re.search(r"%G|signature|trailers", word.text) for word in shown):
        return "its format may run a program"
    return None


def _objects(reading: ParsedOptions, *, lists: bool = False) -> str | None:
    """Check that revisions and files are not ones that commonly hold secrets."""
    if any(word.text is None for word in reading.operands):
        return "it has an operand that is not known"
    # `git diff` of two files outside a repository shows files as `diff` does.
    if any(re.match(r"[/~]|\.\.(?:/|$)", word.text or "") for word in reading.operands):
        return "it names a file outside the repository"
    # git itself reads an operand as a pattern: `git show HEAD -- '.e*'`, `':(glob).e*'`.
    named = any(names_a_secret_file(_MAGIC.sub("", word.text or "")) for word in reading.operands)
    if named and not lists and (reading.has(*_CONTENT) or not reading.has(*_NAMES_ONLY)):
        return "it names what commonly holds secrets"
    return _format(reading)


def _listed(reading: ParsedOptions) -> str | None:
    """Check the same of a sub-command that shows names of files alone, unless it is told to."""
    return _objects(reading, lists=not reading.has(*_CONTENT, "-v", "--verbose"))


_NAMES_ONLY: Final = words(
    "--stat --shortstat --numstat --name-only --name-status --summary --compact-summary --dirstat"
)
"""Options of git with which a comparison shows names and numbers, and no content."""
_CONTENT: Final = words(
    """
    -p -u --patch --patch-with-stat -U --unified -c --cc -m -W --function-context -L -S -G --check
    --word-diff --color-words --color-moved --binary --submodule --merge-base --text -a
    """
)
"""Options with which git shows content beside them, or tells whether a text is in it."""


_MAGIC: Final = re.compile(r"^:(?:\([^)]*\)|[/!^]+:?)")
"""The signs in front of a path of git."""


def _branches(reading: ParsedOptions) -> str | None:
    """Check that branches are listed: an operand without `--list` creates one.

    To older versions `-l` is another option, which creates one as well.
    """
    return _listing(reading, "--list")


def _tags(reading: ParsedOptions) -> str | None:
    """Check that tags are listed: an operand without `--list` creates one."""
    return _listing(reading, "-l", "--list")


def _listing(reading: ParsedOptions, *names: str) -> str | None:
    if reading.operands and not reading.has(*names):
        return "with an operand it makes something"
    return _objects(reading)


def _reflog(reading: ParsedOptions) -> str | None:
    named = [word.text for word in reading.operands]
    if not {"expire", "delete", "drop", "write", "migrate"}.isdisjoint(named):
        return "it changes the log of references"
    return _objects(reading)


_NAMES: Final = re.compile(
    r"user\.(?:name|email)|branch\.[\w./-]+|init\.defaultbranch|core\.\w+|pull\.\w+|push\.\w+"
    r"|remote\.[\w.-]+\.(?:url|fetch)|merge\.\w+|commit\.\w+",
    re.IGNORECASE,
)


def _config(reading: ParsedOptions) -> str | None:
    """Check that one name is read, and that it holds no secret."""
    given = [word.text or "" for word in reading.operands]
    if given[:1] == ["get"]:
        given = given[1:]
    elif not reading.has("--get", "--get-all"):
        return "it may set a value"
    named = len(given) == 1 and _NAMES.fullmatch(given[0])
    return None if named else "what it shows may hold a secret"


_CHECKS: Final[Mapping[str, Check]] = {
    "objects": _objects, "listed-objects": _listed, "branches": _branches, "tags": _tags,
    "reflog": _reflog, "config": _config,
}  # fmt: skip

_GLOBAL: Final = frozenset({"--no-pager", "-P", "--no-optional-locks"})


def why_not_git(words: Sequence[Word], place: Place, variables: frozenset[str]) -> str | None:
    """The reason why a git command does more than read; None: it only reads."""
    at = 0
    while at < len(words) and (words[at].text in _GLOBAL or words[at].text == "-C"):
        if words[at].text == "-C":
            at += 1
            # Another directory may have another repository, or what only looks like one.
            here = at < len(words) and path_of(words[at], place) == place.directory
            if not here or place.directory is None:
                return "it works in another directory"
        at += 1
    if not place.has_repository:
        return "it is not known which repository it works in"
    rest = words[at:]
    names = [word.text or "" for word in rest[:2]]
    for length in (2, 1):
        name = " ".join(["git", *names[:length]])
        found = reading_program(name) if len(names) >= length else None
        if found is not None:
            return why_not_reader(found, rest[length:], place, variables, _CHECKS)
    return "the sub-command is not known to only read"
