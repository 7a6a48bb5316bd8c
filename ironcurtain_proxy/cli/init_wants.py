"""Servers that fail inside their sandbox, what they want of it, and what `init` shows.

Not a command itself.

A server that keeps its settings or a cache in a folder of the home directory ends at once where it
may not write there. It gets that folder for itself, and is started again. What else it says that it
was refused is shown with the setting that would open it: a person decides on that.
"""

import difflib
import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

import orjson
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.audit.redaction import redact_text
from ironcurtain_proxy.audit.secrets import MASK
from ironcurtain_proxy.cli.init_dialogue import Dialogue, clean, masked_arguments, own_machine
from ironcurtain_proxy.cli.init_servers import read_servers
from ironcurtain_proxy.config.clients.entries import ADDRESSES
from ironcurtain_proxy.config.clients.finding import ClientFile, FoundClients
from ironcurtain_proxy.config.clients.plan import FileChange, MovingServer
from ironcurtain_proxy.config.clients.text_format import table_at
from ironcurtain_proxy.config.servers.recognition import PackNeeds, needs_of, recognised_pack
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.downstream.process import NOT_FOUND
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json, list_of, object_of
from ironcurtain_proxy.sandbox.installed import NotInstalled, installation_of, is_confined, look_up
from ironcurtain_proxy.sandbox.wanted import folder_for, opened_for, refused_writes
from ironcurtain_proxy.shell.launchers import container_image

if TYPE_CHECKING:
    from ironcurtain_proxy.config.annotating.texts import ReadServer

_ROUNDS: Final = 3
"""The most starts of one server: it may want one folder after another."""
_MOST_LOG: Final = 1 << 20
"""Bytes of the session log that are searched."""

Entries: TypeAlias = dict[str, dict[str, Json]]


class Failure(Struct, frozen=True, kw_only=True):
    """The reason why a server stays outside of the proxy, and what helps."""

    why: str
    remedy: str


def known_needs(entry: Mapping[str, Json]) -> PackNeeds:
    """Return what the server of an entry needs of its sandbox, as its pack says."""
    command, args = entry.get("command"), entry.get("args")
    words = [str(one) for one in args] if isinstance(args, list) else []
    return needs_of(recognised_pack(command, words) if isinstance(command, str) else None)


_PORTS: Final[Mapping[str, int]] = {
    "http": 80, "https": 443, "postgres": 5432, "postgresql": 5432, "mysql": 3306, "mariadb": 3306,
    "redis": 6379, "rediss": 6379, "mongodb": 27017, "amqp": 5672, "bolt": 7687, "neo4j": 7687,
}  # fmt: skip
_NEAR: Final = frozenset({"localhost", "127.0.0.1"})


