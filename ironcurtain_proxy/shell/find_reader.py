"""`find` that only lists."""

from collections.abc import Sequence
from typing import Final

from ironcurtain_proxy.approval.shell.secrets import names_a_secret
from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.shell.places import Place, why_not_read

_FLAGS: Final = frozenset(
    [
        "!",
        "(",
        ")",
        "-a",
        "-o",
        "-and",
        "-or",
        "-not",
        "-print",
        "-print0",
        "-prune",
        "-empty",
        "-ls",
        "-depth",
        "-xdev",
        "-mount",
        "-true",
        "-false",
        "-readable",
        "-executable",
        "-writable",
        "-daystart",
        "-follow",
        "-H",
        "-L",
        "-P",
        "-E",
    ]
)
_VALUES: Final = frozenset(
    [
        "-name",
        "-iname",
        "-path",
        "-ipath",
        "-wholename",
        "-type",
        "-maxdepth",
        "-mindepth",
        "-size",
        "-mtime",
        "-mmin",
        "-atime",
        "-amin",
        "-ctime",
        "-cmin",
        "-newer",
        "-regex",
        "-iregex",
        "-perm",
        "-user",
        "-group",
        "-links",
        "-inum",
        "-regextype",
        "-printf",
    ]
)


def why_not_find(words: Sequence[Word], place: Place) -> str | None:
    """Why a `find` is more than listing; None if it only lists."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.splits or word.text is None:
            return "an argument that is not known could be an action"
        if word.text in _FLAGS:
            continue
        if word.text in _VALUES:
            value = words[at] if at < len(words) else Word(None)
            at += 1
            if value.splits or value.variables:
                return "a value is not known"
            if names_a_secret([value]):
                return "it names what commonly holds secrets"
            continue
        if word.text.startswith("-"):
            return f"{word.text} is not known to only list"
        reason = why_not_read(word, place)
        if reason is not None:
            return reason
    return None
