"""The servers of all clients together, the change of each client's file, and its restoration.

Two clients may call different servers by one name, or the same server twice. Each client keeps to
the servers that were its own: its entry names them in `SERVER_FILTER`.

The record of changes and a copy of each file lie below `~/.ironcurtain`, where no tool call reaches
and no repository takes up secrets. A change is recorded before it is made: after a crash the record
may name a change that did not happen, and putting that back does nothing.

A file that nobody changed since gets its old bytes. Where other parts changed, the servers come
back in place of the proxy's entry, and the other parts stay. Where that entry changed, too, the
file stays as it is.
"""

import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
import orjson
from msgspec import Meta, Struct, field, json
from msgspec.structs import replace

from ironcurtain_proxy.config.clients.entries import (
    FORMATS,
    FormatName,
    MovableServer,
    ProxyEntry,
    entry_of,
    format_of,
    guessed,
)
from ironcurtain_proxy.config.clients.finding import ClientFile, ServerTable
from ironcurtain_proxy.config.clients.text_format import Move, NotUnderstoodError, given_back, moved
from ironcurtain_proxy.config.migration import exchange
from ironcurtain_proxy.config.reading.layers import CLIENT_VARIABLES
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.private_files import (
    locked_file,
    make_private_directory,
    read_regular,
    write_whole,
)

ENTRY_NAME: Final = "ironcurtain"
PROJECT_NAME: Final = "ironcurtain-project"
LOCAL_NAME: Final = "ironcurtain-local"
"""Of a project that a client keeps in its own file."""
_FILTER: Final = "SERVER_FILTER"
_CREDENTIALS: Final = "SERVER_CREDENTIALS"
_WORKSPACE: Final = "ALLOWED_DIRECTORY"
_MAX_NAME: Final = 80
"""Characters; a number or a client's name may be added."""
_STARTS: Final = ("command", "args", "env", "cwd", "url", "type", "headers")


class MovingServer(Struct, frozen=True, kw_only=True):
    """A server that moves from a client's table to the proxy."""

    file: ClientFile
    table: ServerTable
    taken: MovableServer
    name: str
    """The server's name behind the proxy."""


class FileChange(Struct, frozen=True, kw_only=True):
    """The change of a client's file."""

    file: ClientFile
    moves: tuple[Move, ...]
    after: str
    servers: tuple[str, ...]
    """The servers that move, by their names behind the proxy."""


class OwnStart(Struct, frozen=True, kw_only=True):
    """The command that a client gets."""

    command: str
    args: tuple[str, ...]
    workspace: str | None = None
    """The workspace, for files of a project that is not the configured workspace."""
    serves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The servers that a client gets for one that it had, where these are others than itself."""
    path: str = ""
    """The `PATH` that leads to the programs of the sandbox, where a client's own does not."""


def movings(
    files: Sequence[ClientFile],
    present: Mapping[str, Mapping[str, Json]],
    origins: Mapping[str, str],
) -> list[MovingServer]:
    """Return every server that moves, each with the name that it gets.

    Args:
        files: the clients' files.
        present: the servers that are already behind the proxy.
        origins: the origins of those servers, by `origin_of`; their entries may have been extended.
    """
    made_of = {name: origins.get(name) or origin_of(entry) for name, entry in present.items()}
    found: list[MovingServer] = []
    for file in files:
        for table in file.tables:
            for taken in table.taken:
                name = _name(taken, file, made_of)
                made_of.setdefault(name, origin_of(taken.entry))
                found.append(MovingServer(file=file, table=table, taken=taken, name=name))
    return found


