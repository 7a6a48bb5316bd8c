"""The words of requests, from `shipped/vocabulary.toml`; read once, at the import."""

import re
import tomllib
from pathlib import Path
from typing import Final

TABLE: Final = tomllib.loads(
    Path(__file__).with_name("shipped").joinpath("vocabulary.toml").read_text("utf-8")
)


def words_of(text: str) -> frozenset[str]:
    """Return the words of an entry, with those of the shared entries that it names."""
    return frozenset(text.format_map(TABLE["shared"]).split())


def these(name: str) -> frozenset[str]:
    """Return the words of a list of the section `words`."""
    return words_of(TABLE["words"][name])


def pattern(text: str, more: str = "") -> re.Pattern[str]:
    """Return the pattern of a text whose rows belong together, whatever the case of letters."""
    return re.compile(re.sub(r"(?:^|\n) *", "", text) + more, re.IGNORECASE)
