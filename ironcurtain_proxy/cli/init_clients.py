"""The set-up of the MCP clients on this machine.

Not a command itself. The order is what makes an interruption harmless: the proxy's own files are
whole before a client's file names the proxy, and each client's file is replaced in one step, with a
copy and a record that were written before.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
from msgspec.structs import replace

from ironcurtain_proxy.cli.init_after import look_after
from ironcurtain_proxy.cli.init_dialogue import Dialogue, clean, require_terminal
from ironcurtain_proxy.cli.init_files import digests, planned_files, write_files
from ironcurtain_proxy.cli.init_installing import install_packages, own_machine
from ironcurtain_proxy.cli.init_logins import wanting_login, with_logins
from ironcurtain_proxy.cli.init_servers import (
    lasting_entries,
    read_servers,
    settings_for,
    summed_up,
)
from ironcurtain_proxy.cli.init_showing import (
    diff_lines,
    found_json,
    found_lines,
    installations,
    short,
    unconfined,
)
from ironcurtain_proxy.cli.output import counted
from ironcurtain_proxy.config.clients.finding import ClientFile, FoundClients, find
from ironcurtain_proxy.config.clients.own_command import own_command
from ironcurtain_proxy.config.clients.plan import (
    FileChange,
    MovingServer,
    OwnStart,
    changes,
    credentials,
    movings,
    origin_of,
    servers_behind_proxy,
    startable,
)
from ironcurtain_proxy.config.clients.undo_record import (
    UndoRecord,
    change,
    only_one,
    read_undo_record,
    write_undo_record,
)
from ironcurtain_proxy.config.extras import missing
from ironcurtain_proxy.config.presets.preset import PresetName, preset
from ironcurtain_proxy.config.reading.layers import CONFIG_NAME
from ironcurtain_proxy.config.reading.operator_paths import STATE_DIRECTORY
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.config.servers.client_file import read_client_file
from ironcurtain_proxy.config.servers.server_choice import SERVERS_NAME
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.own_process.clocks import SystemClock

if TYPE_CHECKING:
    from ironcurtain_proxy.config.annotating.read_tool import ReadServer

_NOTHING: Final = (
    "no server to protect was found: the known clients have none here that the proxy can start. "
    "Name a client's file with --from"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupOptions:
    """The options of the command line."""

    preset: PresetName
    home: Path
    workspace: Path
    why_workspace: str
    given: tuple[Path, ...]
    seconds: float
    force: bool
    dry_run: bool

    @property
    def state(self) -> Path:
        """The proxy's state directory."""
        return self.home / STATE_DIRECTORY


def set_up(talk: Dialogue, wish: SetupOptions) -> int:
    """Find the clients, ask, read the servers and write. 1 if the work is incomplete.

    Raises:
        ConfigurationError: something cannot be used, and nothing was changed.
    """
    talk.say(f"workspace  {short(wish.workspace, wish.home)}  ({wish.why_workspace})")
    found = find(wish.home, wish.workspace, os.environ, wish.given)
    present = _present(wish.state)
    origins = read_undo_record(wish.state).origins
    moving = _reachable(talk, movings(found.files, present, origins))
    _show(talk, wish, found, moving, present)
    if not moving:
        return _nothing(talk, found)
    start = _start(wish)
    if wish.dry_run:
        return _dry_run(talk, wish, moving, start)
    require_terminal(talk)
    chosen = [id(file) for file in _chosen(talk, wish, moving)]
    moving = [one for one in moving if id(one.file) in chosen]
    if not moving or talk.ask(f"{_beginning(moving)} now, to read the tools?") == "n":
        talk.say("nothing was changed")
        return talk.end(1)
    return _carry_out(talk, wish, moving, present, start)


