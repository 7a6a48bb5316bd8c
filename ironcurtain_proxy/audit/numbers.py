"""Card numbers and social security numbers in a text.

Knows digits and what stands around them. A number that only looks like one of the two, such as a
time stamp, a UUID or an order number, must come through unharmed: an audit log with damaged
identifiers is worth little.
"""

import re
from typing import Final

_DIGITS: Final = re.compile(r"\d+", re.ASCII)

# A UUID comes first, so that its digits are never taken for a card. A run starts after nothing that
# belongs to a word or a fraction. `* ` before, ` *` after: part of a number that is masked already.
_MANY_DIGITS: Final = re.compile(r"\d(?:[ -]?\d){12,}+", re.ASCII)
_UUID_LENGTH: Final = 36
_UUID_OR_RUN: Final = re.compile(
    r"(?<!\w)[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?!\w)"
    r"|(?<!\w)(?<!\d\.)(?<!\* )(?P<run>\d(?:[ -]?\d){12,})(?!\w)(?! \*)(?!\.\d)",
    re.ASCII,
)

_NINE: Final = b"0" * 9
_NUMBER_BYTES: Final = bytes(48 if byte in b"0123456789 -" else 32 for byte in range(256))
"""Digits and what stands between those of one number, all alike: see `keys`."""
_LIKELY: Final = re.compile(
    rb"(?<!\d)(?:[2-6]\d{3}(?:[ -]?\d){9}|\d{3}(?:[ -]\d{2}[ -]?|\d{2}[ -])\d{4}(?!\d))"
)
"""The beginning of a card number, of whose groups only the last may have fewer than four digits; or
a social security number."""
_MARGIN: Final = 64
"""Characters beside a match that are looked at: more than a UUID has, of which digits may be a
part."""
_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)

# Issuers of payment cards number from 2 to 6. 1 is where time stamps in milliseconds begin.
_CARD_STARTS: Final = frozenset("23456")
_CARD_LENGTHS: Final = range(13, 20)

_BRAND: Final = re.compile(
    r"4\d{12}(?:\d{3})?|5[1-5]\d{14}|2[2-7]\d{14}|3[47]\d{13}|6(?:011|4[4-9]\d|5\d\d)\d{12}|35\d{14}"
)
"""The form in which a bare JSON number is taken for a card: ids are numbers, too."""

_SSN: Final = re.compile(
    r"(\d{3})(?<!\w\d{3})(?<!\d[-.]\d{3})([- ]?)(\d{2})([- ]?)(\d{4})(?!\w)(?![-.]\d)", re.ASCII
)
_SSN_WORD: Final = re.compile(
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
        for match in _UUID_OR_RUN.finditer(text, low, near.end() + _UUID_LENGTH + 2):
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
