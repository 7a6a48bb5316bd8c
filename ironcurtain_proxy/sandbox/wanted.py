"""What a confined server was refused, read from its own words, and the setting that would open it.

A server that may not write says so in the words of its language:

    Error: ENOENT: no such file or directory, mkdir '/home/me/.tool'        Node.js
    OSError: [Errno 30] Read-only file system: '/home/me/.tool/log'         Python
    mkdir /home/me/.tool: read-only file system                             Go
    cannot create directory '/home/me/.tool': Read-only file system         a shell

Most such places are folders that a server keeps for itself, and a private folder is all it needs.
A server chooses its words, so nothing here opens anything: a person reads a proposal, and the
proposal never names keys, files of the proxy, or the home directory itself.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.credentials import is_credential, places
from ironcurtain_proxy.model.values import Json, RealPath, list_of, object_of
from ironcurtain_proxy.sandbox.private_tmp import begins_whole

_MOST: Final = 20
"""The most refused places of one text."""
_MOST_TEXT: Final = 256 * 1024
_TRACEBACK: Final = 200
"""Characters before the error that hold the last line of a traceback."""
_MAKES: Final = "mkdir("

_QUOTE: Final = "['\"\u2018\u2019`]"
_PATH: Final = "/[^'\"\u2018\u2019`\n]{1,1000}"
# Each repeats within bounds only: the time is linear in the text, whatever a server puts there.
_REFUSED: Final = (
    # Node.js: the path stands behind the call. A read-only parent makes ENOENT of its mkdir.
    rf"(?:EROFS|EACCES|EPERM): [^\n'\"]{{0,60}}, (?P<call1>\w{{2,12}}) {_QUOTE}(?P<path1>{_PATH})",
    rf"ENOENT: no such file or directory, (?P<call2>mkdir) {_QUOTE}(?P<path2>{_PATH})",
    # Python.
    rf"\[Errno (?:30|13)\] [^\n:]{{0,40}}: {_QUOTE}(?P<path3>{_PATH})",
    # Go, C and shells: the path stands before the words.
    (
        rf"(?P<call4>mkdir|directory|open|create|touch)\b[ :]{{1,3}}{_QUOTE}?"
        rf"(?P<path4>/[^'\"\u2018\u2019`\n:]{{1,1000}}){_QUOTE}?: "
        r"(?:[Rr]ead-only file system|[Pp]ermission denied)"
    ),
)
_NESTED: Final = frozenset({".cache", ".config", ".local", "share", "state", "Library"})
"""Folders that hold a folder for each program."""
_OURS: Final = ".ironcurtain"


class RefusedWrite(Struct, frozen=True):
    """A place that a server could not write."""

    path: str
    """Absolute, normal."""
    makes_directory: bool
    """Whether the place itself was to become a directory."""


def refused_writes(text: str) -> tuple[RefusedWrite, ...]:
    """Return the places that a text says could not be written, each once, in order."""
    return tuple(dict.fromkeys(islice(_refused(text[-_MOST_TEXT:]), _MOST)))


def _refused(text: str) -> Iterator[RefusedWrite]:
    found = [one for pattern in _REFUSED for one in re.finditer(pattern, text)]
    for one in sorted(found, key=re.Match.start):
        groups = one.groupdict()
        path = next(word for name, word in groups.items() if word and name.startswith("path"))
        calls = [word for name, word in groups.items() if word and name.startswith("call")]
        # Python names no call in its error; its traceback shows the line before.
        before = text[max(0, one.start() - _TRACEBACK) : one.start()]
        is_made = bool({"mkdir", "directory"} & {*calls}) or (not calls and _MAKES in before)
        yield RefusedWrite(os.path.normpath(path), is_made)


def folder_for(refused: RefusedWrite, home: str) -> str | None:
    """Return the folder that would be private for a refused write, such as `~/.tool`.

    It is None if none would do.

    None for what lies elsewhere, for a file in the home directory itself, and for a folder of the
    user's own files, which a private one would hide.
    """
    place = RealPath.from_text(refused.path)
    base = RealPath.from_text(home)
    if place == base or not place.is_within(base):
        return None
    below = place.parts[len(base.parts) :]
    depth = 1
    while depth < len(below) and below[depth - 1] in _NESTED:
        depth += 1
    is_itself = depth == len(below)
    if (
        below[0] == _OURS
        or below[depth - 1] in _NESTED
        or (is_itself and not refused.makes_directory)
    ):
        return None
    name = "/".join(below[:depth])
    if _touches_credentials(home, name, refused.path):
        return None
    return f"~/{name}" if begins_whole(str(Path(home, name))) else None


def _touches_credentials(home: str, name: str, path: str) -> bool:
    """Return whether a folder is one of credentials, or may hold some.

    A private one begins as a copy.
    """
    return (
        is_credential(f"{home}/{name}", home)
        or is_credential(path, home)
        or any(place.path.lower().startswith(f"{name.lower()}/") for place in places())
    )


def opened_for(
    entry: Mapping[str, Json],
    private: Iterable[str] = (),
    hosts: Iterable[str] = (),
    services: Iterable[str] = (),
) -> dict[str, Json]:
    """Return a server's entry with private folders, hosts and services added to its sandbox."""
    sandbox: dict[str, Json] = {**object_of(entry.get("sandbox"))}
    for section, key, names in (
        ("filesystem", "private", [*private]),
        ("network", "allowedDomains", [*hosts]),
        ("network", "services", [*services]),
    ):
        lists: dict[str, Json] = {**object_of(sandbox.get(section))}
        said = list_of(lists.get(key))
        if names:
            sandbox[section] = {**lists, key: [*said, *[one for one in names if one not in said]]}
    return {**entry, "sandbox": sandbox} if sandbox else {**entry}
