"""The file of a timeline's history, and the copies of contents beside it.

The workspace at the oldest point comes first, then a line of JSON for each record. The next writer
removes a line that was torn when its process was killed. To drop points, a new file is written and
renamed over the old one.

Each copy lies under its digest. It is written beside and renamed, so that a copy with its final
name is complete. No copy is a hard link into the workspace, because a write in place would change
it.
"""

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol, assert_never, get_args

import orjson

from ironcurtain_proxy.model.reply import ChangeKind
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.private_files import closed_after, held_lock, read_regular
from ironcurtain_proxy.snapshots.history import (
    Delta,
    DroppedPoints,
    Entry,
    EntryKind,
    History,
    NotedChange,
    Point,
    ReplacedEntries,
    ReplacedEntry,
    SettledCall,
    TimelineRecord,
)

# --- blobs


_CHUNK: Final = 1 << 20
_BLOCK: Final = 1 << 16
_SPARSE: Final = "s"
"""The beginning of the digest of a file with holes."""
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE: Final = 0o600
_OURS: Final = 0o700


class Hash(Protocol):
    """The interface of a hash."""

    def update(self, data: bytes, /) -> None:
        """Add bytes."""

    def hexdigest(self) -> str:
        """Return the digest."""


class DamagedError(Exception):
    """A copy does not match its name, or is missing."""


class Blobs:
    """A directory of copies."""

    def __init__(self, directory: Path) -> None:
        """Use a directory, made where it is not there.

        Raises:
            OSError: it cannot be used.
        """
        self._directory = directory
        self._made: set[str] = set()
        self.stored = 0
        """The counted bytes of the copies."""
        directory.mkdir(_OURS, parents=True, exist_ok=True)
        self._temporary = str(directory / f"{os.getpid()}.tmp")
        self._discard()

    def has(self, digest: str) -> bool:
        """Return whether there is a copy."""
        return os.path.exists(self._path(digest))  # noqa: PTH110  ten times as fast, asked often

    def add(self, descriptor: int, size: int, *, sparse: bool) -> tuple[str, int]:
        """Copy an open file, unless its content is held.

        Returns:
            Its digest, and how many bytes the copy takes.

        Raises:
            OSError: it cannot be read, or there is no space left. Nothing is left behind.
        """
        if not sparse and size <= _CHUNK:
            return self._add_small(descriptor)
        digest = hashlib.sha256()
        try:
            with closed_after(os.open(self._temporary, _CREATE, _PRIVATE)) as out:
                taken = (_copy_sparse if sparse else _copy)(descriptor, out, digest)
            name = f"{_SPARSE if sparse else ''}{digest.hexdigest()}"
            if not self.has(name):
                self.stored += taken
            self._name(name)
        except BaseException:
            self._discard()
            raise
        return name, taken

    def _add_small(self, descriptor: int) -> tuple[str, int]:
        parts = []
        while part := os.read(descriptor, _CHUNK):
            parts.append(part)
            if len(parts) > 4:  # noqa: PLR2004  it grows as fast as it is read
                raise OSError(errno.EBUSY, "grows while it is read")
        data = b"".join(parts)
        digest = hashlib.sha256(data).hexdigest()
        if not self.has(digest):
            try:
                with closed_after(os.open(self._temporary, _CREATE, _PRIVATE)) as out:
                    write_all(out, data)
                self._name(digest)
                self.stored += len(data)
            except BaseException:
                self._discard()
                raise
        return digest, len(data)

    def _name(self, digest: str) -> None:
        if digest[:2] not in self._made:
            (self._directory / digest[:2]).mkdir(_OURS, exist_ok=True)
            self._made.add(digest[:2])
        os.rename(self._temporary, self._path(digest))  # noqa: PTH104  once for each file

    def _discard(self) -> None:
        Path(self._temporary).unlink(missing_ok=True)

    def restore(self, digest: str, target: int) -> None:
        """Write a copy into an empty open file.

        Raises:
            DamagedError: it is not what was copied. Something has been written.
            OSError: it cannot be written.
        """
        try:
            source = os.open(self._path(digest), _READ)
        except FileNotFoundError:
            raise DamagedError from None
        try:
            made = hashlib.sha256()
            is_sparse_copy = digest.startswith(_SPARSE)
            (_copy_sparse if is_sparse_copy else _copy)(source, target, made)
            if made.hexdigest() != digest.removeprefix(_SPARSE):
                raise DamagedError
        finally:
            os.close(source)

    def read(self, digest: str) -> bytes:
        """Return the content of a copy.

        Raises:
            DamagedError: it is not what was copied.
            OSError: it cannot be read.
        """
        with open(os.memfd_create("copy"), "w+b") as file:  # noqa: PTH123  a descriptor
            self.restore(digest, file.fileno())
            file.seek(0)
            return file.read()

    def keep(self, needed: set[str]) -> None:
        """Remove unneeded copies, and remains of killed processes; count the others."""
        self.stored = 0
        for directory in self._directory.iterdir():
            if not directory.is_dir():
                if str(directory) != self._temporary:
                    directory.unlink(missing_ok=True)
                continue
            with os.scandir(directory) as found:
                for one in found:
                    if directory.name + one.name in needed:
                        found_size = one.stat()
                        self.stored += min(found_size.st_size, found_size.st_blocks * 512)
                    else:
                        Path(one.path).unlink()

    def _path(self, digest: str) -> str:
        return f"{self._directory}/{digest[:2]}/{digest[2:]}"


