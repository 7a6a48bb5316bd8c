"""The clients with a configuration on this machine, and servers read from a client's file.

A file of servers is read in three forms: an object with `mcpServers`, an object of entries by name,
and a list of entries with a `name` each. Entries that cannot be started here and unknown keys are
left out and reported.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.config.clients.entries import (
    CLIENTS,
    FORMATS,
    KnownClient,
    MovableServer,
    ProxyEntry,
    UnmovableServer,
    VariableDirectories,
    client_of,
    format_of,
    is_network,
    places_of,
    read_entry,
)
from ironcurtain_proxy.config.clients.text_format import (
    NotUnderstoodError,
    TablePath,
    TextFormat,
    table_at,
)
from ironcurtain_proxy.config.reading.document import Report, shown
from ironcurtain_proxy.config.reading.forms import keys_of_form
from ironcurtain_proxy.config.reading.reading import is_there, read_document, read_file
from ironcurtain_proxy.config.servers.servers_file import form_of
from ironcurtain_proxy.model.values import Json

_MOVED: Final = {"CODEX_HOME": ".codex", "XDG_CONFIG_HOME": ".config"}
"""Directories below the home directory that a variable moves."""


class ServerTable(Struct, frozen=True, kw_only=True):
    """A table of servers in a client's file."""

    place: TablePath
    taken: tuple[MovableServer, ...] = ()
    """The servers that can move behind the proxy."""
    left: tuple[UnmovableServer, ...] = ()
    """The servers that stay in the client."""
    ours: tuple[ProxyEntry, ...] = ()
    """The entries that start this proxy already."""
    names: frozenset[str] = frozenset()
    """All names in the table."""


class ClientFile(Struct, frozen=True, kw_only=True):
    """A configuration of a client."""

    client: KnownClient
    path: Path
    form: TextFormat
    text: str
    tables: tuple[ServerTable, ...]
    is_project: bool
    """Whether the file lies in the workspace, where other people may share it."""


class UnusableFile(Struct, frozen=True):
    """A configuration that cannot be used and stays unchanged."""

    path: Path
    why: str


class FoundClients(Struct, frozen=True):
    """All configurations of clients."""

    files: tuple[ClientFile, ...]
    unusable: tuple[UnusableFile, ...]


def find(
    home: Path, workspace: Path, environ: Mapping[str, str], given: Sequence[Path] = ()
) -> FoundClients:
    """Return the configurations of the known clients, or the given files instead."""
    found: dict[str, ClientFile] = {}
    unusable: list[UnusableFile] = []
    places = VariableDirectories(str(workspace), str(home))
    candidates = [(None, path) for path in given] or _candidates(home, workspace, environ)
    for client, path in candidates:
        key = os.path.realpath(path)
        if key in found or (not given and not is_there(path)):
            continue
        try:
            found[key] = _read(client, path, workspace, places)
        except NotUnderstoodError as error:
            unusable.append(UnusableFile(path, str(error)))
    return FoundClients(tuple(found.values()), tuple(unusable))


def _candidates(
    home: Path, workspace: Path, environ: Mapping[str, str]
) -> Iterator[tuple[KnownClient | None, Path]]:
    for client in CLIENTS:
        for name in client.user_files:
            yield client, _below_home(name, home, environ)
        for name in client.project_files:
            yield client, workspace / name


def _below_home(name: str, home: Path, environ: Mapping[str, str]) -> Path:
    for variable, directory in _MOVED.items():
        moved = environ.get(variable, "")
        if moved.startswith("/") and name.startswith(f"{directory}/"):
            return Path(moved) / name.removeprefix(f"{directory}/")
    return home / name


def _read(
    client: KnownClient | None, path: Path, workspace: Path, places: VariableDirectories
) -> ClientFile:
    form = FORMATS[format_of(path) if client is None else client.format]
    is_project = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(workspace))
    if client is not None and path.is_relative_to(workspace) and not is_project:
        # A repository of somebody else must not choose which file is changed.
        raise NotUnderstoodError("is a link that leads out of the workspace")
    text = _text(path)
    document = form.parse(text) if text.strip() else {}
    client = client or client_of(path, document)
    if client is None:
        raise NotUnderstoodError("has no servers in a form that is known")
    tables = [
        _table(client, place, table, places, is_own=not is_project)
        for place in places_of(client, str(workspace))
        if (table := table_at(document, place)) is not None
    ]
    if not tables and (key := _elsewhere(client, document)):
        what = "is itself a table of servers" if key == "." else f'has its servers in "{key}"'
        raise NotUnderstoodError(
            f'{what}, and {client.name} reads "{client.key}" alone: it starts none of them; put '
            f'them into "{client.key}", and run init again'
        )
    return ClientFile(
        client=client,
        path=path,
        form=form,
        text=text,
        tables=tuple(tables),
        is_project=is_project,
    )


