"""The words of requests and of the prompt, from files in `shipped`; read once, at the import."""

import re
import tomllib
from pathlib import Path
from typing import Final

_SHIPPED: Final = Path(__file__).with_name("shipped")
TABLE: Final = tomllib.loads((_SHIPPED / "vocabulary.toml").read_text("utf-8"))
PROMPT: Final = tomllib.loads((_SHIPPED / "intent.toml").read_text("utf-8"))


def words_of(text: str) -> frozenset[str]:
    """Return the words of an entry, with those of the shared entries that it names."""
    return frozenset(text.format_map(TABLE["shared"]).split())


def these(name: str) -> frozenset[str]:
    """Return the words of a list of the section `words`."""
    return words_of(TABLE["words"][name])


def pattern(text: str, more: str = "") -> re.Pattern[str]:
    """Return the pattern of a text whose rows belong together, whatever the case of letters."""
    return re.compile(re.sub(r"(?:^|\n) *", "", text) + more, re.IGNORECASE)
