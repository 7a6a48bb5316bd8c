"""Redaction of one text, and a quick check that most records need no redaction.

The original masks cards, social security numbers and five key formats in argument values; this
masks the formats of `secrets` and `numbers`, wherever they stand. It does not know records.
"""

import re
from typing import Final

from ahocorasick_rs import BytesAhoCorasick, MatchKind

from ironcurtain_proxy.audit.commands import holds_command
from ironcurtain_proxy.audit.keys import holds_key
from ironcurtain_proxy.audit.numbers import holds_number, redact_numbers
from ironcurtain_proxy.audit.secrets import redact_secrets, without_unfinished
from ironcurtain_proxy.model.vocabulary import word_list

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
    """Whether JSON text may hold anything that redaction would change. In doubt, yes.

    This runs on every record: a few searches in C instead of a walk with twenty patterns.
    """
    squeezed = raw.translate(_FOLD, b" -_")
    found = _words_in(squeezed)
    if found and (min(found) < _TELLING_COUNT or b"-----BEGIN" in raw or b"eyJ" in raw):
        return True
    if _NINE_DIGITS in squeezed and (
        not _SSN_PLACES.isdisjoint(found) or holds_number(raw, *_digits_in(raw, squeezed))
    ):
        return True
    if b"@" in raw and b"://" in raw:
        return True
    if b"=" in raw and _QUERY.search(raw):
        return True
    if b" " in raw and holds_command(raw):
        return True
    return holds_key(raw)


def _words_in(squeezed: bytes) -> frozenset[int]:
    """The words that a text holds, by their places in `_ALL_WORDS`."""
    if not (
        _FIRST_WORDS.find_matches_as_indexes(squeezed)
        or _OTHER_WORDS.find_matches_as_indexes(squeezed)
    ):
        return _NO_WORDS
    matches = _WORDS.find_matches_as_indexes(squeezed, overlapping=True)
    return frozenset([match[0] for match in matches])


def _digits_in(raw: bytes, squeezed: bytes) -> tuple[int, int]:
    """The range of `raw` that holds all its long numbers: begin and end.

    `squeezed` is `raw` without some characters, so its long numbers lie in this range of `raw`.
    """
    first = squeezed.find(_NINE_DIGITS)
    after = len(squeezed) - squeezed.rfind(_NINE_DIGITS) - len(_NINE_DIGITS)
    return first, len(raw) - after


_NINE_DIGITS: Final = b"0" * 9
_QUERY: Final = re.compile(rb"[?&;][a-z-]{2,16}=[\w%+/=.~-]{16}", re.IGNORECASE | re.ASCII)
_TELLING_WORDS: Final = word_list(
    """
    passw passphrase passcode pass= pass" pass: pwd secret token apikey accesskey privatekey
    accountkey sharedkey signingkey cryptionkey masterkey licensekey licencekey servicekey
    sessionkey subscriptionkey authkey sshkey deploykey appkey applicationkey storagekey
    adminkey functionkey writekey ingestkey integrationkey hmac aeskey csrf xsrf rootkey
    serverkey webhookkey userpass pass" samlresponse sshpass clientassertion passkey xprv xauth
    pat" pw" wif" tfa" authorization auth= auth: auth" credential cred bearer basic jwt cookie
    sessionid sessid otp code" codes" mfacode verificationcode cvv cvc dsn mnemonic phrase seed
    connectionstr connstr sid= sid" sid: pin= pin" pin: webhook hooks.
    pass% pass> pass\\ key" key> identifiedby symencrypt requirepass rootpw masterauth psk
    $0$ $0a$ $0b$ $0y$ $apr0$ $y$ $argon0 {sha {ssha pbkdf0 scramsha aad0b000b00000ee
    privatelines statickey kty /bot /hook/ hcping.com /with/key/ pagerduty.com rtmp
    timecode facode code0 digest oracle: |sudo
    """
)
"""Words that tell of a secret, in lower case, without blanks, hyphens and underscores, digits as 0.
"""

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
