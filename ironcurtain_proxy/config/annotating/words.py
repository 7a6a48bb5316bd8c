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

PATH_NOUNS: Final = words(
    """
    cwd dest destination dir directories directory dirname dirs file filename filenames filepath
    filepaths files folder folders path paths root source src target workdir workspace
    """
)
URL_NOUNS: Final = frozenset(
    {"endpoint", "href", "link", "links", "uri", "uris", "url", "urls", "webpage", "website"}
)
PLAIN: Final = words(
    """
    after before body case code content contents context count data depth description edits encoding
    end exclude explanation extension filter flags format glob head include indent insert keyword
    lang language limit line lines locale max message mime mode new newline offset old order page
    pattern patterns prefix purpose query reason regex replacement search size snippet sort start
    str string suffix tail text timezone title type value view xml json string by ignore extensions
    types range hash checksum etag
    """
)
"""Last words of arguments that are options or contents."""

PATH_FORMATS: Final = frozenset({"path", "file-path", "filepath", "directory-path", "file"})
URL_FORMATS: Final = frozenset({"uri", "url", "iri", "uri-reference", "iri-reference"})

_PATH_WORDS: Final = re.compile(
    r"\b(?:paths?|file ?names?|director(?:y|ies)|folders?|files?)"
    r" (?:to|of|for|in|where|that|on|relative)\b"
    r"|\b(?:absolute|relative|file|directory|folder|full|local|output|input|target|config)"
    r"[ -]?paths?\b"
    r"|\bthe (?:file|directory|folder)\b|\bname of the (?:file|directory|folder)\b",
    re.IGNORECASE,
)
_URL_WORDS: Final = re.compile(
    r"\bUR[LI]s?\b|\bweb ?(?:page|site|address)\b|https?://", re.IGNORECASE
)
_CAMEL: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


def words_of(name: str) -> tuple[str, ...]:
    """The words of an identifier, in lower case: `readTextFile`, `read_text_file`, `read-file`."""
    return tuple(word.lower() for word in _CAMEL.findall(name))


def speaks_of_path(description: str) -> bool:
    """Whether a description says that an argument is a file or directory."""
    return _PATH_WORDS.search(description) is not None


def speaks_of_url(description: str) -> bool:
    """Whether a description says that an argument is an address."""
    return _URL_WORDS.search(description) is not None


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
