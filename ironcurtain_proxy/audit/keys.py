"""Provider keys in a text: where each begins and ends.

The expressions are in `provider_keys.json`, which `scripts/provider_keys.py` makes of a table.

Every key has a long run of letters, digits, hyphens and underscores. One translation and a search
for a literal find such runs, both at the speed of memory. Only the text at a run is compared with
these expressions, so a text without long words costs nearly nothing.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct


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
def _compiled(expression: str) -> re.Pattern[str]:
    """Return a compiled pattern, on first use: to compile all takes a sixth of the start time."""
    return re.compile(expression, re.ASCII)


def redact_keys(text: str) -> str:
    """Mask every key of a provider: its first and last four characters stay."""
    pieces: list[str] = []
    copied = 0
    # One byte for each character, so that places are the same.
    runs = text.encode("ascii", "replace").translate(_RUNS)
    for start, end in _keys(text, runs):
        pieces += [text[copied:start], f"{text[start : start + 4]}...{text[end - 4 : end]}"]
        copied = end
    return "".join([*pieces, text[copied:]]) if pieces else text


def holds_key(raw: bytes) -> bool:
    """Return whether `redact_keys` would change any text that this is the JSON of."""
    runs = raw.translate(_RUNS)
    if _LONG_RUN not in runs:
        return False
    return next(_keys(raw.decode("latin-1"), runs), None) is not None


def _keys(text: str, runs: bytes) -> Iterator[tuple[int, int]]:
    """Yield the beginnings and ends of keys, from left to right.

    Args:
        text: anything.
        runs: one byte for each character: what may belong to a key is alike, the rest is blank.
    """
    done = 0
    begin = runs.find(_LONG_RUN)
    while begin >= 0:
        end = runs.find(b" ", begin)
        end = len(text) if end < 0 else end
        for key in _keys_at(text, max(done, _low(text, begin)), begin, end):
            yield key
            done = key[1]
        begin = runs.find(_LONG_RUN, max(done, end))


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
        match = _compiled(expression).match(text, at)
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
_MAILCHIMP: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}-us[0-9]{1,2}\Z")


_ISSUED_TAIL: Final = 32
_TELLING_PIECES: Final = frozenset(
    {"sk", "rk", "pat", "live", "prod", "secret", "token", "apikey", "priv", "oat", "sat", "rt"}
)
_TELLING_TAIL: Final = 20
_LONGEST_ISSUED: Final = 512
_PIECES: Final = re.compile("[A-Za-z0-9]+")
_PREFIX_PIECE: Final = 15
_CHECKSUMS: Final = re.compile("sha[0-9]{1,3}|md5|blake[0-9a-z]{1,3}", re.IGNORECASE)
_HEAD: Final = 2
_LOOK_BACK: Final = 40
"""A prefix, and what may stand between it and the run: `SG.`, `access_token$production$`."""
_BASE64_BACK: Final = 120
_BASE64_SIGNS: Final = frozenset("+/")
_BASE64_STARTS: Final = re.compile(_BUILT.base64, re.ASCII)
_SIGNS: Final = frozenset("~!$")
_ID_AND_KEY: Final = 32
_FIRST_PART: Final = range(24, 31)
_LAST_PART: Final = 60
_LOOK_AHEAD: Final = 128
_LONGEST_ESCAPE: Final = 20
_LONG_PIECE: Final = re.compile("[A-Za-z0-9]{20}")
_JOINTS: Final = frozenset("./$~:")

_RUN_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_RUNS: Final = bytes.maketrans(
    bytes(range(256)), bytes(97 if byte in _RUN_BYTES else 32 for byte in range(256))
)
_LONG_RUN: Final = b"a" * 15
"""No key is without a run of this length."""
_WORD_CHARACTERS: Final = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
)

_ESCAPE: Final = re.compile(
    r"(?:\\[abefnrtv0]|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}"
    r"|(?:\x1b|\\u001[bB]|\\x1[bB]|\\e|\\033)\[[0-9;]{0,11}m)\Z",
    re.ASCII,
)
"""Escapes, which end in a letter or digit and are no words: `\n`, `%3D`, the colours of a terminal.
"""

_STARTS: Final = re.compile(_BUILT.starts, re.ASCII)
_SHAPES: Final = re.compile(
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
