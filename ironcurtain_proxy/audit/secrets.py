"""Secrets, recognised by the format of provider keys, by other formats, and by names.

The expressions for provider keys are in `provider_keys.json`, which `scripts/provider_keys.py`
makes of a table. Every key has a long run of letters, digits, hyphens and underscores. One
translation and a search for a literal find such runs, both at the speed of memory. Only the text at
a run is compared with these expressions, so a text without long words costs nearly nothing.

Every other pattern takes linear time on any text, too: it begins with a literal, and only a single
class may repeat without bound, which either matches or ends the attempt. Where a run could be
entered at many places, a look-behind permits only one.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ironcurtain_proxy.audit.commands import (
    TELLING_ENDINGS,
    TELLING_NAMES,
    is_telling,
    is_working_directory,
    secrets_of_commands,
    written_secrets,
)
from ironcurtain_proxy.model.values import lazy

# --- keys


class _Built(Struct, frozen=True, rename="camel"):
    """The expressions, made ahead."""

    starts: str
    base64: str
    by_head: dict[str, list[tuple[str, bool]]]
    """By the first two letters: the expression of a key, and whether it must stand alone."""


_BUILT: Final = msgspec.json.decode(
    Path(__file__).with_name("provider_keys.json").read_bytes(), type=_Built
)


@cache
def _key_pattern(expression: str) -> re.Pattern[str]:
    """Return a compiled pattern, on first use: to compile all takes a sixth of the start time."""
    return re.compile(expression, re.ASCII)


def redact_keys(text: str) -> str:
    """Mask every key of a provider: its first and last four characters stay."""
    pieces: list[str] = []
    copied = 0
    # One byte for each character, so that places are the same.
    runs = text.encode("ascii", "replace").translate(RUNS)
    for start, end in _keys(text, runs):
        pieces += [text[copied:start], f"{text[start : start + 4]}...{text[end - 4 : end]}"]
        copied = end
    return "".join([*pieces, text[copied:]]) if pieces else text


def holds_key(raw: bytes, runs: bytes) -> bool:
    """Return whether `redact_keys` would change any text that this is the JSON of.

    Without `LONG_RUN` in its `runs` (see `_keys`) it would not.
    """
    return next(_keys(raw.decode("latin-1"), runs), None) is not None


def _keys(text: str, runs: bytes) -> Iterator[tuple[int, int]]:
    """Yield the beginnings and ends of keys, from left to right.

    Args:
        text: anything.
        runs: one byte for each character: what may belong to a key is alike, the rest is blank.
    """
    done = 0
    begin = runs.find(LONG_RUN)
    while begin >= 0:
        end = runs.find(b" ", begin)
        end = len(text) if end < 0 else end
        for key in _keys_at(text, max(done, _low(text, begin)), begin, end):
            yield key
            done = key[1]
        begin = runs.find(LONG_RUN, max(done, end))


def _low(text: str, begin: int) -> int:
    """Return the first possible beginning of the key that the run at `begin` belongs to."""
    before = text[begin - 1 : begin]
    if before in _BASE64_SIGNS:
        # Base64 has `+` or `/` every 32 characters or so: the prefix may stand before some of them.
        match = _BASE64_STARTS.search(text, max(0, begin - _BASE64_BACK), begin)
        if match is not None:
            return match.start()
    return max(0, begin - _LOOK_BACK) if before in _JOINTS else begin


def _keys_at(text: str, low: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the keys that a run from `begin` to `end` is a part of, none before `low`."""
    at = low
    found = False
    while (hit := _STARTS.search(text, at, end)) is not None:
        stop = _end_of_key(text, hit.start())
        if stop is None:
            at = hit.start() + 1
        else:
            found = True
            yield hit.start(), stop
            at = stop
        if at >= end:
            return
    if found:
        return
    shaped = _shaped(text, low, begin, end)
    if shaped is not None:
        yield shaped
    elif _LONG_PIECE.search(text, begin, end) and looks_issued(text[begin:end]):
        yield begin, end


