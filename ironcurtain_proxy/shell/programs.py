"""The tables of programs, from `programs.toml`; read once, when the first command is judged."""

import functools
import itertools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ironcurtain_proxy.model.values import words

_SHARED: Final = re.compile(r"\$\{([\w-]+)\}")


@functools.cache
def _tables() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads(Path(__file__).with_name("programs.toml").read_text("utf-8"))


@functools.cache
def word_set(name: str) -> frozenset[str]:
    """Return the words of a list of the section `words`."""
    return words(_tables()["words"][name])


def phrases(name: str) -> tuple[tuple[str, ...], ...]:
    """Return the phrases of a list of the section `phrases`, which has commas between them."""
    return tuple(tuple(one.split()) for one in _tables()["phrases"][name].split(","))


def entries(section: str) -> Mapping[str, str]:
    """Return the entries of a section, as `expanded` takes them."""
    return _tables()[section]


@functools.cache
def word_lists(section: str) -> Mapping[str, frozenset[str]]:
    """Return the entries of a section whose values are words."""
    return {name: words(text) for name, text in entries(section).items()}


@functools.cache
def paths(section: str) -> Mapping[tuple[str, ...], str]:
    """Return the entries of a section by the words of programs and their sub-commands."""
    table: dict[tuple[str, ...], str] = {}
    for key, text in entries(section).items():
        for group in key.split(","):
            for path in itertools.product(*(word.split("|") for word in group.split())):
                table.setdefault(path, text)
    return table


def expanded(text: str) -> str:
    """Return an entry with the shared texts that it names."""
    while _SHARED.search(text):
        text = _SHARED.sub(lambda found: _tables()["shared"][found[1]], text)
    return text