def _carry_out(
    talk: Dialogue,
    wish: SetupOptions,
    moving: Sequence[MovingServer],
    present: Mapping[str, Mapping[str, Json]],
    start: OwnStart,
) -> int:
    entries = servers_behind_proxy(moving, present)
    secrets = credentials(moving, os.environ)
    settings = settings_for(startable(moving, entries, os.environ), wish.workspace, secrets)
    install_packages(talk, settings, own_machine(settings), wish.seconds)
    talk.say(
        f"\nreading the tools of {counted(len(entries), 'server')} (up to {wish.seconds:g} s) …"
    )
    servers = with_logins(talk, settings, read_servers(settings, wish.seconds), wish.seconds)
    later = wanting_login(settings, servers)
    silent = {one.name for one in servers if one.error} - present.keys() - {*later}
    for line in summed_up(servers, preset(wish.preset)):
        talk.say(f"  {clean(line, 200)}")
    for name in sorted(silent):
        talk.say(f"{clean(name)} stays where it is: run init again when it starts")
    answering = [one for one in servers if one.name not in silent]
    lasting = lasting_entries(entries, settings, servers, wish.workspace)
    kept = {name: entry for name, entry in lasting.items() if name not in silent}
    changed, refused = changes(moving, start, silent)
    for file, why in refused:
        talk.say(f"{short(file.path, wish.home)}: {clean(why)}: stays unchanged")
    if not changed:
        talk.say("nothing was changed")
        return talk.end(1)
    if not _agreed(talk, wish, changed):
        talk.say("nothing was changed")
        return talk.end(1)
    origins = {one.name: origin_of(one.taken.entry) for one in moving if one.name not in silent}
    if not _write(talk, wish, answering, kept, changed, origins):
        return talk.end(1)
    is_right = look_after(talk, secrets, installations(settings))
    for name in later:
        talk.say(f"{clean(name)} wants a login: run `ironcurtain-proxy login {clean(name)}`, then "
                 f"`ironcurtain-proxy annotate {clean(name)}`")  # fmt: skip
    _last_words(talk, changed)
    return talk.end(int(bool(silent) or bool(refused) or bool(later) or not is_right))


def _reachable(talk: Dialogue, moving: Sequence[MovingServer]) -> list[MovingServer]:
    """The servers that the installed libraries can start or reach. Prints the others."""
    lack = missing("http", "a server with a url")
    far = [one for one in moving if "url" in one.taken.entry]
    for one in far if lack else ():
        talk.say(f"{clean(one.name)} stays unchanged: {lack}")
    return [one for one in moving if not lack or one not in far]


def _beginning(moving: Sequence[MovingServer]) -> str:
    """The step that reads the tools, in words: `Start 2 servers and connect to 1`."""
    far = {one.name for one in moving if "url" in one.taken.entry}
    near = {one.name for one in moving} - far
    said = [f"start {counted(len(near), 'server')}"] if near else []
    said += [f"connect to {', '.join(clean(name) for name in sorted(far))}"] if far else []
    text = " and ".join(said)
    return text[:1].upper() + text[1:]


def _present(state: Path) -> dict[str, dict[str, Json]]:
    """The servers that are behind the proxy already."""
    file = state / SERVERS_NAME
    if not file.exists():
        return {}
    report = Report()
    client = read_client_file(file, report)
    report.raise_errors()
    return client.entries


def _start(wish: SetupOptions) -> OwnStart:
    command, args = own_command(os.environ)
    configured = _workspace_of(wish.state / CONFIG_NAME)
    other = configured is not None and Path(configured).resolve() != wish.workspace
    return OwnStart(
        command=command, args=tuple(args), workspace=str(wish.workspace) if other else None
    )


