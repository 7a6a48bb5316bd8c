"""The servers of all clients together, and the change of each client's file.

Two clients may call different servers by one name, or the same server twice. Each client keeps to
the servers that were its own: its entry names them in `SERVER_FILTER`.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain, count
from typing import Final

import orjson

from ironcurtain_proxy.config.clients.entries import MovableServer, ProxyEntry, guessed
from ironcurtain_proxy.config.clients.finding import ClientFile, ServerTable
from ironcurtain_proxy.config.clients.known import entry_of
from ironcurtain_proxy.config.clients.text_format import Move, NotUnderstoodError, moved
from ironcurtain_proxy.config.reading.layers import CLIENT_VARIABLES
from ironcurtain_proxy.model.values import Json

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MovingServer:
    """A server that moves from a client's table to the proxy."""

    file: ClientFile
    table: ServerTable
    taken: MovableServer
    name: str
    """The server's name behind the proxy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """The change of a client's file."""

    file: ClientFile
    moves: tuple[Move, ...]
    after: str
    servers: tuple[str, ...]
    """The servers that move, by their names behind the proxy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStart:
    """The command that a client gets."""

    command: str
    args: tuple[str, ...]
    workspace: str | None = None
    """The workspace, for files of a project that is not the configured workspace."""
    serves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The servers that a client gets for one that it had, where these are others than itself."""


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
    """A digest that is equal for entries which start the same server, without their secrets."""
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
