"""`dynamic-lists.json`: the lists that `@name` entries of a policy refer to."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias  # noqa: TID251  what the original writes and nobody reads

from msgspec import Struct

from ironcurtain_proxy.config.reading.forms import Document, Form, read_form
from ironcurtain_proxy.config.reading.problems import Report

DynamicLists: TypeAlias = Mapping[str, tuple[str, ...]]
"""Entries by the name of their list, without the `@`."""


class ListForm(Form, frozen=True, kw_only=True):
    """The entries of one list."""

    values: tuple[str, ...]
    manual_additions: tuple[str, ...] = ()
    """Entries that are added to `values`."""
    manual_removals: tuple[str, ...] = ()
    """Entries that are left out of both."""
    resolved_at: Any = None
    input_hash: Any = None


class ListsForm(Document, frozen=True, kw_only=True):
    """The lists of a policy."""

    generated_at: Any = None
    lists: dict[str, ListForm]
    """Each list by its name, without the `@`."""


class ListsFile(Struct, frozen=True):
    """The lists, and the bytes they were read from."""

    data: bytes
    lists: DynamicLists


def read_lists_file(path: Path, report: Report) -> ListsFile | None:
    """Read a file of lists, or return None with the reason in the report."""
    read = read_form(path, ListsForm, report)
    if read is None:
        return None
    data, form, _ = read
    return ListsFile(data, {name: _entries(one) for name, one in form.lists.items()})


def _entries(form: ListForm) -> tuple[str, ...]:
    found = dict.fromkeys([*form.values, *form.manual_additions])
    return tuple([value for value in found if value not in form.manual_removals])
