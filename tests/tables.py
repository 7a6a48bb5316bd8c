"""Tables of plain text that tests try row by row: files below `tests/data`, a key for each table.

Commands stand in them as a person types them, without the quotes of a second language.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import GenericAlias
from typing import Any, Final, TypeVar, cast, get_args, get_origin  # noqa: TID251  the columns of a table are its test's

import msgspec
import pytest
from _pytest.mark import ParameterSet

_Rows = TypeVar("_Rows")

DATA: Final = Path(__file__).parent / "data"


def table(name: str, kind: type[_Rows]) -> _Rows:
    """Return the rows of `FOLDER/FILE.KEY`, held to the type that the test declares."""
    file, _, key = name.rpartition(".")
    return msgspec.convert(_read(file)[key], cast("type[_Rows]", _checked(kind)))


def named(name: str, kind: type[tuple[Any, ...]]) -> list[ParameterSet]:
    """Return the rows of a table whose keys are the names of its cases, for `parametrize`."""
    return [pytest.param(*row, id=key) for key, row in table(name, dict[str, kind]).items()]  # type: ignore[valid-type]


def _checked(kind: object) -> object:
    """Return the type with `object` in the place of `Json`, which is a text that names itself."""
    if isinstance(kind, str):
        return object
    origin = get_origin(kind)
    if origin not in (list, tuple, dict, Mapping):
        return kind
    return GenericAlias(origin, tuple([_checked(one) for one in get_args(kind)]))


@cache
def _read(file: str) -> dict[str, object]:
    return tomllib.loads((DATA / f"{file}.toml").read_text(encoding="utf-8"))
