"""The files of one log: their names, and the lines at their ends.

    audit.jsonl            the log
    audit.jsonl.000001 …   what it grew out of, oldest first
    audit.jsonl.head       the last line's number and digest; number 0 before the first line;
                           `closed` once the process that wrote it has ended
    audit.jsonl.lock       held by the one process that writes
    audit.jsonl.torn-…     the remains of a line that a crash cut off
    audit.jsonl.4711       the log of process 4711, when another held the lock: a log of its own

Rotated files have a leading zero and process ids have none. Reads only; writes nothing.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.audit.chain import Link, digest_of

MAX_LINE: Final = 1 << 20
"""Bytes; no record is longer (see `bounding`)."""

_ROTATED: Final = re.compile(r"\.(0\d{5})")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_LAST_ROTATION: Final = 99999


def head_path(log: Path) -> Path:
    """The head file, which holds the position of the last line."""
    return log.with_name(f"{log.name}.head")


def lock_path(log: Path) -> Path:
    """The lock file of the writing process."""
    return log.with_name(f"{log.name}.lock")


def rotated_paths(log: Path) -> list[Path]:
    """The rotated files of `log`, oldest first.

    Raises:
        OSError: the directory cannot be read. `glob` would give nothing then, and the next rotation
            would write over the first file.
    """
    start = len(log.name)
    found = [
        log.with_name(name)
        for name in _names_in(log.parent)
        if name.startswith(log.name) and _ROTATED.fullmatch(name, start)
    ]
    return sorted(found)


def next_rotated_path(log: Path) -> Path:
    """The name for the next rotated file.

    Raises:
        OSError: there have been too many.
    """
    rotated = rotated_paths(log)
    number = int(rotated[-1].name[len(log.name) + 1 :]) + 1 if rotated else 1
    if number > _LAST_ROTATION:
        raise OSError(f"{log}: more than {_LAST_ROTATION} rotated files; move the old ones away")
    return log.with_name(f"{log.name}.{number:06d}")


class Head(Struct, frozen=True):
    """The content of a head file."""

    link: Link
    """The last line that was synced."""
    closed: bool
    """Whether the writing process ended with this line: it wrote none after it."""


def read_head(log: Path) -> Link | None:
    """Return the position in the head file; None if there is none.

    Raises:
        ValueError: it is not a head file.
        OSError: it cannot be read.
    """
    head = read_head_file(log)
    return None if head is None else head.link


def read_head_file(log: Path) -> Head | None:
    """Return all that the head file says; None if there is none.

    Raises:
        ValueError: it is not a head file.
        OSError: it cannot be read.
    """
    try:
        raw = head_path(log).read_bytes()
    except FileNotFoundError:
        return None
    return head_of(raw)


def head_of(raw: bytes) -> Head:
    """Return what the bytes of a head file say.

    Raises:
        ValueError: they are not those of a head file.
    """
    head = orjson.loads(raw)
    match head:
        case {"seq": int(seq), "digest": str(digest)} if seq >= 0 and _DIGEST.fullmatch(digest):
            return Head(Link(seq, digest), closed=head.get("closed") is True)
        case _:
            raise ValueError("no seq and digest in it")


def head_text(link: Link, *, closed: bool = False) -> bytes:
    """Return the content of the head file for this position."""
    end = b',"closed":true' if closed else b""
    return b'{"seq":%d,"digest":"%b"%b}\n' % (link.seq, link.digest.encode(), end)


class Placed(Struct, frozen=True):
    """The position that a line states; None for a missing field."""

    seq: int | None
    prev: str | None

    @property
    def is_chained(self) -> bool:
        """Whether the line states a position. Lines of the original state none."""
        return self.seq is not None or self.prev is not None


def placed(line: bytes) -> Placed | None:
    """The position that a line states; None if the line is not a JSON object."""
    fields = parsed(line)
    return None if fields is None else placed_of(fields)


def parsed(line: bytes) -> dict[str, object] | None:
    """A line as a JSON object; None if it is not one."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return fields if isinstance(fields, dict) else None


def placed_of(fields: Mapping[str, object]) -> Placed:
    """The position that a parsed line states. A value of the wrong type is a wrong value."""
    seq, prev = fields.get("seq"), fields.get("prev")
    if seq is None and prev is None:
        return Placed(None, None)
    return Placed(
        seq if isinstance(seq, int) and not isinstance(seq, bool) else 0,
        prev if isinstance(prev, str) else "",
    )


def lines_backwards(path: Path, *, limit: int | None = None) -> Iterator[bytes]:
    """The complete lines of a file without their newlines, last first.

    What follows the last newline is not a line. Stops before a line that is longer than any record.

    Args:
        path: a regular file.
        limit: how many bytes from the end to look at; None: all.
    """
    with path.open("rb") as file:
        end = file.seek(0, 2)
        start = end
        stop = 0 if limit is None else max(0, end - limit)
        rest = b""
        torn = True
        while start > stop:
            size = min(_BLOCK, start - stop)
            start -= size
            file.seek(start)
            first, *lines = (file.read(size) + rest).split(b"\n")
            for line in reversed(lines):
                if not torn:
                    yield line
                torn = False
            rest = first
            if len(rest) > MAX_LINE:
                return
        if start == 0 and not torn:
            yield rest


_BLOCK: Final = 64 * 1024


def last_place(path: Path) -> Link | None:
    """The position of a file's last complete line; None if it has none.

    A line without a position (damaged, or another program's) continues the numbers before it.
    """
    lines = lines_backwards(path, limit=2 * MAX_LINE)
    last = next(lines, None)
    if last is None:
        return None
    line: bytes | None = last
    unnumbered = 0
    while line is not None:
        place = placed(line)
        if place is not None and place.seq:
            return Link(place.seq + unnumbered, digest_of(last))
        # The original's lines are not counted: our first is number 1, wherever it stands.
        unnumbered += place is None
        line = next(lines, None)
    return Link(0, digest_of(last))


def _names_in(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208  a thousand paths would be made for nothing
    except (FileNotFoundError, NotADirectoryError):
        return []
