"""The record of changed client files, and their restoration.

The record and a copy of each file lie below `~/.ironcurtain`, where no tool call reaches and no
repository takes up secrets. A change is recorded before it is made: after a crash the record may
name a change that did not happen, and putting that back does nothing.

A file that nobody changed since gets its old bytes. Where other parts changed, the servers come
back in place of the proxy's entry, and the other parts stay. Where that entry changed, too, the
file stays as it is.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct, field, json
from msgspec.structs import replace

from ironcurtain_proxy.config.clients.known import FORMATS, FormatName, format_of
from ironcurtain_proxy.config.clients.plan import FileChange
from ironcurtain_proxy.config.clients.text_format import Move, NotUnderstoodError, given_back
from ironcurtain_proxy.config.migration.migration import exchange
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.private_files import locked_file, make_private_directory, write_whole

_DIRECTORY: Final = "clients"
_NAME: Final = "journal.json"
_VERSION: Final = 1

UndoState: TypeAlias = Literal["restored", "same", "merged", "refused"]
"""`restored`: the old bytes. `same`: it had them already. `merged`: the servers are back, and other
parts are as they were changed since. `refused`: the file is as it was found."""


class ChangedFile(Struct, frozen=True, kw_only=True):
    """One changed file."""

    file: Path
    client: str
    """The client's name for people."""
    format: FormatName
    backup: Annotated[str, Meta(pattern=r"^[0-9]+-[^/]*$")]
    """The name of the copy. It begins with a number, so that no two changes share one."""
    after: str
    """The SHA-256 of the file after the change."""
    at: str
    moves: tuple[Move, ...]


class UndoRecord(Struct, frozen=True, kw_only=True):
    """The record of all changes, as its file has it."""

    version: int
    entries: tuple[ChangedFile, ...] = field(name="clients")
    written: dict[str, str]
    """The SHA-256 of each of the proxy's files as `init` wrote it, by its path below the directory.
    """
    origins: dict[str, str]
    """The origin of each server, by its name behind the proxy; see `plan.origin_of`."""


class UndoneFile(Struct, frozen=True):
    """The result of restoring one file."""

    entry: ChangedFile
    state: UndoState
    why: str = ""
    backup: Path | None = None
    """The copy that is kept, or None if it was removed."""


def digest(content: bytes) -> str:
    """Return the SHA-256 of a content."""
    return hashlib.sha256(content).hexdigest()


@contextmanager
def only_one(state: Path) -> Iterator[None]:
    """Hold the lock of `init`.

    Raises:
        ConfigurationError: another `init` is running.
    """
    directory = state / _DIRECTORY
    make_private_directory(directory)
    descriptor = locked_file(directory / ".lock")
    if descriptor is None:
        raise ConfigurationError("another `init` is running: wait for it")
    try:
        yield
    finally:
        os.close(descriptor)


def read_undo_record(state: Path) -> UndoRecord:
    """Return the record; an empty one if there is none.

    Raises:
        ConfigurationError: it cannot be read.
    """
    file = state / _DIRECTORY / _NAME
    try:
        found = json.decode(file.read_bytes(), type=UndoRecord, dec_hook=lambda _, text: Path(text))
    except FileNotFoundError:
        return UndoRecord(version=_VERSION, entries=(), written={}, origins={})
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):  # no JSON of this form, no UTF-8, or nested without end
        found = None
    if found is None or found.version != _VERSION:
        raise ConfigurationError(
            f"{file}: is damaged, or of another version of ironcurtain-proxy: the copies of your "
            "clients' files lie beside it"
        )
    return found


def write_undo_record(state: Path, journal: UndoRecord) -> None:
    """Write the record.

    Raises:
        OSError: it could not be written; the old one is there.
    """
    directory = state / _DIRECTORY
    make_private_directory(directory)
    raw = json.format(json.encode(journal, enc_hook=str), indent=2)
    write_whole(directory / _NAME, raw, locked=True)


def change(state: Path, journal: UndoRecord, what: FileChange, now: datetime) -> UndoRecord:
    """Change a client's file. Returns the record with it.

    Raises:
        OSError: the file could not be changed, or was changed meanwhile; it is as it was.
    """
    before, after = what.file.text.encode(), what.after.encode()
    number = 1 + max([int(one.backup.partition("-")[0]) for one in journal.entries], default=0)
    entry = ChangedFile(
        file=what.file.path,
        client=what.file.client.name,
        format=format_of(what.file.path),
        backup=f"{number}-{what.file.path.name}",
        after=digest(after),
        at=now.isoformat(timespec="seconds"),
        moves=what.moves,
    )
    directory = state / _DIRECTORY
    make_private_directory(directory)
    write_whole(directory / entry.backup, before, locked=True)
    recorded = replace(journal, entries=(*journal.entries, entry))
    write_undo_record(state, recorded)
    try:
        exchange(what.file.path, before, after)
    except OSError:
        write_undo_record(state, journal)
        (directory / entry.backup).unlink(missing_ok=True)
        raise
    return recorded


def undo(state: Path, journal: UndoRecord) -> tuple[list[UndoneFile], UndoRecord]:
    """Restore all files, the latest change first. Returns the rest of the record, too."""
    results: list[UndoneFile] = []
    for entry in reversed(journal.entries):
        result = _undone(state / _DIRECTORY / entry.backup, entry)
        results.append(result)
        if result.state == "refused":
            continue
        rest = tuple([one for one in journal.entries if one is not entry])
        journal = replace(journal, entries=rest)
        write_undo_record(state, journal)
        if result.backup is None:
            with suppress(OSError):
                (state / _DIRECTORY / entry.backup).unlink(missing_ok=True)
    return results, journal


def _undone(backup: Path, entry: ChangedFile) -> UndoneFile:
    try:
        return UndoneFile(entry, *_restored(backup, entry))
    except NotUnderstoodError as error:
        why = f"it was changed since, and {error}"
    except UnicodeDecodeError:
        why = "it was changed since, and is not UTF-8"
    except FileNotFoundError as error:
        why = "it is gone" if error.filename == str(entry.file) else "its copy is gone"
    except OSError as error:
        why = f"it cannot be written: {error.strerror}"
    return UndoneFile(entry, "refused", why, backup)


def _restored(backup: Path, entry: ChangedFile) -> tuple[UndoState, str, Path | None]:
    before, now = backup.read_bytes(), entry.file.read_bytes()
    if now == before:
        return "same", "", None
    if digest(now) == entry.after:
        exchange(entry.file, now, before)
        return "restored", "", None
    text, old = now.decode(), before.decode()
    for move in reversed(entry.moves):
        text = given_back(FORMATS[entry.format], text, old, move)
    exchange(entry.file, now, text.encode())
    return "merged", "", backup
