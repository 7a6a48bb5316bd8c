"""Formats of keys, tokens and passwords.

Every pattern takes linear time on any text: it begins with a literal, and only a single class may
repeat without bound, which either matches or ends the attempt. Where a run could be entered at many
places, a look-behind permits only one.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.audit.commands import (
    TELLING_ENDINGS,
    TELLING_NAMES,
    is_telling,
    is_working_directory,
    secrets_of_commands,
)
from ironcurtain_proxy.audit.credential_files import written_secrets
from ironcurtain_proxy.audit.keys import redact_keys

MASK: Final = "[redacted]"
MASKED_PRIVATE_KEY: Final = "[redacted private key]"

Replacement = Callable[[re.Match[str]], str]


class Expression(Struct, frozen=True):
    """A regular expression that is compiled on first use: few texts need it."""

    text: str
    flags: int

    def sub(self, replacement: Replacement, text: str) -> str:
        """Replace all matches."""
        return _compiled(self.text, self.flags).sub(replacement, text)


@cache
def _compiled(text: str, flags: int) -> re.Pattern[str]:
    return re.compile(text, re.ASCII | flags)


class SecretFormat(Struct, frozen=True):
    """One kind of secret."""

    kind: str
    """The kind of secret, in words for people."""
    hints: tuple[str, ...]
    """Texts of which a match needs one. Without any, the pattern is always tried."""
    pattern: Expression
    replacement: Replacement
    folded: bool = False
    """Hints are looked for in the text in lower case."""


def redact_secrets(text: str) -> str:
    """Mask every secret of a known format, and every value assigned to a telling name."""
    folded = text.lower()
    for secret in _formats():
        if _may_hold(secret, text, folded):
            text = secret.pattern.sub(secret.replacement, text)
    return redact_keys(_redact_assigned(_redact_commands(text)))


def kinds_of(text: str) -> Iterator[str]:
    """Yield the kinds of the secrets that `redact_secrets` would mask."""
    folded = text.lower()
    for secret in _formats():
        if _may_hold(secret, text, folded) and secret.pattern.sub(secret.replacement, text) != text:
            yield secret.kind
    if _redact_commands(text) != text:
        yield "password of a command"
    if _redact_assigned(text) != text:
        yield "password or key with its name"
    if redact_keys(text) != text:
        yield "key of a provider"


def without_unfinished(text: str) -> str:
    """Return a cut `text` without an unfinished token that only its end would identify."""
    unfinished = _UNFINISHED_JWT.search(text)
    return text if unfinished is None else text[: unfinished.start()]


def _may_hold(secret: SecretFormat, text: str, folded: str) -> bool:
    where = folded if secret.folded else text
    return any(hint in where for hint in secret.hints)


def _ends_only(match: re.Match[str]) -> str:
    secret = match[0]
    return f"{secret[:4]}...{secret[-4:]}"


def _private_key(_match: re.Match[str]) -> str:
    return MASKED_PRIVATE_KEY


def _second_group(match: re.Match[str]) -> str:
    """Mask the pattern's second group."""
    return f"{match[1]}{MASK}{match[3] or ''}"


def _telling_third(match: re.Match[str]) -> str:
    """Mask the third group, if the name in the first one tells of a secret."""
    value = match[3].rstrip()
    if not is_telling(match["name"]) or MASK in value:
        return match[0]
    return f"{match[1]}{MASK}{match[3][len(value) :]}{match[4]}"


def _numbered(match: re.Match[str]) -> str:
    """Mask what has a digit: prose goes on with a word."""
    return _second_group(match) if any(map(str.isdigit, match[2])) else match[0]


def _bearer(match: re.Match[str]) -> str:
    """Mask a token. `Bearer of bad news` and `bearer authentication` are none."""
    token = match[2]
    long_or_numbered = len(token) >= _SURELY_A_TOKEN or any(map(str.isdigit, token))
    return f"{match[1]}{MASK}" if long_or_numbered else match[0]


def _basic(match: re.Match[str]) -> str:
    """Mask a pair of name and password that decodes to `a:b`: `Basic authentication` is none."""
    token = match[2].rstrip("=")[:_BASIC_LOOK]
    try:
        decoded = b64decode(token + "=" * (-len(token) % 4)).decode("latin-1")
    except (Base64Error, ValueError):
        return match[0]
    return f"{match[1]}{MASK}" if ":" in decoded and decoded.isprintable() else match[0]


def _redact_commands(text: str) -> str:
    """Mask what programs take as a secret, or write into a file of credentials."""
    pieces: list[str] = []
    copied = 0
    spans = [*secrets_of_commands(text), *written_secrets(text)]
    for start, end in sorted(spans):
        if start >= copied and MASK not in text[start - 1 : end + 1]:
            pieces += [text[copied:start], MASK]
            copied = end
    return "".join([*pieces, text[copied:]]) if pieces else text


