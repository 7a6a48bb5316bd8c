"""Secrets taken out of a stream of bytes that comes in pieces."""

import re
from collections.abc import Iterable
from typing import Final

MARK: Final = b"***REDACTED***"
"""The replacement for a secret."""

_SHORTEST_LINE: Final = 12
"""The least bytes of a line of a multi-line secret that is masked by itself."""


class Masker:
    """Replaces secrets in a stream, including secrets that are cut in two.

    A possible beginning of a secret is held back until the next bytes decide.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        whole = {secret.encode("utf-8", "surrogateescape") for secret in secrets if secret}
        # A key in PEM form is printed line by line, with other text between.
        lines = {
            line.strip() for secret in whole if b"\n" in secret for line in secret.split(b"\n")
        }
        lines = {line for line in lines if len(line) >= _SHORTEST_LINE}
        # The longest first: of two secrets of which one begins the other, the longer is meant.
        self._secrets = sorted(whole | lines, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)))
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Add a piece, and return the bytes that are certain."""
        if not self._secrets:
            return data
        data = self._held + data
        cut = self._undecided(data, 0)
        if not any(secret in data for secret in self._secrets):
            self._held = data[cut:]
            return data[:cut]
        return self._replace(data, cut)

    def finish(self) -> bytes:
        """End the stream, and return the bytes that were held back."""
        rest, self._held = self._held, b""
        return self._pattern.sub(MARK, rest) if self._secrets else rest

    def _replace(self, data: bytes, cut: int) -> bytes:
        out: list[bytes] = []
        position = 0
        for found in self._pattern.finditer(data):
            if found.start() >= cut:
                break
            out += (data[position : found.start()], MARK)
            position = found.end()
            if position > cut:
                cut = self._undecided(data, position)
        out.append(data[position:cut])
        self._held = data[cut:]
        return b"".join(out)

    def _undecided(self, data: bytes, start: int) -> int:
        """The start, not before `start`, of the longest end of `data` that may become a secret."""
        earliest = len(data)
        for secret in self._secrets:
            at = data.find(secret[:1], max(start, len(data) - len(secret) + 1))
            while 0 <= at < earliest:
                if secret.startswith(data[at:]):
                    earliest = at
                at = data.find(secret[:1], at + 1)
        return earliest