def _workspace_of(config: Path) -> str | None:
    try:
        found = orjson.loads(config.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    named = found.get("allowedDirectory") if isinstance(found, dict) else None
    return named if isinstance(named, str) else None


def _show(
    talk: Dialogue,
    wish: SetupOptions,
    found: FoundClients,
    moving: Sequence[MovingServer],
    present: Mapping[str, Mapping[str, Json]],
) -> None:
    entries = startable(moving, servers_behind_proxy(moving, present), os.environ)
    open_ones = unconfined(settings_for(entries, wish.workspace)) if moving else {}
    for line in found_lines(found, moving, open_ones, wish.home):
        talk.say(line)
    talk.say()
    talk.answer |= {"workspace": str(wish.workspace), "found": found_json(found, moving)}


def _nothing(talk: Dialogue, found: FoundClients) -> int:
    if any(table.ours for file in found.files for table in file.tables):
        talk.say("nothing to do: every server that the proxy can start is behind it already")
        return talk.end(0)
    if talk.as_json:
        return talk.end(1)
    raise ConfigurationError(_NOTHING)


def _dry_run(
    talk: Dialogue, wish: SetupOptions, moving: Sequence[MovingServer], start: OwnStart
) -> int:
    changed, refused = changes(moving, start)
    for one in changed:
        for line in diff_lines(one, wish.home):
            talk.say(line)
    for file, why in refused:
        talk.say(f"{short(file.path, wish.home)}: {clean(why)}: would stay unchanged")
    talk.say(f"\nwould {_beginning(moving).lower()} to read the "
             f"tools, and write below {short(wish.state, wish.home)}; nothing was started or "
             "changed")  # fmt: skip
    talk.answer["diffs"] = {
        str(one.file.path): "\n".join(diff_lines(one, wish.home)) for one in changed
    }
    return talk.end(0)


def _chosen(talk: Dialogue, wish: SetupOptions, moving: Sequence[MovingServer]) -> list[ClientFile]:
    files = {id(one.file): one.file for one in moving}
    chosen: list[ClientFile] = []
    for key, file in files.items():
        count = counted(sum(id(one.file) == key for one in moving), "server")
        where = f"{file.client.name}, {short(file.path, wish.home)}"
        if talk.ask(f"Put {count} of {where} behind the proxy?") == "y":
            chosen.append(file)
    return chosen


def _agreed(talk: Dialogue, wish: SetupOptions, changed: Sequence[FileChange]) -> bool:
    names = ", ".join(short(one.file.path, wish.home) for one in changed)
    question = (
        f"\nWrite {short(wish.state, wish.home)} and change {names}? (d shows the difference)"
    )
    while (answer := talk.ask(question, ("y", "n", "d"))) == "d":
        for one in changed:
            for line in diff_lines(one, wish.home):
                talk.say(line)
    return answer == "y"


def _write(
    talk: Dialogue,
    wish: SetupOptions,
    servers: Sequence["ReadServer"],
    entries: Mapping[str, Json],
    changed: Sequence[FileChange],
    origins: Mapping[str, str],
) -> bool:
    """Write our own files, then change the clients'. False: nothing, or not everything, is done."""
    configured = _workspace_of(wish.state / CONFIG_NAME)
    workspace = wish.workspace if configured is None else Path(configured)
    files = planned_files(wish.state, preset(wish.preset), servers, entries, workspace)
    with only_one(wish.state):
        journal = read_undo_record(wish.state)
        if not write_files(files, talk.say, force=wish.force, own=journal.written):
            return False
        named = {**origins, **journal.origins}
        journal = replace(journal, written=digests(files, journal.written), origins=named)
        try:
            write_undo_record(wish.state, journal)
            done = _change_files(talk, wish, journal, changed)
        except KeyboardInterrupt:
            talk.say("stopped: `ironcurtain-proxy init --undo` restores the changed files")
            raise
        except OSError as error:
            raise ConfigurationError(
                f"{error.filename or wish.state}: cannot be written: {error.strerror}; "
                "`ironcurtain-proxy init --undo` restores the changed files"
            ) from None
    talk.answer["changed"] = done
    return len(done) == len(changed)


def _change_files(
    talk: Dialogue, wish: SetupOptions, journal: UndoRecord, changed: Sequence[FileChange]
) -> list[Json]:
    done: list[Json] = []
    for one in changed:
        path = one.file.path
        try:
            journal = change(wish.state, journal, one, SystemClock().now())
        except OSError as error:
            talk.say(f"{path}: not changed: {error.strerror}")
            continue
        talk.say(f"{path}: {counted(len(one.servers), 'server')} behind the proxy")
        if one.file.is_project and (wish.workspace / ".git").exists():
            talk.say("  this file may be shared by a repository: the change names paths of this "
                     "machine")  # fmt: skip
        done.append({"file": str(path), "client": one.file.client.id, "servers": [*one.servers]})
    return done


def _last_words(talk: Dialogue, changed: Sequence[FileChange]) -> None:
    clients = ", ".join(dict.fromkeys(one.file.client.name for one in changed))
    talk.say(f"\nRestart {clients}: from then on every tool call passes the proxy.")
    talk.say("Run `ironcurtain-proxy review` in a terminal: it asks you what the policy leaves "
             "open. (`ironcurtain-proxy init --undo` takes everything back.)")  # fmt: skip