def _end_of_key(text: str, at: int) -> int | None:
    alone, inside = _stands(text, at)
    if inside:
        return None
    for expression, must_be_alone in _BUILT.by_head.get(text[at : at + _HEAD], ()):
        if must_be_alone and not alone:
            continue
        match = _key_pattern(expression).match(text, at)
        if match is not None:
            return match.end()
    return None


def _stands(text: str, at: int) -> tuple[bool, bool]:
    """Return whether nothing of a name stands before `at`; whether it is inside a word."""
    if at == 0:
        return True, False
    before = text[at - 1]
    if before in _WORD_CHARACTERS:
        escaped = _ESCAPE.search(text, max(0, at - _LONGEST_ESCAPE), at) is not None
        return escaped, not escaped
    return before not in "_.-", False


def _shaped(text: str, low: int, begin: int, end: int) -> tuple[int, int] | None:
    """Return a key that is known by the shape of the whole: a sign beside the run hints at it."""
    before, after, length = text[begin - 1 : begin], text[end : end + 1], end - begin
    hinted = (
        before in _SIGNS
        or after in _SIGNS
        or (before == ":" and length >= _ID_AND_KEY)
        or (before == "." and length >= _LAST_PART)
        or (after == "." and length in _FIRST_PART)
    )
    if not hinted:
        return None
    low = max(0, min(low, begin - _LOOK_BACK))
    last = min(len(text), end + _LOOK_AHEAD)
    match = _SHAPES.search(text, low, last)
    while match is not None and _stands(text, match.start())[1]:
        match = _SHAPES.search(text, match.start() + 1, last)
    return None if match is None else match.span()


def looks_issued(run: str) -> bool:
    """Return whether a run of letters, digits, `_` and `-` is a word and then a random text.

    So nearly every key is made today: `acme_live_` and 32 characters. A digest has no capitals, a
    UUID no long piece, a name that a person wrote few digits and few changes of case.
    """
    if len(run) > _LONGEST_ISSUED:
        return False
    if _MAILCHIMP.search(run):
        return True
    before = ""
    for piece in _PIECES.findall(run):
        if before and not _CHECKSUMS.fullmatch(before) and _is_random(piece, before.lower()):
            return True
        before = piece
    return False


def _is_random(piece: str, before: str) -> bool:
    length = len(piece)
    telling = before in _TELLING_PIECES
    if length < (_TELLING_TAIL if telling else _ISSUED_TAIL) or len(before) > _PREFIX_PIECE:
        return False
    kinds = ["0" if c.isdigit() else "a" if c.islower() else "A" for c in piece]
    changes = sum(a != b for a, b in pairwise(kinds))
    digits = kinds.count("0")
    if telling and digits > 1 and changes >= length // 8:
        return True
    mixed = digits > 0 and kinds.count("a") >= _FEW and kinds.count("A") >= _FEW
    return mixed and changes > length // 3


_FEW: Final = 3
_MAILCHIMP: Final = lazy(r"(?<![0-9a-f])[0-9a-f]{32}-us[0-9]{1,2}\Z")


_ISSUED_TAIL: Final = 32
_TELLING_PIECES: Final = frozenset(
    {"sk", "rk", "pat", "live", "prod", "secret", "token", "apikey", "priv", "oat", "sat", "rt"}
)
_TELLING_TAIL: Final = 20
_LONGEST_ISSUED: Final = 512
_PIECES: Final = lazy("[A-Za-z0-9]+")
_PREFIX_PIECE: Final = 15
_CHECKSUMS: Final = lazy("sha[0-9]{1,3}|md5|blake[0-9a-z]{1,3}", re.IGNORECASE)
_HEAD: Final = 2
_LOOK_BACK: Final = 40
"""A prefix, and what may stand between it and the run: `SG.`, `access_token$production$`."""
_BASE64_BACK: Final = 120
_BASE64_SIGNS: Final = frozenset("+/")
_BASE64_STARTS: Final = lazy(_BUILT.base64, re.ASCII)
_SIGNS: Final = frozenset("~!$")
_ID_AND_KEY: Final = 32
_FIRST_PART: Final = range(24, 31)
_LAST_PART: Final = 60
_LOOK_AHEAD: Final = 128
_LONGEST_ESCAPE: Final = 20
_LONG_PIECE: Final = lazy("[A-Za-z0-9]{20}")
_JOINTS: Final = frozenset("./$~:")

