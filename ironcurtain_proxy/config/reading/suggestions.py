"""The known word nearest to a misspelt one.

People copy a suggestion into a policy without further thought, so it only repairs spelling and
never names another action: `read_query` is not suggested for `write_query`, nor `list_tables`
for `create_table`.
"""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path
from typing import Final

from ironcurtain_proxy.model.values import words

_CUTOFF: Final = 0.6
_MISSPELT: Final = 0.7
"""The similarity of a verb and its misspelling."""
_CHOICES: Final = 20
_TOKEN: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")
_OPPOSITES: Final = ("un", "de", "dis", "re", "in")
"""Prefixes that turn a verb into its opposite."""

_VERBS: Final = words(Path(__file__).with_name("verbs.txt").read_text("utf-8"))


def nearest_word(word: str, known: Iterable[str]) -> str:
    """Return the known word most likely meant, or empty if none is near."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    matches = get_close_matches(word.casefold(), by_folded, n=_CHOICES, cutoff=_CUTOFF)
    found = [by_folded[match] for match in matches if _says_the_same(word, by_folded[match])]
    return found[0] if found else ""


def _says_the_same(word: str, candidate: str) -> bool:
    """Return whether one word is a misspelling of the other."""
    mine, others = _tokens(word), _tokens(candidate)
    if len(mine) == len(others):
        return all(map(_is_misspelt, mine, others))
    # Words were joined, omitted or added: the verb must be in both.
    joined = "".join(mine)
    if joined == "".join(others):
        return True
    wanted, given = _verbs(others), _verbs(mine)
    return given <= wanted and all(
        verb in given or joined.startswith(verb) or any(_is_misspelt(t, verb) for t in mine)
        for verb in wanted
    )


def _is_misspelt(token: str, other: str) -> bool:
    """Return whether two parts of names differ in spelling only, verbs above all."""
    if token == other:
        return True
    if _is_opposite(token, other) or _is_opposite(other, token):
        return False
    verbs = _verb_of(token), _verb_of(other)
    if verbs[0] and verbs[0] != verbs[1]:
        return False
    cutoff = _MISSPELT if verbs[1] else _CUTOFF
    return SequenceMatcher(None, token, other).ratio() >= cutoff


def _is_opposite(longer: str, shorter: str) -> bool:
    return any(longer == beginning + shorter for beginning in _OPPOSITES)


def _verb_of(token: str) -> str:
    """Return the verb at the beginning of a part of a name."""
    if token in _VERBS:
        return token
    beginnings = [token[:length] for length in range(len(token) - 1, 2, -1)]
    return next((beginning for beginning in beginnings if beginning in _VERBS), "")


def _verbs(tokens: list[str]) -> frozenset[str]:
    return frozenset([token for token in tokens if token in _VERBS])


def _tokens(name: str) -> list[str]:
    return [token.casefold() for token in _TOKEN.findall(name)] or [name.casefold()]
