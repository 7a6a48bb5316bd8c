"""Words in names and descriptions that indicate a tool's arguments and effects."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ironcurtain_proxy.model.vocabulary import words

WORDS: Final[Mapping[str, frozenset[str]]] = {
    key: words(text)
    for key, text in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
}
"""The words of `words.toml`, by key."""

READS: Final = WORDS["reads"]
WRITES: Final = WORDS["writes"]
DESTROYS: Final = WORDS["destroys"]
FETCHES: Final = WORDS["fetches"]
PATH_FORMATS: Final = WORDS["path_formats"]
URL_FORMATS: Final = WORDS["url_formats"]

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
    """Return whether a description says that a tool does more than read, or may."""
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
    """Return whether a description says that a tool deletes or moves something away."""
    return _DESTROYS.search(description) is not None


def speaks_of_leaving(description: str) -> bool:
    """Return whether a description says that a tool reaches or runs something other than files."""
    return _LEAVES.search(description) is not None
