"""The set-up of the MCP clients on this machine.

Not a command itself. The order is what makes an interruption harmless: the proxy's own files are
whole before a client's file names the proxy, and each client's file is replaced in one step, with a
copy and a record that were written before.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.cli.init_dialogue import (
    Dialogue,
    clean,
    digests,
    install_packages,
    own_machine,
    planned_files,
    require_terminal,
    write_files,
)
from ironcurtain_proxy.cli.init_ending import (
    InitEnding,
    Outcome,
    look_after,
    say_ending,
    wanting_login,
    with_logins,
)
from ironcurtain_proxy.cli.init_servers import (
    OwnShell,
    OwnShellWish,
    grounded,
    lasting_entries,
    offered,
    own_shell,
    path_to,
    said,
    settings_for,
    shells_known,
    shells_read,
    summed_up,
    with_own_shell,
)
from ironcurtain_proxy.cli.init_wants import (
    Failure,
    Surroundings,
    diff_lines,
    found_json,
    found_lines,
    installations,
    known_needs,
    near_services,
    not_installed,
    opens_network,
    read_with_wants,
    short,
    unconfined,
)
from ironcurtain_proxy.cli.output import counted
from ironcurtain_proxy.config.clients.entries import own_command
from ironcurtain_proxy.config.clients.finding import (
    ClientFile,
    FoundClients,
    find,
    read_client_file,
)
from ironcurtain_proxy.config.clients.plan import (
    FileChange,
    MovingServer,
    OwnStart,
    UndoRecord,
    change,
    changes,
    credentials,
    movings,
    only_one,
    origin_of,
    read_undo_record,
    servers_behind_proxy,
    startable,
    write_undo_record,
)
from ironcurtain_proxy.config.migration import why_not_exchanged
from ironcurtain_proxy.config.presets import PresetName, preset
from ironcurtain_proxy.config.reading.document import strictly
from ironcurtain_proxy.config.reading.layers import CONFIG_NAME, STATE_DIRECTORY
from ironcurtain_proxy.config.servers.servers_file import SERVERS_NAME
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.sandbox.probe import NEEDED_PROGRAMS
from ironcurtain_proxy.sandbox.wanted import opened_for

if TYPE_CHECKING:
    from ironcurtain_proxy.config.annotating.texts import ReadServer

_NOTHING: Final = (
    "no server to protect was found: no file that was read has one that the proxy can start. "
    "Name a client's file with --from"
)


class NoServerFoundError(ConfigurationError):
    """No known client has a server that the proxy can start."""

    def __init__(self, message: str, *, leaves_some: bool = False) -> None:
        """Say whether a server stays that is not behind the proxy."""
        super().__init__(message)
        self.leaves_some = leaves_some


class SetupOptions(Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    preset: PresetName
    own_shell: OwnShellWish | None
    """Where our own shell goes, or None if the person is asked."""
    home: Path
    workspace: Path
    why_workspace: str
    given: tuple[Path, ...]
    seconds: float
    force: bool
    dry_run: bool
    hooked: tuple[Path, ...] = ()
    """The clients' files that hooks are offered for."""

    @property
    def state(self) -> Path:
        """The proxy's state directory."""
        return self.home / STATE_DIRECTORY


def set_up(talk: Dialogue, wish: SetupOptions) -> int:
    """Find the clients, ask, read the servers and write. Return 1 if the work is incomplete.

    Raises:
        ConfigurationError: something cannot be used, and nothing was changed.
    """
    talk.say(f"workspace  {short(wish.workspace, wish.home)}  ({wish.why_workspace})")
    found = find(wish.home, wish.workspace, os.environ, wish.given)
    outcome = Outcome(found)
    present = _present(wish.state)
    origins = read_undo_record(wish.state).origins
    every = movings(found.files, present, origins)
    moving = _changeable(talk, wish, every, outcome)
    _show(talk, wish, found, moving, present)
    if not moving:
        return _nothing(talk, outcome, every)
    start = _start(wish)
    if wish.dry_run:
        return _dry_run(talk, wish, moving, start, present)
    require_terminal(talk)
    chosen = [id(file) for file in _chosen(talk, wish, moving)]
    moving = [one for one in moving if id(one.file) in chosen]
    question = f"{_beginning(moving)} now, to read the tools?"
    if not moving or talk.ask(question, is_step=True) == "n":
        talk.say("nothing was changed: no server is protected")
        return talk.end(1)
    # Of two at once the second would find the files changed, and take that for a failure.
    with only_one(wish.state):
        return _carry_out(talk, wish, moving, _Findings(present, start, outcome, every))


class _Findings(Struct, frozen=True):
    """What was found before the person agreed."""

    present: Mapping[str, Mapping[str, Json]]
    """The servers that are behind the proxy already."""
    start: OwnStart
    outcome: Outcome
    every: Sequence[MovingServer]
    """Every server that could move."""


