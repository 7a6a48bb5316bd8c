"""Entries and names as JSON."""

import os
from collections.abc import Mapping
from typing import Final, get_args

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.snapshots.timeline.entry import Entry, EntryKind

_KINDS: Final[Mapping[str, EntryKind]] = {kind: kind for kind in get_args(EntryKind)}


def encoded(text: str) -> str:
    """Bytes that are a name, as text that JSON can hold."""
    return os.fsencode(text).decode("latin-1")


def decoded(text: str) -> str:
    """The name of an encoded text."""
    return os.fsdecode(text.encode("latin-1"))


def row_of(entry: Entry) -> list[Json]:
    """An entry as JSON."""
    row: list[Json] = list(entry[:7])
    row.append(encoded(entry.content))
    if entry.attributes:
        row.append([[encoded(name), value] for name, value in entry.attributes])
    return row


def entry_of(row: Json) -> Entry:
    """The entry of a row.

    Raises:
        ValueError: it is no entry.
    """
    match row:
        case [
            str(kind),
            int(mode),
            int(size),
            int(inode),
            int(names),
            int(ctime_ns),
            int(mtime_ns),
            str(content),
            *more,
        ] if kind in _KINDS:
            return Entry(
                _KINDS[kind],
                mode,
                size,
                inode,
                names,
                ctime_ns,
                mtime_ns,
                decoded(content),
                _attributes_of(more),
            )
    raise ValueError


def _attributes_of(more: list[Json]) -> tuple[tuple[str, str], ...]:
    found = []
    for pair in more[0] if more and isinstance(more[0], list) else []:
        match pair:
            case [str(name), str(value)]:
                found.append((decoded(name), value))
            case _:
                raise ValueError
    return tuple(found)
