"""`test`, `[` and `[[` without arithmetic.

Shells evaluate an operand of `-eq`, `-v` or `-t` as an expression, and a substitution in a
subscript is run then: `[[ 'a[$(id)]' -eq 0 ]]`.
"""

import re
from collections.abc import Sequence
from typing import Final

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.shell.options import words
from ironcurtain_proxy.shell.reads import shows_variables

_UNARY: Final = words("-e -f -d -s -r -w -x -z -n -L -h -p -S -b -c -u -g -k -O -G")
_BINARY: Final = frozenset({"=", "==", "!="})
_NUMERIC: Final = words("-eq -ne -lt -le -gt -ge")
_JOINS: Final = frozenset({"!", "&&", "||"})


def why_not_test(
    name: str, rest: Sequence[Word], place: Place, variables: frozenset[str]
) -> str | None:
    """Why a test is more than reading; None if it only reads."""
    del place  # whether a file exists says little: any path may be tested
    end = {"[": "]", "[[": "]]"}.get(name)
    if end is not None and (not rest or rest[-1].text != end):
        return "a test is not understood"
    inner = rest if end is None else rest[:-1]
    if name != "[[" and any(word.splits for word in inner):
        return "an operand is not known"
    clauses: list[list[Word]] = [[]]
    for word in inner:
        if word.text in _JOINS:
            clauses.append([])
        else:
            clauses[-1].append(word)
    plain = all(_plain(clause) for clause in clauses if clause)
    return shows_variables(inner, variables) if plain else "a test may evaluate an operand"


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