def is_sparse(found: os.stat_result) -> bool:
    """Return whether a file has holes that are worth keeping."""
    return found.st_size > _BLOCK and found.st_blocks * 512 < found.st_size


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _copy(source: int, target: int, digest: Hash) -> int:
    left = size = os.fstat(source).st_size
    while left > 0 and (part := os.read(source, min(_CHUNK, left))):
        digest.update(part)
        write_all(target, part)
        left -= len(part)
    return size - left


def _copy_sparse(source: int, target: int, digest: Hash) -> int:
    """Copy what is not zero, by blocks: where holes lie is a matter of the file system."""
    size = os.fstat(source).st_size
    digest.update(f"{size}\n".encode())
    taken = 0
    for start in _blocks(source, size):
        part = os.pread(source, _BLOCK, start)
        if part.count(0) != len(part):
            digest.update(f"{start}\n".encode())
            digest.update(part)
            os.lseek(target, start, os.SEEK_SET)
            write_all(target, part)
            taken += len(part)
    os.ftruncate(target, size)
    return taken


def _blocks(descriptor: int, size: int) -> Iterator[int]:
    at = 0
    while at < size:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        at = max(at, start - start % _BLOCK)
        while at < end:
            yield at
            at += _BLOCK


# --- rows


_ENTRY_KINDS: Final[Mapping[str, EntryKind]] = {kind: kind for kind in get_args(EntryKind)}


def encoded(text: str) -> str:
    """Return bytes that are a name, as text that JSON can hold."""
    return os.fsencode(text).decode("latin-1")


def decoded(text: str) -> str:
    """Return the name of an encoded text."""
    return os.fsdecode(text.encode("latin-1"))


def row_of(entry: Entry) -> list[Json]:
    """Return an entry as JSON."""
    row: list[Json] = list(entry[:7])
    row.append(encoded(entry.content))
    if entry.attributes:
        row.append([[encoded(name), value] for name, value in entry.attributes])
    return row


def entry_of(row: Json) -> Entry:
    """Return the entry of a row.

    Raises:
        ValueError: it is no entry.
    """
    match row:
        case [
            str(kind),
            int(mode),
            int(size),
            int(inode),
            int(names),
            int(ctime_ns),
            int(mtime_ns),
            str(content),
            *more,
        ] if kind in _ENTRY_KINDS:
            return Entry(
                _ENTRY_KINDS[kind],
                mode,
                size,
                inode,
                names,
                ctime_ns,
                mtime_ns,
                decoded(content),
                _attributes_of(more),
            )
    raise ValueError


def _attributes_of(more: list[Json]) -> tuple[tuple[str, str], ...]:
    found = []
    for pair in more[0] if more and isinstance(more[0], list) else []:
        match pair:
            case [str(name), str(value)]:
                found.append((decoded(name), value))
            case _:
                raise ValueError
    return tuple(found)


# --- log


_FORM: Final = 1
_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_CHANGE_KINDS: Final[Mapping[str, ChangeKind]] = {
    "created": "created",
    "changed": "changed",
    "deleted": "deleted",
    "mode": "mode",
}


