"""The files of one log: their names, their lines forwards and backwards, and its head file.

    audit.jsonl            the log
    audit.jsonl.000001 …   what it grew out of, oldest first
    audit.jsonl.head       the last line's number and digest; number 0 before the first line;
                           `closed` once the process that wrote it has ended
    audit.jsonl.lock       held by the one process that writes
    audit.jsonl.torn-…     the remains of a line that a crash cut off
    audit.jsonl.4711       the log of process 4711, when another held the lock: a log of its own

Rotated files have a leading zero and process ids have none. Reads only; writes nothing.
"""

import errno
import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.audit.records import Link, digest_of
from ironcurtain_proxy.model.values import lazy
from ironcurtain_proxy.private_files import opened

MAX_LINE: Final = 1 << 20
"""Bytes; no record is longer (see `bounding`)."""

_ROTATED: Final = lazy(r"\.(0\d{5})")
_DIGEST: Final = lazy(r"[0-9a-f]{64}")
_LAST_ROTATION: Final = 99999
_LONGEST_HEAD: Final = 4096


def head_path(log: Path) -> Path:
    """Return the head file, which holds the position of the last line."""
    return log.with_name(f"{log.name}.head")


def lock_path(log: Path) -> Path:
    """Return the lock file of the writing process."""
    return log.with_name(f"{log.name}.lock")


def rotated_paths(log: Path) -> list[Path]:
    """Return the rotated files of `log`, oldest first.

    Raises:
        OSError: the directory cannot be read. `glob` would give nothing then, and the next rotation
            would write over the first file.
    """
    start = len(log.name)
    found = [
        log.with_name(name)
        for name in names_in(log.parent)
        if name.startswith(log.name) and _ROTATED.fullmatch(name, start)
    ]
    return sorted(found)


def next_rotated_path(log: Path) -> Path:
    """Return the name for the next rotated file.

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
    """Return the position in the head file, or None if there is none.

    Raises:
        ValueError: it is not a head file.
        OSError: it cannot be read.
    """
    head = read_head_file(log)
    return None if head is None else head.link


def read_head_file(log: Path) -> Head | None:
    """Return all that the head file says, or None if there is none.

    Raises:
        ValueError: it is not a head file.
        OSError: it cannot be read.
    """
    try:
        with opened(head_path(log)) as file:
            return head_of(file.read(_LONGEST_HEAD))
    except FileNotFoundError:
        return None


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
    """Return the position that a line states, or None if the line is not a JSON object."""
    fields = parsed(line)
    return None if fields is None else placed_of(fields)


def parsed(line: bytes) -> dict[str, object] | None:
    """Return a line as a JSON object, or None if it is not one."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return fields if isinstance(fields, dict) else None


def placed_of(fields: Mapping[str, object]) -> Placed:
    """Return the position that a parsed line states. A value of the wrong type is a wrong value."""
    seq, prev = fields.get("seq"), fields.get("prev")
    if seq is None and prev is None:
        return Placed(None, None)
    return Placed(
        seq if isinstance(seq, int) and not isinstance(seq, bool) else 0,
        prev if isinstance(prev, str) else "",
    )


