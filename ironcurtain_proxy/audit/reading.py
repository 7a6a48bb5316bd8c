"""The lines of a log, read from its files.

`verify` checks the lines, and the command line shows them.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from ironcurtain_proxy.audit.files import MAX_LINE, lines_backwards, lock_path, rotated_paths


@dataclass(frozen=True, slots=True)
class Line:
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
    """Every line of a log, of its rotated files first.

    Raises:
        OSError: a file cannot be read, or there is none.
    """
    for name, file in _files(log):
        yield from _lines_of(name, file)


def lines_with(log: Path, needle: bytes) -> Iterator[Line]:
    """The complete lines that hold these bytes; ten times as fast as a look at each line.

    Raises:
        OSError: a file cannot be read, or there is none.
    """
    for name, file in _files(log):
        yield from _lines_with(name, file, needle)


def _files(log: Path) -> Iterator[tuple[str, BinaryIO]]:
    """The files of a log with their names, each open while it is read."""
    # Opened before the others are listed: it may be rotated away at any moment, and then stands
    # among them.
    try:
        current = log.open("rb")
    except FileNotFoundError:
        rotated = rotated_paths(log)
        if not rotated:
            raise FileNotFoundError(f"there is no audit log {log}") from None
        for path in rotated:
            with path.open("rb") as file:
                yield path.name, file
        return
    with current:
        here = os.fstat(current.fileno())
        for path in rotated_paths(log):
            if not os.path.samestat(path.stat(), here):
                with path.open("rb") as file:
                    yield path.name, file
        yield log.name, current


def last_lines(log: Path) -> Iterator[bytes]:
    """Every complete line of a log and its rotated files, last first, without the newlines.

    Raises:
        OSError: a file cannot be read, or there is none.
    """
    rotated = rotated_paths(log)
    if log.exists() or not rotated:
        yield from lines_backwards(log)
    for path in reversed(rotated):
        yield from lines_backwards(path)


def is_being_written(log: Path) -> bool:
    """Whether a process has the log open for writing."""
    with suppress(FileNotFoundError), lock_path(log).open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _lines_with(name: str, file: BinaryIO, needle: bytes) -> Iterator[Line]:
    before, rest = 0, b""
    while block := file.read(_BLOCK):
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


_BLOCK: Final = 4 << 20


def _lines_of(name: str, file: BinaryIO) -> Iterator[Line]:
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
