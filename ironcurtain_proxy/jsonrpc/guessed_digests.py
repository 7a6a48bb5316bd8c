"""Digests of long results, computed in a thread while the results are read and written again.

A record names the SHA-256 of a result as the proxy writes it. Most servers write the same bytes, so
the bytes that came are hashed on that guess, on another processor. Where the proxy writes other
bytes, the guess is worth nothing.
"""

import re
import threading
from hashlib import sha256
from typing import Final

LONG_RESULT: Final = 1 << 20
"""Bytes of a line from which on a thread is worth its cost."""

_EDGE: Final = 128
_ENVELOPE: Final = rb'"jsonrpc":"2\.0"|"id":(?:[0-9]{1,18}|"[^"\\]{0,40}")'
_BEFORE: Final = re.compile(rb'\{(?:(?:%b),)*"result":' % _ENVELOPE)
_AFTER: Final = re.compile(rb"(?:,(?:%b))*\}\s*\Z" % _ENVELOPE)


class GuessedDigest:
    """The digest of the bytes between the envelope's members, on its way."""

    def __init__(self, line: bytes, start: int, end: int) -> None:
        """Begin to hash a part of a line."""
        self._line, self._start, self._end = line, start, end
        self._digest = ""
        self._thread = threading.Thread(target=self._hash, name="digest", daemon=True)
        self._thread.start()

    def of(self, written: bytes) -> str | None:
        """The digest in hexadecimal, if these are the bytes that were hashed; else None.

        Blocks for some milliseconds.
        """
        self._thread.join()
        is_it = len(written) == self._end - self._start
        return self._digest if is_it and self._line.startswith(written, self._start) else None

    def _hash(self) -> None:
        # Without the lock of the interpreter, which the other thread needs meanwhile.
        self._digest = sha256(memoryview(self._line)[self._start : self._end]).hexdigest()


def guess_digest(line: bytes) -> GuessedDigest | None:
    """Begin to hash the result in a long line; None: it is short, or does not look like an answer.

    Args:
        line: as its server wrote it, without its newline.
    """
    if len(line) < LONG_RESULT:
        return None
    before = _BEFORE.match(line, 0, _EDGE)
    after = _AFTER.search(line, len(line) - _EDGE)
    if before is None or after is None:
        return None
    return GuessedDigest(line, before.end(), after.start())
