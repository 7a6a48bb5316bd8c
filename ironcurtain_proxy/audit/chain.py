"""The chain through the lines of a log.

Every line ends in `"seq"`, its number, and `"prev"`, the SHA-256 of the line before it: of all its
bytes but the newline. Whoever edits, removes, inserts or reorders lines must forge all that follow,
and then the head file and every anchor kept elsewhere disagree.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from msgspec import Struct


class Link(Struct, frozen=True):
    """The position of one line in the chain."""

    seq: int
    """1 for the first line ever; goes on over rotated files."""
    digest: str
    """SHA-256 of the line without its newline, hexadecimal, lower case."""


GENESIS: Final = Link(0, "0" * 64)
"""The link before the first line."""


def digest_of(line: bytes) -> str:
    """Return the digest that the next line names.

    Args:
        line: without its newline.
    """
    return sha256(line).hexdigest()


def seal(bodies: Sequence[bytes], after: Link) -> tuple[bytes, Link]:
    """Add the positions in the chain to records that follow each other.

    Args:
        bodies: each a record as a compact JSON object, not empty, without `seq` and `prev`.
        after: the line before the first of them.

    Returns:
        The lines, each with its newline, and the place of the last of them.
    """
    seq, digest = after.seq, after.digest
    lines: list[bytes] = []
    for body in bodies:
        seq += 1
        line = b'%b,"seq":%d,"prev":"%b"}\n' % (body[:-1], seq, digest.encode())
        digest = sha256(line[:-1]).hexdigest()
        lines.append(line)
    return b"".join(lines), Link(seq, digest)
