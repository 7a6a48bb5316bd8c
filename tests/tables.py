"""Tables of plain text that tests try row by row: files below `tests/data`, a key for each table.

Commands stand in them as a person types them, without the quotes of a second language.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar  # noqa: TID251  the columns of a table are its test's

import msgspec
import pytest
from _pytest.mark import ParameterSet

_Rows = TypeVar("_Rows")

DATA: Final = Path(__file__).parent / "data"


def table(name: str, kind: type[_Rows]) -> _Rows:
    """Return the rows of `FOLDER/FILE.KEY`, held to the type that the test declares."""
    file, _, key = name.rpartition(".")
    return msgspec.convert(_read(file)[key], kind)


def named(name: str, kind: type[tuple[Any, ...]]) -> list[ParameterSet]:
    """Return the rows of a table whose keys are the names of its cases, for `parametrize`."""
    return [pytest.param(*row, id=key) for key, row in table(name, dict[str, kind]).items()]  # type: ignore[valid-type]


@cache
def _read(file: str) -> dict[str, object]:
    return tomllib.loads((DATA / f"{file}.toml").read_text(encoding="utf-8"))