def _carry_out(
    talk: Dialogue, wish: SetupOptions, moving: Sequence[MovingServer], found: _Findings
) -> int:
    present, outcome = found.present, found.outcome
    secrets = credentials(moving, os.environ)

    def settings_of(entries: Mapping[str, dict[str, Json]]) -> Settings:
        return settings_for(startable(moving, entries, os.environ), wish.workspace, secrets)

    entries = _entries(wish, moving, present)
    before = settings_of(entries)
    faults = install_packages(talk, before, own_machine(before), wish.seconds)
    talk.say(
        f"\nreading the tools of {counted(len(entries), 'server')} (up to {wish.seconds:g} s) …"
    )
    own = {one.name for one in moving if not one.file.is_project}
    settings, read, failures = read_with_wants(talk, entries, settings_of, own, wish.seconds)
    servers = with_logins(talk, settings, read, wish.seconds)
    later = wanting_login(settings, servers)
    silent = frozenset([one.name for one in servers if one.error]) - present.keys() - {*later}
    outcome.failures |= {
        name: not_installed(*faults[name]) if name in faults else failures[name]
        for name in silent & {*failures, *faults}
    }
    # The end says of the others why, and what to do.
    told = [one for one in servers if one.name not in {*silent, *later}]
    for line in summed_up(told, preset(wish.preset)):
        talk.say(f"  {clean(line, 200)}")
    lasting = lasting_entries(entries, settings, servers, wish.workspace)
    new, shell = _planned(talk, wish, moving, found, _Read(servers, lasting, silent))
    changed = new.changed
    done = None
    if changed and _agreed(talk, wish, changed):
        done = _write(talk, wish, new, outcome)
    if done is None:
        say_ending(talk, outcome, found.every, InitEnding())
        talk.say("nothing was changed")
        return talk.end(1)
    is_right = look_after(talk, secrets, installations(settings, silent))
    for name in later:
        talk.say(f"{clean(name)} wants a login: run `ironcurtain-proxy login {clean(name)}`, then "
                 f"`ironcurtain-proxy annotate {clean(name)}`")  # fmt: skip
    name, replaced = (shell.name, shell.replaced) if shell is not None and done else ("", ())
    say_ending(talk, outcome, found.every, InitEnding(done, unconfined(settings), name, replaced))
    is_whole = len(done) == len(changed) and not (silent or outcome.refused or later)
    return talk.end(int(not (is_whole and is_right)))


class _Read(Struct, frozen=True):
    """What the servers answered."""

    servers: "Sequence[ReadServer]"
    lasting: Mapping[str, Json]
    """The entries that start them behind the proxy."""
    silent: frozenset[str]
    """The servers that stay in their clients."""


def _planned(
    talk: Dialogue,
    wish: SetupOptions,
    moving: Sequence[MovingServer],
    found: _Findings,
    read: _Read,
) -> "tuple[_NewFiles, OwnShell | None]":
    """Return what is to be written, and our own shell if the person wants it."""
    servers = [one for one in read.servers if one.name not in read.silent]
    entries = {name: entry for name, entry in read.lasting.items() if name not in read.silent}
    names = {one.name for one in moving} - read.silent
    shells = shells_read(servers, names)
    chosen = offered(talk, wish.own_shell, shells, wish.workspace) if names else "none"
    own = own_shell(chosen, shells, names, found.present)
    start = found.start
    if own is not None:
        start = replace(start, serves=own.serves)
        entries = with_own_shell(entries, own, found.present)
        servers = [one for one in servers if one.name in entries]
        servers += [own.read()] if own.is_new else []
        talk.say(f'our own shell: as "{own.name}"')
    changed = _changes(talk, wish, found.outcome, *changes(moving, start, read.silent))
    origins = {one.name: origin_of(one.taken.entry) for one in moving if one.name in entries}
    return _NewFiles(servers, entries, origins, changed), own


def _changes(
    talk: Dialogue,
    wish: SetupOptions,
    outcome: Outcome,
    changed: Sequence[FileChange],
    refused: Sequence[tuple[ClientFile, str]],
) -> Sequence[FileChange]:
    """Return the changes that can be made. Print the files that are not understood well enough."""
    for file, why in refused:
        talk.say(f"{short(file.path, wish.home)}: {clean(why)}: stays unchanged")
        outcome.refused[id(file)] = Failure(why=why, remedy="change it by hand: docs/clients.md")
    return changed