def near_services(entry: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the services of this machine that an entry's addresses name, as `127.0.0.1:5432`.

    An address is a whole argument, a whole variable, or the value of an option (`--url=…`).
    """
    args, env = entry.get("args"), entry.get("env")
    texts = [
        *(args if isinstance(args, list) else ()),
        *(env.values() if isinstance(env, dict) else ()),
    ]
    found: list[str] = []
    for text in texts:
        if not isinstance(text, str) or "://" not in text:
            continue
        before = text.partition("://")[0]
        try:
            parts = urlsplit(text[before.rfind("=") + 1 :])
            port = parts.port or _PORTS.get(parts.scheme)
        except ValueError:
            continue
        if parts.hostname in _NEAR and port is not None:
            found.append(f"127.0.0.1:{port}")
    return tuple(dict.fromkeys(found))


def opens_network(entry: Mapping[str, Json]) -> bool:
    """Return whether an entry itself says which hosts its server reaches."""
    sandbox = entry.get("sandbox")
    return sandbox is False or (isinstance(sandbox, dict) and "network" in sandbox)


def read_with_wants(
    talk: Dialogue,
    entries: Entries,
    settings_of: Callable[[Entries], Settings],
    comparable: Collection[str],
    seconds: float,
) -> "tuple[Settings, list[ReadServer], dict[str, Failure]]":
    """Read the servers' tools. What a server wants for itself goes into its entry, and is told.

    Args:
        talk: with the person.
        entries: the servers behind the proxy; changed in place.
        settings_of: gives the settings that start the servers of entries.
        comparable: the servers of the user's own files, which a client starts without a sandbox.
        seconds: the limit for each round.
    """
    settings = settings_of(entries)
    read = {one.name: one for one in read_servers(settings, seconds)}
    words = {name: words_of(settings, name) for name, server in read.items() if server.error}
    confined = _confined(settings)
    for _ in range(_ROUNDS):
        again = [
            name
            for name, server in read.items()
            if server.error
            and name in confined
            and _gave_folders(talk, entries, str(settings.home), (name, words[name]))
        ]
        if not again:
            break
        settings = settings_of(entries)
        read |= {one.name: one for one in read_servers(_only(settings, again), seconds)}
        words |= {name: words_of(settings, name) for name in again}
    silent = {spec.name: spec for spec in settings.servers if read[spec.name].error}
    said = {
        name: _why_inside(settings, read[name], words[name]) if name in confined else None
        for name in silent
    }
    outside = _starting_outside(
        talk,
        settings,
        [
            spec
            for name, spec in silent.items()
            if said[name] is None and name in confined and name in comparable
            # On a full disk the sandbox is not what stops it.
            and spec.sandbox is None and " left free in " not in read[name].error
            and NOT_FOUND not in read[name].error
        ],
        seconds,
    )  # fmt: skip
    failures: dict[str, Failure] = {}
    for name, spec in silent.items():
        is_unknown = name in confined and name not in comparable
        why = said[name] or (_only_outside(read[name]) if name in outside else None)
        failures[name] = why or _failure(spec, read[name], may_start_outside=is_unknown)
    return settings, [*read.values()], failures


def _failure(spec: ServerSpec, server: "ReadServer", *, may_start_outside: bool) -> Failure:
    words = _shortened(server)
    if may_start_outside:
        return Failure(
            why=f"it does not start in its sandbox: {words}",
            remedy="start its command in a terminal. If it starts there, add to its entry what its "
            "sandbox must open (docs/sandbox.md); init tries no server of a project's file without",
        )
    if spec.remote is not None:
        return Failure(why=f"its url: {words}", remedy="run init again when it can be reached")
    advice = needs_of(recognised_pack(spec.command, spec.args)).advice
    start = "start its command in a terminal, and run init again when it starts"
    remedy = f"{advice} Then run init again" if advice else start
    if NOT_FOUND in words:
        first = "correct its path" if "/" in spec.command else f"install {spec.command}"
        remedy = f"{first}, and run init again"
    if " left free in " in words:
        remedy = "make space on that disk, and run init again"
    return Failure(why=f"it does not start: {words}", remedy=remedy)


def not_installed(fault: str, command: str) -> Failure:
    """Return why a server stays whose package could not be installed."""
    why = f"its package is not installed: {fault}"
    program = fault.removesuffix(" was not found")
    first = "" if program == fault else f"install {program}, "
    return Failure(why=why, remedy=f"{first}run `{command}`, and init again")


def _only(settings: Settings, names: Collection[str]) -> Settings:
    return replace(settings, servers=tuple([one for one in settings.servers if one.name in names]))


def _confined(settings: Settings) -> frozenset[str]:
    # Joins all folders: long to import.
    from ironcurtain_proxy.wiring.confinement import confined_servers  # noqa: PLC0415

    found = confined_servers(settings, os.environ, lambda _text: None)
    return frozenset([name for name, is_confined in found.items() if is_confined])


def _gave_folders(talk: Dialogue, entries: Entries, home: str, said: tuple[str, str]) -> bool:
    """Return whether a server wants folders that it does not have yet; they are now in its entry.

    Args:
        talk: with the person.
        entries: changed in place.
        home: the home directory.
        said: the server, and its words.
    """
    name, words = said
    found = [folder_for(one, home) for one in refused_writes(words)]
    entry = entries[name]
    changed = opened_for(entry, private=dict.fromkeys([one for one in found if one is not None]))
    if changed == entry:
        return False
    entries[name] = changed
    folders = ", ".join(dict.fromkeys([one for one in found if one is not None]))
    talk.say(f"{clean(name)} keeps files in {clean(folders)}: it gets a folder of its own there")
    return True


def words_of(settings: Settings, name: str) -> str:
    """Return what a server wrote to its standard error, by the session log."""
    try:
        with settings.session_log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_LOG))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    mark = f"[{name}] "
    return "\n".join([one[len(mark) :] for one in text.splitlines() if one.startswith(mark)])


def _why_inside(settings: Settings, server: "ReadServer", words: str) -> Failure | None:
    """Return what the sandbox kept a server from, in its own words, or None if unsaid."""
    paths = [one.path for one in refused_writes(words)]
    if paths:
        place = paths[-1].rpartition("/")[0] or "/"
        setting = f'"sandbox": {{"filesystem": {{"allowWrite": ["{place}"]}}}}'
        remedy = f"add {setting} to its entry, if it may write there, and run init again"
        if settings.home.is_relative_to(place):
            remedy = "have it keep that elsewhere: nothing opens the home directory itself to it"
        return Failure(
            why=f"it does not start in its sandbox, which does not let it write {paths[-1]}",
            remedy=remedy,
        )
    if server.hosts:
        named = ", ".join(f'"{host}"' for host in server.hosts)
        setting = f'"sandbox": {{"network": {{"allowedDomains": [{named}]}}}}'
        return Failure(
            why=f"it does not start in its sandbox, which does not let it reach {named}",
            remedy=f"add {setting} to its entry, if it may reach this, and run init again",
        )
    return None


def _starting_outside(
    talk: Dialogue, settings: Settings, silent: Sequence[ServerSpec], seconds: float
) -> frozenset[str]:
    """Ask, and return which of these servers would start without their sandboxes."""
    if not silent:
        return frozenset()
    names = ", ".join(clean(spec.name) for spec in silent)
    them, whose = ("it", "its sandbox") if len(silent) == 1 else ("them", "their sandboxes")
    question = f"{names} did not start in {whose}. Start {them} once without, to compare?"
    if talk.ask(question) == "n":
        return frozenset()
    alone = tuple([replace(spec, sandbox=False) for spec in silent])
    found = read_servers(replace(settings, servers=alone), seconds)
    return frozenset([one.name for one in found if not one.error])


def _only_outside(server: "ReadServer") -> Failure:
    return Failure(
        why=f"it starts outside a sandbox, and not in one: {_shortened(server)}",
        remedy='add "sandbox": false to its entry if you trust it, and run init again: then the '
        "policy alone holds it",
    )


def _shortened(server: "ReadServer") -> str:
    """Return a server's error without its name, its secrets, and the place of the log."""
    text = server.error.removeprefix(f'server "{server.name}" ').partition(" (log: ")[0]
    text = text.removeprefix("ended: ")
    return clean(redact_text(text), 240)


# --- what init shows ------------------------------------------------------------------------------
# The findings of `init`, as text and as JSON.
_SHORTEST_SECRET: Final = 6


class Surroundings(Struct, frozen=True):
    """What is told of servers besides their entries, by their names behind the proxy."""

    unconfined: Mapping[str, str]
    """Why a server runs in no sandbox, and what helps."""
    needs: Mapping[str, PackNeeds]
    """What a known server needs of its sandbox."""


def found_lines(
    found: FoundClients, moving: Sequence[MovingServer], around: Surroundings, home: Path
) -> Iterator[str]:
    """Yield a paragraph for each file: which servers move behind the proxy, and which stay."""
    for file in found.files:
        here = [one for one in moving if one.file is file]
        left = [one for table in file.tables for one in table.left]
        ours = any(table.ours for table in file.tables)
        if not here and not left and not ours:
            continue
        yield ""
        yield f"{file.client.name}  {short(file.path, home)}"
        if ours:
            yield "  starts the proxy already"
        for one in here:
            yield from _server_lines(one, around)
        for stays in left:
            yield f"  {clean(stays.name)}: stays as it is: {clean(stays.why)}"
    for unusable in found.unusable:
        yield ""
        yield f"{short(unusable.path, home)}: {clean(unusable.why, 300)}: stays as it is"


def _server_lines(moving: MovingServer, around: Surroundings) -> Iterator[str]:
    entry = moving.taken.entry
    renamed = "" if moving.name == moving.taken.name else f" (as {clean(moving.name)})"
    yield f"  {clean(moving.taken.name)}{renamed}: {clean(_place(entry))}"
    names = [*object_of(entry.get("env", entry.get("headers")))]
    if names:
        what = "headers" if "url" in entry else "variables"
        yield f"    its {what} move to the proxy's own file: {clean(', '.join(names))}"
    if kept := moving.taken.open_variables:
        yield f"    {clean(', '.join(kept))} still comes from {moving.file.client.name}"
    if moving.taken.unused:
        yield f"    ignored: {clean(', '.join(moving.taken.unused))}"
    if "sandbox" in entry:
        yield f"    its sandbox, as you wrote it: {clean(orjson.dumps(entry['sandbox']).decode())}"
    yield from _network_lines(moving, around)
    if remedy := around.unconfined.get(moving.name):
        yield f"    {clean(remedy, 300)}"


def _network_lines(moving: MovingServer, around: Surroundings) -> Iterator[str]:
    entry = moving.taken.entry
    needs = around.needs.get(moving.name, PackNeeds())
    is_closed = opens_network(entry) or moving.file.is_project
    if needs.hosts and moving.file.is_project and not opens_network(entry):
        hosts = ", ".join(needs.hosts)
        yield f"    {hosts}, where all its work goes, is closed to it: its file is the project's."
        yield "    A reviewer can open it with the first call"
    if needs.hosts and not is_closed:
        yield f"    its sandbox lets it reach {', '.join(needs.hosts)}, where all its work goes"
    near = "" if is_closed else ", ".join(near_services(entry))
    if near:
        yield f"    its sandbox lets it reach {near} on this machine, as its address says"
    if needs.advice and not near and "sandbox" not in entry:
        yield from wrap(needs.advice, 96, initial_indent="    ", subsequent_indent="    ")


def _place(entry: Mapping[str, Json]) -> str:
    """Return a server's command line, or its address without the query, which may hold a secret."""
    if "url" in entry:
        address = str(entry["url"])
        return address.partition("?")[0] + ("?…" if "?" in address else "") + "  (over the network)"
    words = [str(one) for one in list_of(entry.get("args"))]
    return shlex.join([str(entry["command"]), *masked_arguments(words)])


def unconfined(settings: Settings) -> dict[str, str]:
    """Return the servers that cannot start in a sandbox as they are, each with what helps."""
    machine = own_machine(settings)
    found: dict[str, str] = {}
    for spec in settings.servers:
        if spec.remote is not None:
            continue
        image = container_image(spec.command, spec.args)
        if image is not None:
            found[spec.name] = f"runs in a container of {image}, in no sandbox of the proxy"
        elif isinstance(look_up(spec, machine), NotInstalled):
            held = "does not start in its" if is_confined(spec) else "runs without a"
            found[spec.name] = f"{held} sandbox until it is installed: {installation_of(spec)}"
    return found


def installations(settings: Settings, failed: Collection[str]) -> list[str]:
    """Return the commands that install servers, so that a sandbox can hold them.

    Args:
        settings: with the servers.
        failed: servers that did not start. Their packages may not exist, and one that does not
            exist fails the installation of all.
    """
    machine = own_machine(settings)
    return [
        installation_of(spec)
        for spec in settings.servers
        if spec.remote is None
        and spec.name not in failed
        and isinstance(look_up(spec, machine), NotInstalled)
    ]


def diff_lines(change: FileChange, home: Path) -> Iterator[str]:
    """Yield the change of a file as a unified diff, without the values of variables."""
    name = short(change.file.path, home)
    secrets = sorted(_secrets(change.file), key=len, reverse=True)
    before, after = change.file.text.splitlines(), change.after.splitlines()
    for line in difflib.unified_diff(
        before, after, name, f"{name} (behind the proxy)", lineterm=""
    ):
        hidden = line
        for secret in secrets:
            hidden = hidden.replace(secret, MASK)
        yield clean(hidden, 500)


def _secrets(file: ClientFile) -> set[str]:
    """Return the values of variables, headers and settings, and secrets of arguments."""
    document = file.form.parse(file.text)
    entries = [
        one for table in file.tables for one in (table_at(document, table.place) or {}).values()
    ]
    tables = [one for entry in entries if isinstance(entry, dict) for one in entry.values()]
    found = {text for one in tables if isinstance(one, dict) for text in _texts(one)}
    found |= {
        text.partition("?")[2]
        for entry in entries
        if isinstance(entry, dict)
        for key in ADDRESSES
        if isinstance(text := entry.get(key), str)
    }
    found |= {
        text
        for entry in entries
        if isinstance(entry, dict) and isinstance(args := entry.get("args"), list)
        for text in _masked_in([str(one) for one in args])
    }
    long = {text for text in found if len(text) >= _SHORTEST_SECRET}
    return long | {orjson.dumps(text).decode()[1:-1] for text in long}


def _masked_in(words: list[str]) -> Iterator[str]:
    """Yield what `masked_arguments` changes of arguments, from where it begins to differ."""
    for word, masked in zip(words, masked_arguments(words), strict=True):
        differs = [
            at for at, (one, other) in enumerate(zip(word, masked, strict=False)) if one != other
        ]
        if word != masked:
            yield word[differs[0] if differs else 0 :]


def _texts(value: Json) -> Iterator[str]:
    match value:
        case dict():
            # In our own entry that variable has the names of servers.
            for one in {**value, "SERVER_FILTER": None}.values():
                yield from _texts(one)
        case list():
            for one in value:
                yield from _texts(one)
        case str():
            yield value
        case _:
            pass


def found_json(found: FoundClients, moving: Sequence[MovingServer]) -> Json:
    """Return the findings of `found_lines` as JSON."""
    files: list[Json] = [_file_json(file, moving) for file in found.files]
    unusable: list[Json] = [{"file": str(one.path), "why": one.why} for one in found.unusable]
    return files + unusable


def _file_json(file: ClientFile, moving: Sequence[MovingServer]) -> Json:
    here = [one for one in moving if one.file is file]
    return {
        "client": file.client.id,
        "file": str(file.path),
        "servers": [{"name": one.taken.name, "behind": one.name} for one in here],
        "left": [{"name": one.name, "why": one.why} for table in file.tables for one in table.left],
        "startsProxy": any(table.ours for table in file.tables),
    }


def short(path: Path, home: Path) -> str:
    """Return a path with `~` for the home directory."""
    text = str(path)
    return f"~{text.removeprefix(str(home))}" if text.startswith(f"{home}{os.sep}") else text