def _text(path: Path) -> str:
    report = Report()
    data = read_file(path, report)
    if data is None or report.has_errors:
        raise NotUnderstoodError(report.problems[0].message)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise NotUnderstoodError("is not UTF-8") from None


def _elsewhere(client: KnownClient, document: Json) -> str:
    """Return the key under which a file has servers that its client does not read; empty: none.

    `.` stands for a file that is itself the table.
    """
    if not isinstance(document, dict):
        return ""
    if _is_table(document):
        return "."
    others = dict.fromkeys([one.key for one in CLIENTS if one.key != client.key])
    return next((key for key in others if _is_table(document.get(key))), "")


def _is_table(value: Json) -> bool:
    entries = [*value.values()] if isinstance(value, dict) else []
    return bool(entries) and all(
        isinstance(one, dict) and (is_network(one) or isinstance(one.get("command"), str))
        for one in entries
    )


def _table(
    client: KnownClient,
    place: TablePath,
    table: Mapping[str, Json],
    places: VariableDirectories,
    *,
    is_own: bool,
) -> ServerTable:
    read = [read_entry(client, name, value, places, is_own=is_own) for name, value in table.items()]
    return ServerTable(
        place=place,
        taken=tuple([one for one in read if isinstance(one, MovableServer)]),
        left=tuple([one for one in read if isinstance(one, UnmovableServer)]),
        ours=tuple([one for one in read if isinstance(one, ProxyEntry)]),
        names=frozenset(table),
    )


# --- a server file of a client's

_OURSELVES: Final = "ironcurtain-proxy"


class ClientServers(Struct, frozen=True):
    """The servers of a client, and the parts of its file that were left out."""

    entries: dict[str, dict[str, Json]]
    notes: tuple[str, ...] = ()


def read_client_file(path: Path, report: Report) -> ClientServers:
    """Return the servers of a file; a mistake that makes it unusable is in the report."""
    read = read_document(path, report)
    if read is None:
        return ClientServers({})
    root = _by_name(read[1].value)
    if root is None:
        what = (
            "must hold servers by name: an object with mcpServers, or a list with a name for each"
        )
        report.error(path, (), what)
        return ClientServers({})
    entries: dict[str, dict[str, Json]] = {}
    notes: list[str] = []
    for name, entry in root.items():
        if not isinstance(entry, dict):
            report.error(path, (name,), "must be an object with a command")
            continue
        why = _why_left_out(entry)
        if why is not None:
            notes.append(f"{shown(name)} is left out: {why}")
            continue
        entries[name] = {
            key: value for key, value in entry.items() if key in keys_of_form(form_of(entry))
        }
        notes.extend(_oddities(name, entry))
    return ClientServers(entries, tuple(notes))


def _by_name(root: Json) -> Mapping[str, Json] | None:
    """Return the entries by name, from any of the three forms; None: the file has none of them."""
    if isinstance(root, dict) and "mcpServers" in root:
        root = root["mcpServers"]
    if isinstance(root, list):
        listed = [one for one in root if isinstance(one, dict)]
        named = {name: one for one in listed if isinstance(name := one.get("name"), str)}
        if len(named) < len(root):
            return None
        return {
            name: {key: value for key, value in one.items() if key != "name"}
            for name, one in named.items()
        }
    if not isinstance(root, dict):
        return None
    return {name: entry for name, entry in root.items() if not name.startswith("_")}


def _oddities(name: str, entry: dict[str, Json]) -> Iterator[str]:
    unknown = [key for key in entry if key not in {*keys_of_form(form_of(entry)), "disabled"}]
    if unknown:
        yield f"{shown(name)}: {', '.join(map(shown, unknown))} means nothing here"
    if "${" in str(entry.get("args")) + str(entry.get("env")):
        yield f"{shown(name)}: variables in args and env are not expanded here"


def _why_left_out(entry: dict[str, Json]) -> str | None:
    if entry.get("disabled") is True:
        return "it is disabled there"
    command = entry.get("command")
    words = [command, *_texts(entry.get("args"))]
    if any(PurePosixPath(str(word)).name == _OURSELVES for word in words):
        return "it is this proxy"
    return None


def _texts(args: Json) -> list[str]:
    return [str(one) for one in args] if isinstance(args, list) else []
