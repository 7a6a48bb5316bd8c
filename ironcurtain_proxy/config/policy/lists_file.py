"""`dynamic-lists.json`: the lists that `@name` entries of a policy refer to."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.config.reading.reading import read_document

DynamicLists: TypeAlias = Mapping[str, tuple[str, ...]]
"""Entries by the name of their list, without the `@`."""

_FILE_KEYS: Final = ("generatedAt", "lists")
_LIST_KEYS: Final = ("values", "manualAdditions", "manualRemovals", "resolvedAt", "inputHash")


class ListsFile(Struct, frozen=True):
    """The lists, and the bytes they were read from."""

    data: bytes
    lists: DynamicLists


def read_lists_file(path: Path, report: Report) -> ListsFile | None:
    """Read a file of lists, or None with the reason in the report."""
    read = read_document(path, report)
    if read is None:
        return None
    data, root = read
    lists = root.object(_FILE_KEYS).required("lists").members()
    return ListsFile(data, {name: _entries(spot) for name, spot in lists.items()})


def _entries(spot: Spot) -> tuple[str, ...]:
    entry = spot.object(_LIST_KEYS)
    values = entry.required("values").texts()
    added = entry.read("manualAdditions", Spot.texts, ())
    removed = frozenset(entry.read("manualRemovals", Spot.texts, ()))
    return tuple([value for value in dict.fromkeys([*values, *added]) if value not in removed])
