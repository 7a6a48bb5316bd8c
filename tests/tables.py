"""Tables of plain text that tests try row by row: files below `tests/data`, a key for each table.

Commands stand in them as a person types them, without the quotes of a second language.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

import msgspec

_Rows = TypeVar("_Rows")

DATA: Final = Path(__file__).parent / "data"


def table(name: str, kind: type[_Rows]) -> _Rows:
    """Return the rows of `FOLDER/FILE.KEY`, held to the type that the test declares."""
    file, _, key = name.rpartition(".")
    return msgspec.convert(_read(file)[key], kind)


@cache
def _read(file: str) -> dict[str, object]:
    return tomllib.loads((DATA / f"{file}.toml").read_text(encoding="utf-8"))
