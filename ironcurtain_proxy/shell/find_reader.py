"""`find` that only lists."""

import itertools
from collections.abc import Sequence
from typing import Final

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.shell.options import words
from ironcurtain_proxy.shell.places import why_not_read
from ironcurtain_proxy.shell.secrets import names_a_secret

_FLAGS: Final = words(
    """
    ! ( ) -a -o -and -or -not -print -print0 -prune -empty -ls -depth -xdev -mount -true -false
    -readable -executable -writable -daystart -follow -H -L -P -E
    """
)
_VALUES: Final = words(
    """
    -name -iname -path -ipath -wholename -type -maxdepth -mindepth -size -mtime -mmin -atime -amin
    -ctime -cmin -newer -regex -iregex -perm -user -group -links -inum -regextype -printf
    """
)


def why_not_find(rest: Sequence[Word], place: Place, variables: frozenset[str]) -> str | None:
    """Why a `find` is more than listing; None if it only lists."""
    del variables  # nothing that is not known may stand there
    if any(word.splits or word.text is None for word in rest):
        return "an argument that is not known could be an action"
    values = [word for before, word in itertools.pairwise(rest) if before.text in _VALUES]
    if names_a_secret(values):
        return "it names what commonly holds secrets"
    at = 0
    while at < len(rest):
        text = rest[at].text or ""
        if text.startswith("-") and text not in _FLAGS | _VALUES:
            return f"{text} is not known to only list"
        reason = None if text in _FLAGS | _VALUES else why_not_read(rest[at], place)
        if reason is not None:
            return reason
        at += 2 if text in _VALUES else 1
    return None