def _entries(
    wish: SetupOptions, moving: Sequence[MovingServer], present: Mapping[str, Mapping[str, Json]]
) -> dict[str, dict[str, Json]]:
    """Return the servers behind the proxy, which start the same from any directory."""
    entries = servers_behind_proxy(moving, present)
    # A repository of somebody else may call its own program like a known server.
    own = {one.name for one in moving if not one.file.is_project}
    for name in entries.keys() - present.keys():
        entry = grounded(entries[name], wish.workspace, os.environ)
        is_closed = opens_network(entry) or name not in own
        hosts = () if is_closed else known_needs(entry).hosts
        services = () if is_closed else near_services(entry)
        entries[name] = opened_for(entry, hosts=hosts, services=services)
    return entries


def _changeable(
    talk: Dialogue, wish: SetupOptions, moving: Sequence[MovingServer], outcome: Outcome
) -> list[MovingServer]:
    """Return the servers whose files can be changed, and print the others.

    A file that cannot be changed must be known before anything else is written.
    """
    for file in {id(one.file): one.file for one in moving}.values():
        why = why_not_exchanged(file.path)
        if why:
            talk.say(f"{short(file.path, wish.home)}: {why}: stays unchanged")
            remedy = f'`sudo chown "$USER:$(id -gn)" {shlex.quote(str(file.path))}`, and init again'
            remedy = "make it writable, and run init again" if "not writable" in why else remedy
            outcome.refused[id(file)] = Failure(why=f"its file {why}", remedy=remedy)
    return [one for one in moving if id(one.file) not in outcome.refused]


def _beginning(moving: Sequence[MovingServer]) -> str:
    """Return the step that reads the tools, in words: `Start 2 servers and connect to 1`."""
    far = {one.name for one in moving if "url" in one.taken.entry}
    near = {one.name for one in moving} - far
    said = [f"start {counted(len(near), 'server')}"] if near else []
    said += [f"connect to {', '.join(clean(name) for name in sorted(far))}"] if far else []
    text = " and ".join(said)
    return text[:1].upper() + text[1:]


def _present(state: Path) -> dict[str, dict[str, Json]]:
    """Return the servers that are behind the proxy already."""
    file = state / SERVERS_NAME
    if not file.exists():
        return {}
    client = strictly(lambda report: read_client_file(file, report))
    return client.entries


