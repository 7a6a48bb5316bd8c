"""Redaction of one text, and the quick look that spares most records the work.

Pure: no I/O, no clock, no log.

The original masks cards, social security numbers and five key formats in argument values; this
masks the formats of `secrets` and `numbers`, wherever they stand (G19). It does not know records.
"""

import re
from typing import Final

from ironcurtain_proxy.audit.numbers import redact_numbers
from ironcurtain_proxy.audit.secrets import redact_secrets, without_unfinished

MARGIN: Final = 4096
"""Characters beyond a cut that are looked at, so that a secret across the cut is known as one."""

_ROUNDS: Final = 4


def redact_text(text: str, *, ssn_expected: bool = False) -> str:
    """Mask every secret in `text`. Redacting twice changes nothing more.

    Args:
        text: anything; time is linear in its length.
        ssn_expected: it stands under a key that says so.
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
    """Whether JSON text may hold anything that redaction would change. Errs towards yes.

    This runs on every record: a few searches in C instead of a walk with twenty patterns.
    """
    squeezed = raw.translate(_FOLD, b" -_").decode("latin-1")
    for word in _WORDS:
        if word in squeezed:
            return True
    if _TOKEN_RUN in raw.translate(_RUNS) and _TOKEN_START.search(raw):
        return True
    return (b"://" in raw and b"@" in raw) or b"-----BEGIN" in raw


_WORDS: Final = (
    "0" * 9,
    "passw",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "authorization",
    "credential",
    "bearer",
    "basic",
)
"""What tells of a secret, in lower case, without blanks, hyphens and underscores, digits as 0."""

_FOLD: Final = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZ123456789", b"abcdefghijklmnopqrstuvwxyz000000000"
)
_TOKEN_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_RUNS: Final = bytes.maketrans(_TOKEN_BYTES, b"a" * len(_TOKEN_BYTES))
_TOKEN_RUN: Final = b"a" * 15
"""No key format is shorter."""
_TOKEN_START: Final = re.compile(
    rb"sk-|[rs]k_(?:live|test)_|gh[posur]_|github_pat_|glpat-|xox|A[KS]IA|AIza|eyJ"
)