def origin_of(entry: Mapping[str, Json]) -> str:
    """Return a digest that is equal for entries that start one server, without secrets."""
    words = {key: entry[key] for key in _STARTS if entry.get(key)}
    return sha256(orjson.dumps(words, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _name(taken: MovableServer, file: ClientFile, made_of: Mapping[str, str]) -> str:
    # What the proxy refuses in a name, and what could end it early in `server__tool`. Of
    # `@21st-dev/magic` the letters stay.
    odd = _is_odd(taken.name)
    clean = re.sub(r"[^\w.-]+", "-", taken.name, flags=re.ASCII) if odd else taken.name
    base = re.sub("__+", "-", clean[:_MAX_NAME]).strip("_-") or "server"
    base = f"{base}-server" if base == "proxy" else base
    wanted = (*(() if odd else (taken.name,)), base, f"{base}-{file.client.id}")
    numbered = (f"{base}-{number}" for number in count(2))
    names: Iterator[str] = chain(wanted, numbered)
    return next(name for name in names if _is_free(name, taken, made_of))


def _is_odd(name: str) -> bool:
    """Return whether the proxy refuses a name, as the reader of `mcp-servers.json` does."""
    is_wrong = not name or name != name.strip() or len(name) > _MAX_NAME or "/" in name
    return is_wrong or not name.isprintable() or name.startswith("_") or name == "proxy"


def _is_free(name: str, taken: MovableServer, made_of: Mapping[str, str]) -> bool:
    there = made_of.get(name)
    if there is not None:
        return there == origin_of(taken.entry)
    # `a__b__c` could be tool `b__c` of server `a`, or tool `c` of server `a__b`.
    return not any(collides(name, other) for other in made_of)


def collides(one: str, other: str) -> bool:
    """Return whether tools of a server could be taken for those of another, by their names."""
    return f"{one}__".startswith(f"{other}__") or f"{other}__".startswith(f"{one}__")


def servers_behind_proxy(
    moving: Sequence[MovingServer], present: Mapping[str, Mapping[str, Json]]
) -> dict[str, dict[str, Json]]:
    """Return all servers behind the proxy, as its own file has them."""
    entries = {name: {**entry} for name, entry in present.items()}
    for one in moving:
        entries.setdefault(one.name, {**one.taken.entry})
    return entries


def startable(
    moving: Sequence[MovingServer],
    entries: Mapping[str, dict[str, Json]],
    environ: Mapping[str, str],
) -> dict[str, dict[str, Json]]:
    """Return the entries for starting the servers to read their tools.

    A variable that only the client can fill in is guessed, or stays unreplaced: most servers check
    a key when it is used, not when they start.
    """
    found = {name: {**entry} for name, entry in entries.items()}
    for one in moving:
        if "url" in found[one.name]:
            continue
        env = found[one.name].get("env")
        guesses: dict[str, Json] = {
            key: guessed(text, one.file.client, environ)
            for key, text in one.taken.open_variables.items()
        }
        if guesses:
            found[one.name]["env"] = {**(env if isinstance(env, dict) else {}), **guesses}
    return found


def credentials(
    moving: Sequence[MovingServer], environ: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return the credentials that servers over the network need, as far as they can be guessed."""
    return {
        one.name: {
            key: guessed(text, one.file.client, environ)
            for key, text in one.taken.open_variables.items()
        }
        for one in moving
        if "url" in one.taken.entry and one.taken.open_variables
    }


def changes(
    moving: Sequence[MovingServer], start: OwnStart, without: Collection[str] = ()
) -> tuple[list[FileChange], list[tuple[ClientFile, str]]]:
    """Return the change of each file, and the files that cannot be changed, with the reason.

    Args:
        moving: the servers.
        start: the command that the clients get.
        without: the servers that stay in their clients, by their names behind the proxy.
    """
    done: list[FileChange] = []
    refused: list[tuple[ClientFile, str]] = []
    files = {id(one.file): one.file for one in moving}
    for key, file in files.items():
        here = [one for one in moving if id(one.file) == key and one.name not in without]
        if not here:
            continue
        try:
            done.append(_change(file, here, start))
        except NotUnderstoodError as error:
            refused.append((file, str(error)))
    return done, refused


def _change(file: ClientFile, moving: Sequence[MovingServer], start: OwnStart) -> FileChange:
    moves: list[Move] = []
    text = file.text
    for table in file.tables:
        here = [one for one in moving if one.table is table]
        if here:
            moves.append(_move(file, table, here, start))
            text = moved(file.form, text, moves[-1])
    names = dict.fromkeys(one.name for one in moving)
    return FileChange(file=file, moves=tuple(moves), after=text, servers=tuple(names))


def _move(
    file: ClientFile, table: ServerTable, moving: Sequence[MovingServer], start: OwnStart
) -> Move:
    old = next(iter(table.ours), None)
    names = [one.taken.name for one in moving]
    name = _entry_name(file, table, names) if old is None else old.name
    is_project = file.is_project or _is_local(table)
    env = dict(_env(moving, old, start, start.workspace if is_project else None))
    if old is None:
        value = entry_of(file.client, start.command, [*start.args], env)
    else:
        names.append(old.name)
        value = {**old.value, file.client.env_key: {**env}}
    return Move(place=table.place, names=tuple(names), name=name, value=value)


def _entry_name(file: ClientFile, table: ServerTable, going: Collection[str]) -> str:
    """Return a name of its own for each file: of two servers of one name a client starts one."""
    base = LOCAL_NAME if _is_local(table) else PROJECT_NAME if file.is_project else ENTRY_NAME
    taken = table.names - frozenset(going)
    numbered = (f"{base}-{number}" for number in count(2))
    names = (base, f"{base}-proxy", *[next(numbered) for _ in taken])
    return next(name for name in names if name not in taken)


def _is_local(table: ServerTable) -> bool:
    return len(table.place) > 1


def _env(
    moving: Sequence[MovingServer],
    old: ProxyEntry | None,
    start: OwnStart,
    workspace: str | None,
) -> Iterator[tuple[str, str]]:
    there = old.value.get("env", old.value.get("envs")) if old else None
    env = {str(key): str(text) for key, text in there.items()} if isinstance(there, dict) else {}
    served = [start.serves.get(one.name, (one.name,)) for one in moving]
    names = dict.fromkeys(chain.from_iterable(served))
    if old is None or _FILTER in env:
        # Without a filter the old entry has every server, and so these.
        before = [name.strip() for name in env.get(_FILTER, "").split(",") if name.strip()]
        env[_FILTER] = ",".join(dict.fromkeys([*before, *names]))
    found = _read(env.get(_CREDENTIALS, "{}"))
    for one in moving:
        if one.taken.open_variables and one.name in names:
            found[one.name] = _taken_from(one, env)
    if found:
        env[_CREDENTIALS] = orjson.dumps(found).decode()
    if workspace is not None:
        env[_WORKSPACE] = workspace
    if start.path:
        env.setdefault("PATH", start.path)
    yield from env.items()


def _taken_from(moving: MovingServer, env: dict[str, str]) -> dict[str, Json]:
    """Return the credentials of a server, each in a variable of its own.

    What the client fills in may hold quotes, so it must not stand inside JSON.
    """
    found: dict[str, Json] = {}
    for key, text in moving.taken.open_variables.items():
        base = CLIENT_VARIABLES + re.sub(r"\W", "_", f"{moving.name}_{key}", flags=re.ASCII).upper()
        names = chain((base,), (f"{base}_{number}" for number in count(2)))
        name = next(name for name in names if env.get(name, text) == text)
        env[name] = text
        found[key] = {"from": name}
    return found


def _read(text: str) -> dict[str, Json]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise NotUnderstoodError(f"the {_CREDENTIALS} of the proxy's entry is not understood")
    return found


# --- undo record


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
    entries: tuple[ChangedFile, ...] = msgspec.field(name="clients")
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
        raise ConfigurationError(
            "another `init` is running: nothing was changed; wait for it, and then run this again"
        )
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
        found = json.decode(
            read_regular(file), type=UndoRecord, dec_hook=lambda _, text: Path(text)
        )
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