_RUN_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
RUNS: Final = bytes.maketrans(
    bytes(range(256)), bytes(97 if byte in _RUN_BYTES else 32 for byte in range(256))
)
LONG_RUN: Final = b"a" * 15
"""No key is without a run of this length."""
_WORD_CHARACTERS: Final = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
)

_ESCAPE: Final = lazy(
    r"(?:\\[abefnrtv0]|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}"
    r"|(?:\x1b|\\u001[bB]|\\x1[bB]|\\e|\\033)\[[0-9;]{0,11}m)\Z",
    re.ASCII,
)
"""Escapes, which end in a letter or digit and are no words: `\n`, `%3D`, the colours of a terminal.
"""

_STARTS: Final = lazy(_BUILT.starts, re.ASCII)
_SHAPES: Final = lazy(
    r"[MNO][\w-]{23,27}\.[\w-]{6,7}\.[\w-]{27,45}(?![\w-])"  # Discord: id, time, signature
    r"|mfa\.[\w-]{84}"  # Discord, of a person
    r"|[0-9]{8,10}:AA[\w-]{32,35}(?![\w-])"  # Telegram
    r"|pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"  # Airtable
    r"|[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,80}"  # Terraform
    r"|[A-Za-z0-9_~.]{3}[0-9]Q~[\w~.-]{31,34}"  # Microsoft Entra
    r"|[12]/[0-9]{10,20}(?:/[0-9]{10,20})?:[0-9a-f]{32}"  # Asana
    r"|00D[A-Za-z0-9]{12,15}![\w.]{60,130}"  # Salesforce
    r"|access_token\$[a-z]{6,12}\$[a-z0-9]{16}\$[0-9a-f]{32}",  # Braintree
    re.ASCII,
)


# --- secrets


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
_NAME: Final = lazy(r"[A-Za-z0-9](?:[\w.-]| (?=[A-Za-z0-9])){0,63}\Z", re.ASCII)


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


_SETTING: Final = lazy("  (?:hints: |flags: |mask: |folded$)")
_FORMATS: Final = Path(__file__).with_name("secret_formats.txt").read_text("utf-8")
"""Read at import: the first record may be written while no descriptor is free."""


@cache
def _formats() -> tuple[SecretFormat, ...]:
    """Return the formats in the order in which they are masked. Few texts need them."""
    return tuple(map(_format, _FORMATS.strip().split("\n\n")[1:]))


_SIGN: Final = lazy("[:=]|%3[ADad]", re.ASCII)
_LAST_LETTERS: Final = frozenset(name[-1] for name in (*TELLING_ENDINGS, *TELLING_NAMES)) | set(
    "0123456789nmtew"
)
"""The last ones are those of `_MORE`."""
_VALUE: Final = lazy(
    r"(?P<sign>:=|=>|={1,3}|:|%3[ADad])[ \t]{0,4}"
    r"(?:(?P<quote>\\{1,3}[\"']|\"|')(?P<value>(?<=\\.)[^\"'\\\n]++"
    r"|(?<=\")(?:[^\"\\\n]++|\\.)++|(?<=')(?:[^'\\\n]++|\\.)++)"
    r"|(?P<bare>[^\s\"'\\,;&]++))"
)

_UNFINISHED_JWT: Final = lazy(r"(?<![A-Za-z0-9_-])eyJ[\w-]*(?:\.[\w-]*){0,2}\Z")
