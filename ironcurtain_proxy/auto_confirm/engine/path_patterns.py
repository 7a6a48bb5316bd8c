"""A small language of regular expressions for paths, matched in linear time.

An operator's pattern is matched against an agent's path, so no path may make the match take for
ever. Python's own engine backtracks; the engine of `pydantic_core` (Rust's) does not.

The language is what both engines read alike: literals, `.`, classes (`[^/]`), `* + ? {n,m}` after
one of these, and groups with alternatives (`(src|tests)`), never repeated. The rest is refused.
"""

import re
from dataclasses import dataclass
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

from ironcurtain_proxy.errors import ConfigurationError

MAX_SUBJECT: Final = 1024
"""Characters of a path or an address; a longer one matches nothing."""
_MAX_PATTERN: Final = 512
_MAX_COUNT: Final = 64

_ESCAPED: Final = r"\\(?:[dwsDWS]|[^A-Za-z0-9])"
_CLASS: Final = rf"\[\^?+\]?+(?:{_ESCAPED}|[^\\\[\]])*+\]"
_COUNT: Final = r"\{([0-9]{1,3})(?:,([0-9]{0,3}))?\}"
_ATOM: Final = rf"(?:{_ESCAPED}|{_CLASS}|[^\\\[\]{{}}()*+?|^$])"
_PATTERN: Final = re.compile(
    rf"\^?((?:{_ATOM}(?:[*+?]|{_COUNT})?|\((?:\?:)?|[)|])*+)\$?", re.DOTALL
)
_TOKEN: Final = re.compile(rf"({_ESCAPED})|({_CLASS})|{_COUNT}", re.DOTALL)
_AMBIGUOUS_IN_CLASS: Final = ("--", "&&", "||", "~~")
_SETS: Final = {"d": "[0-9]", "w": "[0-9A-Za-z_]", "s": r"[ \t\n\r\f\v]"}
"""ASCII, as in the rules for paths."""


@dataclass(frozen=True, slots=True)
class PathRegex:
    """A compiled pattern."""

    text: str
    _validator: SchemaValidator

    def fullmatch(self, subject: str) -> bool:
        """Whether the pattern matches a whole path; a path beyond `MAX_SUBJECT` never matches."""
        return len(subject) <= MAX_SUBJECT and self._validator.isinstance_python(subject)


def compile_path_regex(text: str) -> PathRegex:
    """Read a pattern.

    Raises:
        ConfigurationError: it is too long, or has something in it that is not understood.
    """
    if not text or len(text) > _MAX_PATTERN:
        raise ConfigurationError(f"a path pattern has 1 to {_MAX_PATTERN} characters")
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise ConfigurationError("path pattern: something in it is not understood")
    inner = _TOKEN.sub(_translated, found[1])
    try:
        # The pattern is compiled alone first: unbalanced brackets could join with those added here.
        re.compile(found[1])
        pattern = rf"\A(?:{inner})\z"
        return PathRegex(text, SchemaValidator(core_schema.str_schema(pattern=pattern)))
    except (SchemaError, re.error):
        raise ConfigurationError("path pattern: something in it is not understood") from None


def _translated(token: re.Match[str]) -> str:
    escape, group, least, most = token.groups()
    if escape is not None:
        return _unescaped(escape)
    if group is not None:
        if any(sign in group for sign in _AMBIGUOUS_IN_CLASS):
            raise ConfigurationError("path pattern: a class must not have --, &&, || or ~~ in it")
        return re.sub(_ESCAPED, lambda inner: _unescaped(inner[0]), group, flags=re.DOTALL)
    if max(int(least), int(most or 0)) > _MAX_COUNT:
        raise ConfigurationError(f"path pattern: a count is from 0 to {_MAX_COUNT}")
    return token[0]


def _unescaped(escape: str) -> str:
    """An escape in a form that every engine reads alike."""
    sign = escape[1]
    known = _SETS.get(sign.lower())
    if known is None:
        return rf"\x{{{ord(sign):x}}}"
    return known if sign.islower() else known.replace("[", "[^", 1)
