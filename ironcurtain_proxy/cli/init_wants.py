"""Servers that fail inside their sandbox, and what they want of it. Not a command itself.

A server that keeps its settings or a cache in a folder of the home directory ends at once where it
may not write there. It gets that folder for itself, and is started again. What else it says that it
was refused is shown with the setting that would open it: a person decides on that.
"""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from ironcurtain_proxy.audit.redaction import redact_text
from ironcurtain_proxy.cli.init_dialogue import Dialogue, clean
from ironcurtain_proxy.cli.init_servers import read_servers
from ironcurtain_proxy.config.packs.pack import PackNeeds, needs_of
from ironcurtain_proxy.config.servers.recognition import recognised_pack
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.sandbox.wanted import folder_for, opened_for, refused_writes

if TYPE_CHECKING:
    from ironcurtain_proxy.config.annotating.read_tool import ReadServer

_ROUNDS: Final = 3
"""The most starts of one server: it may want one folder after another."""
_MOST_LOG: Final = 1 << 20
"""Bytes of the session log that are searched."""

Entries: TypeAlias = dict[str, dict[str, Json]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The reason why a server stays outside of the proxy, and what helps."""

    why: str
    remedy: str


def known_needs(entry: Mapping[str, Json]) -> PackNeeds:
    """What the server of an entry needs of its sandbox, as its pack says."""
    command, args = entry.get("command"), entry.get("args")
    words = [str(one) for one in args] if isinstance(args, list) else []
    return needs_of(recognised_pack(command, words) if isinstance(command, str) else None)


def opens_network(entry: Mapping[str, Json]) -> bool:
    """Whether an entry itself says which hosts its server reaches."""
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
    failures: dict[str, Failure] = {}
    for spec in settings.servers:
        server = read[spec.name]
        if not server.error:
            continue
        why = _why_inside(settings, server, words[spec.name]) if spec.name in confined else None
        if why is None and spec.name in confined and spec.name in comparable:
            why = _why_not_outside(talk, settings, spec, server, seconds)
        failures[spec.name] = why or Failure(
            why=f"it does not start: {_shortened(server)}",
            remedy="start its command in a terminal, and run init again when it starts",
        )
    return settings, [*read.values()], failures


def _only(settings: Settings, names: Collection[str]) -> Settings:
    return replace(settings, servers=tuple([one for one in settings.servers if one.name in names]))


def _confined(settings: Settings) -> frozenset[str]:
    # Joins all folders: long to import.
    from ironcurtain_proxy.wiring.confinement import confined_servers  # noqa: PLC0415

    found = confined_servers(settings, os.environ, lambda _text: None)
    return frozenset([name for name, is_confined in found.items() if is_confined])


def _gave_folders(talk: Dialogue, entries: Entries, home: str, said: tuple[str, str]) -> bool:
    """Whether a server wants folders that it does not have yet; they are now in its entry.

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
    """Return what a server wrote to its standard error, by the session log; empty: nothing."""
    try:
        with settings.session_log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_LOG))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    mark = f"[{name}] "
    return "\n".join([one[len(mark) :] for one in text.splitlines() if one.startswith(mark)])


def _why_inside(settings: Settings, server: "ReadServer", words: str) -> Failure | None:
    """What the sandbox of a server kept it from, in its own words; None: it does not say."""
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


def _why_not_outside(
    talk: Dialogue, settings: Settings, spec: ServerSpec, server: "ReadServer", seconds: float
) -> Failure | None:
    """Whether a server that says nothing would start without its sandbox; None: it would not."""
    question = (
        f"{clean(spec.name)} did not start in its sandbox. Start it once without, to compare?"
    )
    if spec.sandbox is not None or talk.ask(question) == "n":
        return None
    if not _starts_outside(settings, spec, seconds):
        return None
    return Failure(
        why=f"it starts outside a sandbox, and not in one: {_shortened(server)}",
        remedy='add "sandbox": false to its entry if you trust it, and run init again: then the '
        "policy alone holds it",
    )


def _starts_outside(settings: Settings, spec: ServerSpec, seconds: float) -> bool:
    alone = replace(settings, servers=(replace(spec, sandbox=False),))
    (found,) = read_servers(alone, seconds)
    return not found.error


def _shortened(server: "ReadServer") -> str:
    """A server's error without its name, its secrets, and the place of the log."""
    text = server.error.removeprefix(f'server "{server.name}" ').partition(" (log: ")[0]
    return clean(redact_text(text), 240)