def _start(wish: SetupOptions) -> OwnStart:
    command, args = own_command(os.environ)
    configured = _workspace_of(wish.state / CONFIG_NAME)
    other = configured is not None and os.path.realpath(configured) != str(wish.workspace)
    return OwnStart(
        command=command,
        args=tuple(args),
        workspace=str(wish.workspace) if other else None,
        path=path_to(("npm", *NEEDED_PROGRAMS), wish.workspace, os.environ),
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
    entries = _entries(wish, moving, present)
    startables = startable(moving, entries, os.environ)
    open_ones = unconfined(settings_for(startables, wish.workspace)) if moving else {}
    needs = {one.name: known_needs(one.taken.entry) for one in moving}
    for line in found_lines(found, moving, Surroundings(open_ones, needs), wish.home):
        talk.say(line)
    talk.say()
    talk.answer |= {"workspace": str(wish.workspace), "found": found_json(found, moving)}


def _nothing(talk: Dialogue, outcome: Outcome, every: Sequence[MovingServer]) -> int:
    left = outcome.unprotected(every, ())
    if any(table.ours for file in outcome.found.files for table in file.tables):
        talk.say("nothing to do: every server that the proxy can start is behind it already")
        if left:
            say_ending(talk, outcome, every, InitEnding())
        return talk.end(0)
    if left:
        say_ending(talk, outcome, every, InitEnding())
    if talk.as_json:
        return talk.end(1)
    none_moved = "nothing was changed: no server is protected"
    raise NoServerFoundError(none_moved if left else _NOTHING, leaves_some=bool(left))


def _dry_run(
    talk: Dialogue,
    wish: SetupOptions,
    moving: Sequence[MovingServer],
    start: OwnStart,
    present: Mapping[str, Mapping[str, Json]],
) -> int:
    shells = shells_known(moving)
    chosen = wish.own_shell or ("beside" if shells else "none")
    if wish.own_shell is None and shells:
        talk.say(f"{said(shells)}: would ask whether our own shell goes beside, in place of it, or "
                 "nowhere; --yes puts it beside")  # fmt: skip
    own = own_shell(chosen, shells, [one.name for one in moving], present)
    if own is not None:
        start = replace(start, serves=own.serves)
        talk.say(f'would write our own shell as "{own.name}"')
        talk.answer["ownShell"] = {"name": own.name, "wish": chosen}
    changed, refused = changes(moving, start)
    for one in changed:
        for line in diff_lines(one, wish.home):
            talk.say(line)
    for file, why in refused:
        talk.say(f"{short(file.path, wish.home)}: {clean(why)}: would stay unchanged")
    asks = ", to ask about our own shell if one runs commands"
    asks = "" if shells or wish.own_shell else asks
    talk.say(f"\nwould {_beginning(moving).lower()} to read the "
             f"tools{asks}, and write below {short(wish.state, wish.home)}; nothing was started or "
             "changed")  # fmt: skip
    talk.answer["diffs"] = {
        str(one.file.path): "\n".join(diff_lines(one, wish.home)) for one in changed
    }
    return talk.end(0)


def _chosen(talk: Dialogue, wish: SetupOptions, moving: Sequence[MovingServer]) -> list[ClientFile]:
    """Return the files whose servers are to move. One answer accepts all, `s` asks about each."""
    files = {id(one.file): one.file for one in moving}
    where = f"{counted(len(moving), 'server')} of {counted(len(files), 'file')}"
    hooks = ", ".join(short(file, wish.home) for file in wish.hooked)
    last = f"write, and add hooks to {hooks}" if hooks else "and write"
    question = (
        f"Put {where} behind the proxy: install what is missing, start each once,\n"
        f"{last}?\n(s asks before each step)"
    )
    answer = talk.ask(question, ("y", "n", "s"))
    talk.all_steps = answer == "y"
    if answer == "n":
        return []
    chosen: list[ClientFile] = []
    for key, file in files.items():
        count = counted(sum(id(one.file) == key for one in moving), "server")
        place = f"{file.client.name}, {short(file.path, wish.home)}"
        if talk.ask(f"Put {count} of {place} behind the proxy?", is_step=True) == "y":
            chosen.append(file)
    return chosen


def _agreed(talk: Dialogue, wish: SetupOptions, changed: Sequence[FileChange]) -> bool:
    names = ", ".join(short(one.file.path, wish.home) for one in changed)
    question = (
        f"\nWrite {short(wish.state, wish.home)} and change {names}? (d shows the difference)"
    )
    while (answer := talk.ask(question, ("y", "n", "d"), is_step=True)) == "d":
        for one in changed:
            for line in diff_lines(one, wish.home):
                talk.say(line)
    return answer == "y"


class _NewFiles(Struct, frozen=True):
    """What is to be written."""

    servers: Sequence["ReadServer"]
    entries: Mapping[str, Json]
    origins: Mapping[str, str]
    """By the name behind the proxy; see `origin_of`."""
    changed: Sequence[FileChange]


def _write(
    talk: Dialogue, wish: SetupOptions, new: _NewFiles, outcome: Outcome
) -> list[ClientFile] | None:
    """Write our own files, then change the clients'. Return the changed ones, None without any."""
    configured = _workspace_of(wish.state / CONFIG_NAME)
    workspace = wish.workspace if configured is None else Path(configured)
    files = planned_files(wish.state, preset(wish.preset), new.servers, new.entries, workspace)
    journal = read_undo_record(wish.state)
    talk.holds = "no client's file was changed; run init again"
    if not write_files(files, talk.say, force=wish.force, own=journal.written):
        why = Failure(
            why="nothing was written: files of ours hold what init did not write",
            remedy="look at the files named above, and run init again with --force",
        )
        outcome.refused |= {id(one): why for one in outcome.found.files}
        return None
    named = {**new.origins, **journal.origins}
    journal = replace(journal, written=digests(files, journal.written), origins=named)
    try:
        write_undo_record(wish.state, journal)
        talk.holds = "`ironcurtain-proxy init --undo` restores the changed files"
        done = _change_files(talk, wish, journal, new.changed, outcome)
    except OSError as error:
        raise ConfigurationError(
            f"{error.filename or wish.state}: cannot be written: {error.strerror}; {talk.holds}"
        ) from None
    talk.answer["changed"] = [
        {"file": str(one.file.path), "client": one.file.client.id, "servers": [*one.servers]}
        for one in done
    ]
    return [one.file for one in done]


def _change_files(
    talk: Dialogue,
    wish: SetupOptions,
    journal: UndoRecord,
    changed: Sequence[FileChange],
    outcome: Outcome,
) -> list[FileChange]:
    done: list[FileChange] = []
    for one in changed:
        path = one.file.path
        try:
            journal = change(wish.state, journal, one, SystemClock().now())
        except OSError as error:
            talk.say(f"{path}: not changed: {error.strerror}")
            why = f"its file could not be changed: {error.strerror}"
            outcome.refused[id(one.file)] = Failure(
                why=why, remedy="mend that if it lasts, and run init again"
            )
            continue
        talk.say(f"{path}: {counted(len(one.servers), 'server')} behind the proxy")
        if one.file.is_project and (wish.workspace / ".git").exists():
            talk.say("  this file may be shared by a repository: the change names paths of this "
                     "machine")  # fmt: skip
        done.append(one)
    return done
