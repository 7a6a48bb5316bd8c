"""Secrets taken out of what is recorded and answered, and found in what a server is sent.

The original masks cards, social security numbers and five key formats in argument values; this
masks the formats of `secrets`, and numbers of cards and of social security, wherever they stand. A
quick check says that most records need no redaction.

A number is judged by its digits and by what stands around them. One that only looks like a card's,
such as a time stamp, a UUID or an order number, must come through unharmed: an audit log with
damaged identifiers is worth little.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import orjson
from ahocorasick_rs import BytesAhoCorasick, MatchKind

from ironcurtain_proxy.audit.commands import (
    WORD_LISTS,
    brings_contents,
    credentials_named,
    holds_command,
    holds_written,
    is_ssn_name,
    is_telling,
    writes_credentials,
)
from ironcurtain_proxy.audit.secrets import (
    LONG_RUN,
    MASK,
    RUNS,
    holds_key,
    kinds_of,
    redact_secrets,
    without_unfinished,
)
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.request import FoundSecret
from ironcurtain_proxy.model.values import Json, lazy

# --- secrets in texts and values

# --- numbers


_DIGITS: Final = lazy(r"\d+", re.ASCII)

# A UUID comes first, so that its digits are never taken for a card. A run starts after nothing that
# belongs to a word or a fraction. `* ` before, ` *` after: part of a number that is masked already.
_MANY_DIGITS: Final = lazy(r"\d(?:[ -]?\d){12,}+", re.ASCII)
_UUID_LENGTH: Final = 36
_DIGITS_ON: Final = lazy(r"(?:[ -]?\d)*+", re.ASCII)
_UUID_OR_RUN: Final = lazy(
    r"(?<!\w)[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?!\w)"
    r"|(?<!\w)(?<!\d\.)(?<!\* )(?P<run>\d(?:[ -]?\d){12,})(?!\w)(?! \*)(?!\.\d)",
    re.ASCII,
)

_NINE: Final = b"0" * 9
_NUMBER_BYTES: Final = bytes(48 if byte in b"0123456789 -" else 32 for byte in range(256))
"""Digits and what stands between those of one number, all alike: see `keys`."""
_LIKELY: Final = lazy(
    rb"(?<!\d)(?:[2-6]\d{3}(?:[ -]?\d){9}|\d{3}(?:[ -]\d{2}[ -]?|\d{2}[ -])\d{4}(?!\d))"
)
"""The beginning of a card number, of whose groups only the last may have fewer than four digits; or
a social security number."""
_MARGIN: Final = 64
"""Characters beside a match that are looked at: more than a UUID has, of which digits may be a
part."""
_ESCAPE: Final = lazy(r"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)

# Issuers of payment cards number from 2 to 6. 1 is where time stamps in milliseconds begin.
_CARD_STARTS: Final = frozenset("23456")
_CARD_LENGTHS: Final = range(13, 20)

_BRAND: Final = lazy(
    r"4\d{12}(?:\d{3})?|5[1-5]\d{14}|2[2-7]\d{14}|3[47]\d{13}|6(?:011|4[4-9]\d|5\d\d)\d{12}|35\d{14}"
)
"""The form in which a bare JSON number is taken for a card: ids are numbers, too."""

_SSN: Final = lazy(
    r"(\d{3})(?<!\w\d{3})(?<!\d[-.]\d{3})([- ]?)(\d{2})([- ]?)(\d{4})(?!\w)(?![-.]\d)", re.ASCII
)
_SSN_WORD: Final = lazy(
    r"(?<![a-z])(?:ssns?(?![a-z])|social[ _-]?security)", re.IGNORECASE | re.ASCII
)
_SSN_LENGTH: Final = 9
_BEFORE: Final = 48
_AFTER: Final = 24


def redact_numbers(text: str, *, ssn_expected: bool = False) -> str:
    """Mask cards as `4111 ******** 1111` and social security numbers as `***-**-6789`.

    Args:
        text: anything.
        ssn_expected: a word elsewhere, such as the key it stands under, says that nine bare digits
            are a social security number.
    """
    cardless = _redact_cards(text)
    return _SSN.sub(lambda match: _mask_ssn(match, ssn_expected=ssn_expected), cardless)


def holds_number(raw: bytes, first: int, last: int) -> bool:
    """Return whether `redact_numbers` may change a text that this is the JSON of. Errs towards yes.

    Social security numbers that only a word tells of are not looked for.

    Args:
        raw: the JSON.
        first: no number of nine digits begins before.
        last: no such number ends after.
    """
    places = raw[first:last].translate(_NUMBER_BYTES)
    found = places.find(_NINE)
    while found >= 0:
        stop = places.find(b" ", found)
        stop = len(places) if stop < 0 else stop
        begin, end = first + found, first + stop
        if _LIKELY.search(raw, begin, end):
            around = raw[max(0, begin - _MARGIN) : end + _MARGIN].decode("latin-1")
            # Not a space: before `* ` it would look like a number that is masked already.
            text = _ESCAPE.sub("\n", around)
            if redact_numbers(text) != text:
                return True
        found = places.find(_NINE, stop)
    return False


def _redact_cards(text: str) -> str:
    """Mask numbers of cards. A text is searched only where enough digits stand together."""
    pieces: list[str] = []
    copied = done = 0
    for near in _MANY_DIGITS.finditer(text):
        low = max(done, near.start() - _UUID_LENGTH)
        # A number that begins there is read to its end: a part of it is no card.
        rest = _DIGITS_ON.match(text, near.end() + _UUID_LENGTH + 2)
        for match in _UUID_OR_RUN.finditer(text, low, rest.end() if rest else len(text)):
            pieces += [text[copied : match.start()], _mask_cards_in_run(match)]
            copied = done = match.end()
    return "".join([*pieces, text[copied:]]) if pieces else text


def redact_integer(value: int, *, ssn_expected: bool = False) -> int | str:
    """Redact a bare JSON number that is a card number, or an SSN where one is expected."""
    digits = str(value) if 0 <= value < 10**19 else ""
    if _BRAND.fullmatch(digits) and _passes_luhn(digits):
        return _masked_card(digits)
    if ssn_expected and len(digits) == _SSN_LENGTH:
        return redact_numbers(digits, ssn_expected=True)
    return value


def _mask_cards_in_run(match: re.Match[str]) -> str:
    """Mask the cards in a run of digits: `2 4111 1111 1111 1111` is a count and a card."""
    run: str | None = match["run"]
    if run is None:
        return match[0]
    groups = [found.span() for found in _DIGITS.finditer(run)]
    pieces: list[str] = []
    copied = index = 0
    while index < len(groups):
        end = _card_from(run, groups, index)
        if end is None:
            index += 1
            continue
        start = groups[index][0]
        digits = "".join([run[a:b] for a, b in groups[index:end]])
        pieces += [run[copied:start], _masked_card(digits)]
        copied = groups[end - 1][1]
        index = end
    return "".join([*pieces, run[copied:]])


def _card_from(run: str, groups: list[tuple[int, int]], first: int) -> int | None:
    """Return the index after the longest card that begins with group `first`, or None."""
    if run[groups[first][0]] not in _CARD_STARTS:
        return None
    found: int | None = None
    digits = ""
    for index in range(first, len(groups)):
        start, end = groups[index]
        if len(digits) + end - start > _CARD_LENGTHS.stop - 1:
            break
        if digits and not _continues_card(groups, first, index):
            break
        digits += run[start:end]
        if len(digits) in _CARD_LENGTHS and _passes_luhn(digits):
            found = index + 1
    return found


def _continues_card(groups: list[tuple[int, int]], first: int, index: int) -> bool:
    """Return whether a group can belong to a card: lists of small numbers are no cards."""
    sizes = [end - start for start, end in groups[first:index]]
    return min(sizes) >= 4  # noqa: PLR2004  the last group may be shorter, the ones before not


def _passes_luhn(digits: str) -> bool:
    """Return whether the check digit is right (ISO/IEC 7812-1, annex B)."""
    doubled = "0246813579"
    total = sum(map(int, digits[-1::-2])) + sum([int(doubled[int(d)]) for d in digits[-2::-2]])
    return total % 10 == 0


def _masked_card(digits: str) -> str:
    return f"{digits[:4]} {'*' * (len(digits) - 8)} {digits[-4:]}"


def _mask_ssn(match: re.Match[str], *, ssn_expected: bool) -> str:
    area, first, group, second, serial = match.groups()
    if area in {"000", "666"} or area >= "900" or group == "00" or serial == "0000":
        return match[0]
    if not (first and second) and not (ssn_expected or _has_word_near(match)):
        return match[0]
    return f"***-**-{serial}"


def _has_word_near(match: re.Match[str]) -> bool:
    start, end = match.span()
    return bool(_SSN_WORD.search(match.string, max(0, start - _BEFORE), end + _AFTER))


# --- redaction


MARGIN: Final = 4096
"""Characters read beyond a cut, so that a secret across the cut is recognised."""

_ROUNDS: Final = 4


def redact_text(text: str, *, ssn_expected: bool = False) -> str:
    """Mask every secret in `text`. Redacting twice changes nothing more.

    Args:
        text: anything; time is linear in its length.
        ssn_expected: its key says that it is a social security number.
    """
    for _ in range(_ROUNDS):
        # Secrets first: some contain runs of digits that would otherwise be masked as cards, and
        # what is left would no longer look like the key it is part of.
        redacted = redact_numbers(redact_secrets(text), ssn_expected=ssn_expected)
        if redacted == text:
            break
        text = redacted
    return text


def redact_beginning(text: str, limit: int) -> str:
    """Redact the first `limit` characters of a text that goes on.

    Half a key is no longer recognised as a key, and would be written as it is. So the beginning is
    also redacted together with what follows, and only what both agree on is kept.

    Args:
        text: the beginning, with `MARGIN` characters after `limit` if it goes on so far.
        limit: in characters.
    """
    alone = redact_text(text[:limit])
    in_context = redact_text(without_unfinished(text))
    if in_context.startswith(alone):
        return alone
    pairs = zip(alone, in_context, strict=False)
    return alone[: next((i for i, (a, b) in enumerate(pairs) if a != b), len(in_context))]


def is_suspicious(raw: bytes) -> bool:
    """Return whether JSON text may hold anything that redaction would change. In doubt, yes.

    This runs on every record: a few searches in C instead of a walk with twenty patterns.
    """
    squeezed = raw.translate(_FOLD, b" -_")
    has_words = _FIRST_WORDS.find_matches_as_indexes(squeezed)
    has_words = has_words or _OTHER_WORDS.find_matches_as_indexes(squeezed)
    found = _words_in(squeezed) if has_words else _NO_WORDS
    if found and (min(found) < _TELLING_COUNT or b"-----BEGIN" in raw or b"eyJ" in raw):
        return True
    # `in` tries a number first, and makes an error of each text: five times the time of `find`.
    if squeezed.find(_NINE_DIGITS) >= 0 and (
        not _SSN_PLACES.isdisjoint(found) or holds_number(raw, *_digits_in(raw, squeezed))
    ):
        return True
    if raw.find(b"@") >= 0 and b"://" in raw:
        return True
    if raw.find(b"=") >= 0 and _QUERY.search(raw):
        return True
    if raw.find(b" ") >= 0 and holds_command(raw):
        return True
    runs = raw.translate(RUNS)
    return (runs.find(LONG_RUN) >= 0 and holds_key(raw, runs)) or (
        bool(credentials_named().find_matches_as_indexes(raw.lower())) and holds_written(raw)
    )


def _words_in(squeezed: bytes) -> frozenset[int]:
    """Return the words that a text holds, by their places in `_ALL_WORDS`."""
    matches = _WORDS.find_matches_as_indexes(squeezed, overlapping=True)
    return frozenset([match[0] for match in matches])


def _digits_in(raw: bytes, squeezed: bytes) -> tuple[int, int]:
    """Return the range of `raw` that holds all its long numbers: begin and end.

    `squeezed` is `raw` without some characters, so its long numbers lie in this range of `raw`.
    """
    first = squeezed.find(_NINE_DIGITS)
    after = len(squeezed) - squeezed.rfind(_NINE_DIGITS) - len(_NINE_DIGITS)
    return first, len(raw) - after


_NINE_DIGITS: Final = b"0" * 9
_QUERY: Final = lazy(rb"[?&;][a-z-]{2,16}=[\w%+/=.~-]{16}", re.IGNORECASE | re.ASCII)
_TELLING_WORDS: Final = WORD_LISTS["suspicious"]

_TELLING_COUNT: Final = len(_TELLING_WORDS)
_SSN_WORDS: Final = ("ssn", "social")
_SSN_PLACES: Final = frozenset({_TELLING_COUNT, _TELLING_COUNT + 1})
_ALL_WORDS: Final = tuple(
    [word.encode() for word in (*_TELLING_WORDS, *_SSN_WORDS, "begin", "eyj")]
)
_WORDS: Final = BytesAhoCorasick(_ALL_WORDS)
"""All of them are searched for at once: one after the other takes fifteen times as long. Those that
tell of nothing by themselves come last: a private key begins with `-----BEGIN`, a JWT with `eyJ`,
and a social security number needs nine digits."""

_NO_WORDS: Final[frozenset[int]] = frozenset()
_AT_ONCE: Final = 64
_FIRST_WORDS: Final = BytesAhoCorasick(_ALL_WORDS[:_AT_ONCE], MatchKind.LeftmostFirst)
_OTHER_WORDS: Final = BytesAhoCorasick(_ALL_WORDS[_AT_ONCE:], MatchKind.LeftmostFirst)
"""The words in two parts. The library looks for up to 64 words with vector instructions, if it need
not find every match: both parts together take a third of the time, and most texts hold no word."""

_FOLD: Final = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZ123456789", b"abcdefghijklmnopqrstuvwxyz000000000"
)


# --- answers: masked as they are in records, and nothing else changed -----------------------------

_BLOBS: Final = frozenset({"data", "blob"})
"""Base64 in an object of `_MEDIA`: a key would be found in it by chance."""
_MEDIA: Final = frozenset({"mimeType", "uri"})
"""The keys of images, sounds and resources, one of which stands beside their base64."""
_MOST_DEPTH: Final = 200


def redacted(value: Json, depth: int = _MOST_DEPTH) -> Json:
    """Return the value with every secret masked. A value that is nested too deeply is left out."""
    if isinstance(value, str):
        return _text(value)
    if depth == 0:
        return None
    if isinstance(value, list):
        return [redacted(inner, depth - 1) for inner in value]
    if isinstance(value, dict):
        blobs = frozenset() if _MEDIA.isdisjoint(value) else _BLOBS
        return {
            name: inner
            if name in blobs and isinstance(inner, str)
            else _member(name, inner, depth - 1)
            for name, inner in value.items()
        }
    return value


def _member(name: str, value: Json, depth: int) -> Json:
    if is_telling(name) and isinstance(value, str | int | float) and value not in {"", 0}:
        return value if isinstance(value, bool) else MASK
    return redacted(value, depth)


def _text(text: str) -> str:
    raw = orjson.dumps(text.encode("utf-8", "replace").decode())
    return redact_text(text) if is_suspicious(raw) else text


# --- arguments: in which one a secret is, and of which kind ---------------------------------------
# Finds every secret that a record would mask. An encoded or divided secret is not found.

_MOST_FOUND: Final = 8
_SHOWN: Final = 60
_NUMBER: Final = "number of a card or an identity"
_TOO_DEEP: Final = "value that is nested too deeply to be looked at"
_NAMED: Final = "value that is named like a secret"
_WRITTEN: Final = "content of a file of credentials"


def secrets_in(sent: Mapping[str, Json]) -> tuple[FoundSecret, ...]:
    """Return the secrets in arguments, each argument and kind once, and only the first few."""
    if not is_suspicious(_encoded(sent)):
        return ()
    found: dict[FoundSecret, None] = {}
    writes = writes_credentials(sent)
    for name, value in sent.items():
        kinds = _kinds(name, value, _MOST_DEPTH)
        for kind in [_WRITTEN] if writes and brings_contents(name) else kinds:
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
    """Return the name as it may be shown: the agent chose it, and may have put a secret into it."""
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
