"""The tables of the engine, read once from `engine_tables.toml`.

The engine is pure: it gets its tables from here and reads no file. Each part says what its tables
hold, and a word that is not one of its kind ends the import.
"""

import tomllib
from pathlib import Path
from typing import Final

_FILE: Final = Path(__file__).with_suffix(".toml")

TABLES: Final[dict[str, object]] = tomllib.loads(_FILE.read_text("utf-8"))
"""As they stand in the file."""
