"""`dynamic-lists.json`: what the `@name` entries of a policy stand for."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pydantic import Field

from ironcurtain_proxy.administration.problems import Report
from ironcurtain_proxy.administration.reading import read_document
from ironcurtain_proxy.administration.shapes import Shape, read_shape

DynamicLists: TypeAlias = Mapping[str, tuple[str, ...]]
"""Entries by the name of their list, without the `@`."""


class _ListShape(Shape):
    values: list[str]
    manual_additions: list[str] = Field(default_factory=list)
    manual_removals: list[str] = Field(default_factory=list)
    resolved_at: str = ""
    input_hash: str = ""


class _ListsFileShape(Shape):
    generated_at: str = ""
    lists: dict[str, object]


@dataclass(frozen=True, slots=True)
class ListsFile:
    """The lists, and the bytes they were read from."""

    data: bytes
    lists: DynamicLists


def read_lists_file(path: Path, report: Report) -> ListsFile | None:
    """Read a file of lists, or None with the reasons in the report."""
    read = read_document(path, report)
    if read is None:
        return None
    data, document = read
    file = read_shape(_ListsFileShape, document, path, report)
    if file is None:
        return None
    lists: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    for name, raw in file.lists.items():
        entry = read_shape(_ListShape, raw, path, report, ("lists", name))
        if entry is not None:
            removed = set(entry.manual_removals)
            ordered = dict.fromkeys([*entry.values, *entry.manual_additions])
            lists[name] = tuple([value for value in ordered if value not in removed])
    return ListsFile(data, lists)
