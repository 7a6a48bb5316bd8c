"""Words in names and descriptions that indicate a tool's arguments and effects."""

import re
from typing import Final

from ironcurtain_proxy.model.vocabulary import words

READS: Final = words(
    """
    cat check count describe diff display exists find get glob grep head info inspect list load
    lookup ls open peek print read scan search show stat stats tail tree view walk
    """
)
WRITES: Final = words(
    """
    add append apply change chmod chown copy cp create edit format insert make mkdir modify new
    patch prepend put replace save set symlink touch update write
    """
)
DESTROYS: Final = frozenset(
    {"clean", "clear", "delete", "drop", "erase", "move", "mv", "prune", "purge", "remove"}
    | {"rename", "reset", "revert", "rm", "rmdir", "trash", "truncate", "unlink", "wipe"}
)
FETCHES: Final = frozenset({"crawl", "download", "fetch", "scrape"})
BEYOND: Final = words(
    """
    bash build call commit compile connect convert deploy email eval exec execute export import
    install invoke kill launch mail merge message notify play post publish pull push query render
    run script send share shell spawn sql start stop submit sync terminal test transfer upload
    command compress extract unzip zip
    """
)
"""Words for effects on a path that the path argument does not name."""

PATH_FORMATS: Final = frozenset({"path", "file-path", "filepath", "directory-path", "file"})
URL_FORMATS: Final = frozenset({"uri", "url", "iri", "uri-reference", "iri-reference"})

_CAMEL: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


def words_of(name: str) -> tuple[str, ...]:
    """The words of an identifier, in lower case: `readTextFile`, `read_text_file`, `read-file`."""
    return tuple(word.lower() for word in _CAMEL.findall(name))


_CHANGES: Final = re.compile(
    r"\b(?:delet|remov|eras|overwrit|truncat|modif|updat|creat|mov(?:e|es|ing)\b|renam|writ(?:e|es|ing)\b"
    r"|upload|send|publish|deploy|execut|runs?\b|running\b|install|post(?:s|ing)?\b|e-?mail)",
    re.IGNORECASE,
)


def speaks_of_change(description: str) -> bool:
    """Whether a description says that a tool does more than read, or may."""
    return _CHANGES.search(description) is not None


_DESTROYS: Final = re.compile(
    r"\b(?:delet|remov|eras|mov(?:e|es|ing)\b|renam|truncat|purg)", re.IGNORECASE
)
_LEAVES: Final = re.compile(
    r"\b(?:upload|send|publish|deploy|execut|runs?\b|running\b|install|post(?:s|ing)?\b|e-?mail"
    r"|UR[LI]s?\b|https?:|remote|server|cloud|download)",
    re.IGNORECASE,
)


def speaks_of_destroying(description: str) -> bool:
    """Whether a description says that a tool deletes or moves something away."""
    return _DESTROYS.search(description) is not None


def speaks_of_leaving(description: str) -> bool:
    """Whether a description says that a tool reaches or runs something other than files."""
    return _LEAVES.search(description) is not None