class Log:
    """The file of one timeline."""

    def __init__(self, directory: Path) -> None:
        """Use the file in a directory."""
        self._path = directory / "log"
        self._lock = directory / "lock"
        self._known: tuple[int, int] | None = None

    def locked(self, seconds: float) -> AbstractContextManager[None]:
        """Hold the lock for writing.

        Raises:
            TimeoutError: another holds it for longer than this.
        """
        return held_lock(self._lock, seconds, TimeoutError())

    def is_foreign(self) -> bool:
        """Return whether another process wrote since this one did, or nothing was read yet."""
        return self._known is None or self._state() != self._known

    def _state(self) -> tuple[int, int] | None:
        with suppress(FileNotFoundError):
            found = self._path.stat()
            return found.st_ino, found.st_size
        return None

    def read(self) -> History | None:
        """Return the whole history, or None if there is none, or it is unreadable.

        Raises:
            OSError: it cannot be read.
        """
        try:
            raw = read_regular(self._path)
        except FileNotFoundError:
            return None
        whole, _, _ = raw.rpartition(b"\n")
        head, *lines = whole.split(b"\n")
        try:
            history = _start(orjson.loads(head))
            for line in lines:
                history.add(_record(orjson.loads(line)))
        except ValueError:
            return None
        found = self._state()
        self._known = (found[0], len(whole) + 1) if found else None
        return history

    def append(self, record: TimelineRecord) -> None:
        """Write a record, completely or not at all.

        Raises:
            OSError: they could not be written.
        """
        data = orjson.dumps(_row(record)) + b"\n"
        with closed_after(os.open(self._path, _APPEND)) as descriptor:
            assert self._known is not None  # noqa: S101  it was read or made
            size = self._known[1]
            os.ftruncate(descriptor, size)  # a torn line
            try:
                write_all(descriptor, data)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        self._known = (self._known[0], size + len(data))

    def replace(self, history: History) -> None:
        """Write the whole file anew.

        Raises:
            OSError: it could not be written; the old one stands.
        """
        temporary = self._path.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE
        )
        try:
            write_all(descriptor, orjson.dumps(_head(history)) + b"\n")
            for record in history.records:
                write_all(descriptor, orjson.dumps(_row(record)) + b"\n")
            os.fsync(descriptor)
            found = os.fstat(descriptor)
            temporary.rename(self._path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        self._known = (found.st_ino, found.st_size)


def _head(history: History) -> Json:
    until = history.dropped.until
    return {
        "form": _FORM,
        "next": history.next,
        "dropped": [history.dropped.points, until.isoformat() if until else None],
        "base": [[encoded(path), row_of(entry)] for path, entry in history.base.items()],
    }


def _start(head: Json) -> History:
    match head:
        case {"form": 1, "next": int(following), "dropped": [int(points), until], "base": [*base]}:
            history = History(
                dropped=DroppedPoints(
                    points=points,
                    until=datetime.fromisoformat(until) if isinstance(until, str) else None,
                ),
                next=following,
            )
        case _:
            raise ValueError
    for pair in base:
        match pair:
            case [str(path), row]:
                history.base[decoded(path)] = entry_of(row)
            case _:
                raise ValueError
    return history


def _row(record: TimelineRecord) -> Json:
    match record:
        case Point():
            return [
                "point",
                record.number,
                record.kind,
                record.call,
                record.server,
                record.tool,
                record.session,
                record.at.isoformat(),
            ]
        case Delta():
            return [
                "changed",
                list[Json](sorted(record.calls)),
                [
                    [encoded(noted.path), noted.kind, noted.after and row_of(noted.after)]
                    for noted in record.changes
                ],
            ]
        case SettledCall():
            at = record.at.isoformat() if record.at else None
            return ["settled", record.number, at, [encoded(path) for path in record.unseen]]
        case ReplacedEntries():
            rows = [
                [encoded(e.path), *map(_row_or_none, (e.before, e.after))] for e in record.entries
            ]
            return ["replaced", record.call, [*rows]]
        case _:
            assert_never(record)


def _record(row: Json) -> TimelineRecord:
    match row:
        case ["point", int(number), str(kind), str(call), str(server), str(tool), str(session), at]:
            return Point(
                number=number,
                kind="rollback" if kind == "rollback" else "call",
                call=call,
                server=server,
                tool=tool,
                session=session,
                at=datetime.fromisoformat(str(at)),
            )
        case ["changed", [*calls], [*changes]]:
            known = [call for call in calls if isinstance(call, int)]
            return Delta(frozenset(known), tuple([_noted(change) for change in changes]))
        case ["settled", int(number), *more]:
            ended, unseen = [*more, None, None][:2]
            return SettledCall(
                number,
                datetime.fromisoformat(str(ended)) if ended else None,
                tuple([decoded(str(path)) for path in unseen] if isinstance(unseen, list) else ()),
            )
        case ["replaced", int(call), [*entries]]:
            return ReplacedEntries(call, tuple([_replaced(entry) for entry in entries]))
        case _:
            raise ValueError


def _noted(row: Json) -> NotedChange:
    match row:
        case [str(path), kind, after] if kind is None or kind in _CHANGE_KINDS:
            found = None if after is None else entry_of(after)
            return NotedChange(decoded(path), _CHANGE_KINDS.get(str(kind)), found)
        case _:
            raise ValueError


def _row_or_none(entry: Entry | None) -> Json:
    return None if entry is None else row_of(entry)


def _replaced(row: Json) -> ReplacedEntry:
    match row:
        case [str(path), before, after]:
            states = [None if one is None else entry_of(one) for one in (before, after)]
            return ReplacedEntry(decoded(path), states[0], states[1])
        case _:
            raise ValueError