def lines_backwards(path: Path, *, limit: int | None = None) -> Iterator[bytes]:
    """Yield the complete lines of a file without their newlines, last first.

    What follows the last newline is not a line. Stops before a line that is longer than any record.

    Args:
        path: a regular file.
        limit: how many bytes from the end to look at; None looks at all.
    """
    with opened(path) as file:
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
    """Return the position of a file's last complete line, or None if it has none.

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


def names_in(directory: Path) -> list[str]:
    """Return the names in a directory, or nothing if it is not there.

    Raises:
        OSError: it cannot be read.
    """
    try:
        return os.listdir(directory)  # noqa: PTH208  a thousand paths would be made for nothing
    except (FileNotFoundError, NotADirectoryError):
        return []


# --- lines ----------------------------------------------------------------------------------------


class Line(Struct, frozen=True):
    """One line, with its file and number."""

    file: str
    """The name of the file, without its directory."""
    number: int
    """The line number in that file, from 1."""
    raw: bytes | None
    """The line without its newline; None if it is longer than any record, or has no end."""
    is_torn: bool = False
    """Whether the file ends before the line does."""

    @property
    def where(self) -> str:
        """`audit.jsonl line 7`."""
        return f"{self.file} line {self.number}"


def read_lines(log: Path) -> Iterator[Line]:
    """Yield every line of a log, of its rotated files first.

    Raises:
        OSError: a file cannot be read, or there is none.
    """
    for name, file in files_of(log):
        yield from lines_of(name, file)


def records_of(log: Path) -> Iterator[dict[str, object]]:
    """Yield the records of a log. Lines that are none are left out.

    Raises:
        OSError: a file cannot be read, or there is none.
    """
    for line in read_lines(log):
        if line.raw is not None and (fields := parsed(line.raw)) is not None:
            yield fields


def lines_with(log: Path, needle: bytes) -> Iterator[Line]:
    """Yield the complete lines that hold these bytes, ten times as fast as a look at each line.

    Raises:
        OSError: a file cannot be read, or there is none.
    """
    for name, file in files_of(log):
        yield from _lines_with(name, file, needle)


def files_of(log: Path) -> Iterator[tuple[str, BinaryIO]]:
    """Yield the files of a log with their names, each open while it is read.

    Raises:
        OSError: a file cannot be read, or there is none.
    """
    # Opened before the others are listed: it may be rotated away at any moment, and then stands
    # among them.
    try:
        current = opened(log)
    except FileNotFoundError:
        rotated = rotated_paths(log)
        if not rotated:
            raise FileNotFoundError(errno.ENOENT, "there is no such audit log", str(log)) from None
        for path in rotated:
            with opened(path) as file:
                yield path.name, file
        return
    with current:
        here = os.fstat(current.fileno())
        for path in rotated_paths(log):
            if not os.path.samestat(path.stat(), here):
                with opened(path) as file:
                    yield path.name, file
        yield log.name, current


def last_lines(log: Path) -> Iterator[bytes]:
    """Yield every complete line of a log and its rotated files, last first, without the newlines.

    Raises:
        OSError: a file cannot be read, or there is none.
    """
    rotated = rotated_paths(log)
    if log.exists() or not rotated:
        yield from lines_backwards(log)
    for path in reversed(rotated):
        yield from lines_backwards(path)


def is_being_written(log: Path) -> bool:
    """Return whether a process has the log open for writing."""
    with suppress(FileNotFoundError), lock_path(log).open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _lines_with(name: str, file: BinaryIO, needle: bytes) -> Iterator[Line]:
    before, rest = 0, b""
    while block := file.read(_SEARCHED_BLOCK):
        data = rest + block
        end = data.rfind(b"\n") + 1
        counted, place = 0, data.find(needle, 0, end)
        while place >= 0:
            start, stop = data.rfind(b"\n", 0, place) + 1, data.find(b"\n", place)
            before += data.count(b"\n", counted, start)
            counted = start
            yield Line(name, before + 1, data[start:stop])
            place = data.find(needle, stop, end)
        before += data.count(b"\n", counted, end)
        rest = data[end:]
        if len(rest) > MAX_LINE:
            # Too long for a record.
            rest = b""


_SEARCHED_BLOCK: Final = 4 << 20


def lines_of(name: str, file: BinaryIO) -> Iterator[Line]:
    """Yield every line of a file from where it stands."""
    number = 0
    while raw := file.readline(MAX_LINE + 1):
        number += 1
        if raw.endswith(b"\n"):
            yield Line(name, number, raw[:-1])
            continue
        is_torn = len(raw) <= MAX_LINE
        while raw and not raw.endswith(b"\n"):
            raw = file.readline(MAX_LINE)
        yield Line(name, number, None, is_torn)


# --- the head file


FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def write_head(log: Path, last: Link, *, lasting: bool, closed: bool = False) -> None:
    """Write a line's position to the head file, completely or not at all.

    On a full disk it is written over the old one, which takes no room: the log's last page may have
    had room for lines that would else look like a stranger's. A power failure at that moment could
    leave a head file that cannot be read, which the next start says.

    Args:
        log: the log.
        last: the place of its last line.
        lasting: whether a power failure must not undo it.
        closed: whether this process writes no further line.

    Raises:
        OSError: the old head file is still there.
    """
    head, text = head_path(log), head_text(last, closed=closed)
    new = head.with_name(f"{head.name}.new")
    try:
        _write(new, text, os.O_CREAT | os.O_TRUNC, lasting=lasting)
        new.replace(head)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        if error.errno not in FULL or not head.exists():
            raise
        old = head.stat().st_size
        _write(head, text.ljust(old), 0, lasting=lasting)


def _write(path: Path, text: bytes, flags: int, *, lasting: bool) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    try:
        # A head file is too short to be written only in part.
        os.write(file, text)
        if lasting:
            os.fsync(file)
    finally:
        os.close(file)
