"""`test`, `[` and `[[` without arithmetic.

Shells evaluate an operand of `-eq`, `-v` or `-t` as an expression, and a substitution in a
subscript is run then: `[[ 'a[$(id)]' -eq 0 ]]`.
"""

import re
from collections.abc import Sequence
from typing import Final

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.shell.places import Place
from ironcurtain_proxy.shell.reads import shows_variables

_UNARY: Final = frozenset(
    [
        "-e",
        "-f",
        "-d",
        "-s",
        "-r",
        "-w",
        "-x",
        "-z",
        "-n",
        "-L",
        "-h",
        "-p",
        "-S",
        "-b",
        "-c",
        "-u",
        "-g",
        "-k",
        "-O",
        "-G",
    ]
)
_BINARY: Final = frozenset({"=", "==", "!="})
_NUMERIC: Final = frozenset(["-eq", "-ne", "-lt", "-le", "-gt", "-ge"])
_JOINS: Final = frozenset({"!", "&&", "||"})


def why_not_test(
    name: str, words: Sequence[Word], place: Place, variables: frozenset[str]
) -> str | None:
    """Why a test is more than reading; None if it only reads."""
    del place  # whether a file exists says little: any path may be tested
    end = {"[": "]", "[[": "]]"}.get(name)
    if end is not None:
        if not words or words[-1].text != end:
            return "a test is not understood"
        words = words[:-1]
    if any(word.splits and name != "[[" for word in words):
        return "an operand is not known"
    clauses: list[list[Word]] = [[]]
    for word in words:
        if word.text in _JOINS:
            clauses.append([])
        else:
            clauses[-1].append(word)
    plain = all(_plain(clause) for clause in clauses if clause)
    return shows_variables(words, variables) if plain else "a test may evaluate an operand"


def _plain(clause: Sequence[Word]) -> bool:
    texts = [word.text for word in clause]
    match texts:
        case [_]:
            return True
        case [operator, _]:
            return operator in _UNARY
        case [left, operator, right] if operator in _NUMERIC:
            numbers = (re.fullmatch(r"-?\d+", text or "", re.ASCII) for text in (left, right))
            return all(numbers)
        case [_, operator, _]:
            return operator in _BINARY
        case _:
            return False