def _redact_assigned(text: str) -> str:
    """Mask values after `password=` and `"password": `.

    The search is for the sign, then for the name before it: there are few signs.
    """
    pieces: list[str] = []
    copied = 0
    sign = _SIGN.search(text)
    while sign is not None:
        end = sign.end()
        name = _name_before(text, sign.start())
        if name and (is_telling(name) or is_working_directory(name)):
            match = _VALUE.match(text, sign.start())
            if match is not None and is_working_directory(name) and _is_place(match):
                match = None
            start = None if match is None else _start_of_value(match)
            if match is not None and start is not None:
                end = match.end()
                pieces += [text[copied:start], MASK]
                copied = end
        sign = _SIGN.search(text, end)
    return "".join([*pieces, text[copied:]]) if pieces else text


def _name_before(text: str, at: int) -> str:
    """Return the name before the sign at `at`, in quotes or not, or "" if no name can tell."""
    before = text[max(0, at - _NAME_REACH) : at].rstrip(_AROUND_NAMES)
    if before[-1:].lower() not in _LAST_LETTERS:
        return ""
    name = _NAME.search(before)
    return "" if name is None else name[0]


def _is_place(match: re.Match[str]) -> bool:
    """Return whether a value is a path, or is made by a shell."""
    value = match["bare"] or match["value"]
    return value.startswith(("/", "~", "$", ".", "`", "(")) or value[1:3] == ":\\"


def _start_of_value(match: re.Match[str]) -> int | None:
    """Return where the secret of `password=x` begins, or None for `token: str` in a program."""
    group = "bare" if match["quote"] is None else "value"
    value = match[group]
    certain = (
        group == "value"
        or match["sign"][:1] in "=%"
        or any(map(str.isdigit, value))
        or not value.rstrip("();").replace(".", "").isidentifier()
    )
    return match.start(group) if certain else None


def _option(match: re.Match[str]) -> str:
    """Mask `--password hunter2`, but neither `--password-file x` nor `-rf x`."""
    return f"-{match[1]}{MASK}" if is_telling(match["name"]) else match[0]


_AROUND_NAMES: Final = " \t\"'\\[]?+!"
"""Characters between a name and the sign: `user[password]=`, `PASSWORD ?= `."""
_NAME_REACH: Final = 72
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[\w.-]| (?=[A-Za-z0-9])){0,63}\Z", re.ASCII)


def _query(match: re.Match[str]) -> str:
    """Mask a value with letters and digits: `?code=` and `?key=` are also other names."""
    value = match[2]
    random = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return f"{match[1]}{MASK}" if random else match[0]


_SURELY_A_TOKEN: Final = 24
_BASIC_LOOK: Final = 1024

# --- the formats ---------------------------------------------------------------------------------

_REPLACEMENTS: Final[Mapping[str, Replacement]] = {
    "private key": _private_key,
    "ends only": _ends_only,
    "second group": _second_group,
    "telling third": _telling_third,
    "numbered": _numbered,
    "bearer": _bearer,
    "basic": _basic,
    "query": _query,
    "option": _option,
}
"""What may stand behind `mask:`."""


def _format(block: str) -> SecretFormat:
    kind, *lines = [line for line in block.splitlines() if not line.startswith("#")]
    said = dict(line.strip().partition(": ")[::2] for line in lines if _SETTING.match(line))
    return SecretFormat(
        kind,
        tuple([hint.replace("\\n", "\n") for hint in said["hints"].split(" | ")]),
        Expression(
            "".join(line.strip() for line in lines if not _SETTING.match(line)),
            sum(re.RegexFlag[name] for name in said.get("flags", "").upper().split()),
        ),
        _REPLACEMENTS[said["mask"]],
        "folded" in said,
    )


_SETTING: Final = re.compile("  (?:hints: |flags: |mask: |folded$)")
_FORMATS: Final = Path(__file__).with_name("secret_formats.txt").read_text("utf-8")
"""Read at import: the first record may be written while no descriptor is free."""


@cache
def _formats() -> tuple[SecretFormat, ...]:
    """Return the formats in the order in which they are masked. Few texts need them."""
    return tuple(map(_format, _FORMATS.strip().split("\n\n")[1:]))


_SIGN: Final = re.compile("[:=]|%3[ADad]", re.ASCII)
_LAST_LETTERS: Final = frozenset(name[-1] for name in (*TELLING_ENDINGS, *TELLING_NAMES)) | set(
    "0123456789nmtew"
)
"""The last ones are those of `_MORE`."""
_VALUE: Final = re.compile(
    r"(?P<sign>:=|=>|={1,3}|:|%3[ADad])[ \t]{0,4}"
    r"(?:(?P<quote>\\{1,3}[\"']|\"|')(?P<value>(?<=\\.)[^\"'\\\n]++"
    r"|(?<=\")(?:[^\"\\\n]++|\\.)++|(?<=')(?:[^'\\\n]++|\\.)++)"
    r"|(?P<bare>[^\s\"'\\,;&]++))"
)

_UNFINISHED_JWT: Final = re.compile(r"(?<![A-Za-z0-9_-])eyJ[\w-]*(?:\.[\w-]*){0,2}\Z")
