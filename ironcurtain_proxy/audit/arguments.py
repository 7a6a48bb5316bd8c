"""Secrets in the arguments for a server: in which argument, and of which kind.

Finds every secret that a record would mask. An encoded or divided secret is not found.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import orjson

from ironcurtain_proxy.audit.numbers import redact_numbers
from ironcurtain_proxy.audit.redaction import is_suspicious, redact_text
from ironcurtain_proxy.audit.secret_names import is_ssn_name, is_telling
from ironcurtain_proxy.audit.secrets import kinds_of
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.question import visible
from ironcurtain_proxy.model.request import FoundSecret

_MOST_DEPTH: Final = 200
_MOST_FOUND: Final = 8
_SHOWN: Final = 60
_NUMBER: Final = "number of a card or an identity"
_TOO_DEEP: Final = "value that is nested too deeply to be looked at"
_NAMED: Final = "value that is named like a secret"


def secrets_in(sent: Mapping[str, Json]) -> tuple[FoundSecret, ...]:
    """The secrets in arguments, each argument and kind once, and the first few alone."""
    if not is_suspicious(_encoded(sent)):
        return ()
    found: dict[FoundSecret, None] = {}
    for name, value in sent.items():
        for kind in _kinds(name, value, _MOST_DEPTH):
            found[FoundSecret(_name(name), kind)] = None
            if len(found) == _MOST_FOUND:
                return tuple(found)
    return tuple(found)


def _encoded(value: Mapping[str, Json]) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        # Half a surrogate pair, or nested too deeply: looked at in full.
        return b"-----BEGIN"


def _name(name: str) -> str:
    """The name as it may be shown: the agent chose it, and may have put a secret into it."""
    return visible(redact_text(name))[:_SHOWN]


def _kinds(name: str, value: Json, depth: int) -> Iterator[str]:
    yield from _in_text(name, ssn_expected=False)
    if is_telling(name) and value and not isinstance(value, bool):
        yield _NAMED
    elif isinstance(value, str | int):
        yield from _in_text(str(value), ssn_expected=is_ssn_name(name))
    elif depth == 0:
        yield _TOO_DEEP
    else:
        for key, inner in _members(value):
            yield from _kinds(key, inner, depth - 1)


def _members(value: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from [("", inner) for inner in value]


def _in_text(text: str, *, ssn_expected: bool) -> Iterator[str]:
    yield from kinds_of(text)
    if redact_numbers(text, ssn_expected=ssn_expected) != text:
        yield _NUMBER
