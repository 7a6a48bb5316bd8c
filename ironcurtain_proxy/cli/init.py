"""`ironcurtain-proxy init`: the servers of a person's MCP clients put behind the proxy."""

import argparse
import os
import shlex
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, assert_never

from msgspec.structs import replace

from ironcurtain_proxy.cli.init_clients import NoServerFoundError, SetupOptions, set_up
from ironcurtain_proxy.cli.init_dialogue import (
    NAMES,
    Dialogue,
    clean,
    install_packages,
    masked_arguments,
    own_machine,
    planned_files,
    require_terminal,
    write_files,
)
from ironcurtain_proxy.cli.init_servers import (
    described,
    grounded,
    lasting_entries,
    offered,
    own_shell,
    read_servers,
    settings_for,
    shells_read,
    with_own_shell,
)
from ironcurtain_proxy.cli.init_wants import short
from ironcurtain_proxy.cli.output import saying_what_holds
from ironcurtain_proxy.config.clients.finding import read_client_file
from ironcurtain_proxy.config.clients.plan import (
    UndoneFile,
    digest,
    only_one,
    read_undo_record,
    undo,
    write_undo_record,
)
from ironcurtain_proxy.config.presets import PresetName, preset
from ironcurtain_proxy.config.reading.document import strictly
from ironcurtain_proxy.config.reading.layers import STATE_DIRECTORY
from ironcurtain_proxy.config.settings import Settings, home_directory
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.hooks.dialects import DIALECTS
from ironcurtain_proxy.hooks.events import HookClient


def run(options: argparse.Namespace) -> int:
    """Set up the clients, or undo it. Return 1 if the work is incomplete.

    Raises:
        ConfigurationError: an argument or a file cannot be used.
    """
    talk = Dialogue(yes=options.yes, as_json=options.json)
    with saying_what_holds(lambda: talk.holds):
        return _run(talk, options)


def _run(talk: Dialogue, options: argparse.Namespace) -> int:
    home = Path(os.path.realpath(options.home or home_directory(os.environ)))
    # From here on everything is as it will be when this user starts the proxy.
    os.environ["HOME"] = str(home)
    if options.undo:
        return put_back(talk, home, home / STATE_DIRECTORY)
    workspace, why = proposed_workspace(options.workspace, Path.cwd(), home)
    if options.servers is not None:
        return _without_client(talk, options, home, workspace)
    hooked = [] if options.given or options.json else _hookable(home, home / STATE_DIRECTORY)
    wish = SetupOptions(
        preset=options.preset,
        own_shell=options.own_shell,
        home=home,
        workspace=workspace,
        why_workspace=why,
        given=tuple([file.absolute() for file in options.given]),
        seconds=options.seconds,
        force=options.force,
        dry_run=options.dry_run,
        hooked=tuple([file for _, file in hooked]),
    )
    for client, file in hooked:
        puts = "put" if options.yes and not options.dry_run else "would put"
        talk.say(f"{client}: hooks in {short(file, home)} {puts} its own shell, edits and "
                 "fetches under the policy")  # fmt: skip
    try:
        code = set_up(talk, wish)
    except NoServerFoundError as error:
        if not hooked:
            raise
        talk.say(str(error))
        code = 1 if error.leaves_some else 0
    return code if options.dry_run else _put_hooks(talk, wish, hooked) or code


def _hookable(home: Path, state: Path) -> list[tuple[HookClient, Path]]:
    """Return the clients of this user that can have our hooks and have none, and their files."""
    from ironcurtain_proxy.hooks.health import state_of  # noqa: PLC0415  joins all folders
    from ironcurtain_proxy.hooks.installing import place_for  # noqa: PLC0415  as above

    found: list[tuple[HookClient, Path]] = []
    for client in DIALECTS:
        with suppress(ConfigurationError):
            # Claude Code has servers in `~/.claude.json` before it makes its directory.
            place = place_for(client, home, state)
            is_used = place.directory.exists() or place.directory.with_suffix(".json").exists()
            if is_used and not place.kept.exists() and state_of(client, home, state) == "absent":
                found += [(client, place.file)]
    return found


def add_policy(
    state: Path, workspace: Path, name: PresetName, observed: Collection[HookClient]
) -> list[str]:
    """Add what is said of clients' tools to the proxy's files. What we wrote stays known.

    Returns:
        The names of the files that were made or changed.
    """
    from ironcurtain_proxy.hooks.installing import write_policy  # noqa: PLC0415  joins all folders

    with only_one(state):
        journal = read_undo_record(state)
        files = {name: state / name for name in NAMES}
        ours = [
            name
            for name, file in files.items()
            if not file.exists() or digest(file.read_bytes()) == journal.written.get(name)
        ]
        changed = write_policy(state, str(workspace), name, observed)
        now = {name: digest(files[name].read_bytes()) for name in ours if files[name].exists()}
        if now.items() - journal.written.items():
            write_undo_record(state, replace(journal, written={**journal.written, **now}))
        return changed


def _add_policy(wish: SetupOptions) -> None:
    from ironcurtain_proxy.hooks.kernel import observed_in  # noqa: PLC0415  joins all folders

    add_policy(wish.state, wish.workspace, wish.preset, observed_in(wish.state))


def _put_hooks(
    talk: Dialogue, wish: SetupOptions, hooked: Sequence[tuple[HookClient, Path]]
) -> int:
    """Ask, and put our hooks into clients' files. Return 1 if a file could not be changed."""
    from ironcurtain_proxy.hooks import installing  # noqa: PLC0415  joins all folders

    code = 0
    if any((wish.state / "clients").glob("hooks-*.json")):
        # The files may have been written anew, without what is said of clients' tools.
        _add_policy(wish)
    for client, file in hooked:
        require_terminal(talk)
        question = f"Put our hooks first in {short(file, wish.home)}? Other hooks stay."
        if talk.ask(question, is_step=True) == "n":
            continue
        talk.holds = "`ironcurtain-proxy init --undo` takes everything back"
        try:
            _add_policy(wish)
            installing.install(installing.place_for(client, wish.home, wish.state))
        except (ConfigurationError, OSError) as error:
            why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
            talk.say(f"{client}: no hooks: {clean(str(why), 300)}")
            code = 1
            continue
        talk.say(f"{client}: its hooks are in {short(file, wish.home)}; start a new session of it")
        if DIALECTS[client].notice:
            talk.say(DIALECTS[client].notice)
    return code


def _without_client(
    talk: Dialogue, options: argparse.Namespace, home: Path, workspace: Path
) -> int:
    """Return a configuration for the servers of a file that stays as it is."""
    client = strictly(lambda report: read_client_file(options.servers, report))
    if not client.entries:
        raise ConfigurationError(f"{options.servers}: names no server that can be started here")
    started = {
        name: grounded(entry, workspace, os.environ) for name, entry in client.entries.items()
    }
    settings = settings_for(started, workspace)
    for note in client.notes:
        talk.say(f"note: {note}")
    if options.dry_run or not options.yes:
        return _would(talk, settings, is_asked=options.dry_run)
    install_packages(talk, settings, own_machine(settings), options.seconds)
    servers = read_servers(settings, options.seconds)
    entries = lasting_entries(started, settings, servers, workspace)
    shells = shells_read(servers, started.keys())
    wish = offered(talk, options.own_shell or "none", shells, workspace)
    own = own_shell(wish, shells, started.keys(), started)
    if own is not None:
        entries = with_own_shell(entries, own, ())
        servers = [*[one for one in servers if one.name in entries], own.read()]
    state = home / STATE_DIRECTORY
    files = planned_files(state, preset(options.preset), servers, entries, workspace)
    for line in described(servers, preset(options.preset)):
        talk.say(line)
    talk.holds = f"the files below {short(state, home)} may be written"
    written = write_files(files, talk.say, force=options.force)
    silent = [server.name for server in servers if server.error]
    talk.answer |= {"servers": [one.name for one in servers], "silent": [*silent]}
    if written and silent:
        talk.say(f"not complete: {', '.join(silent)} did not answer; every call of it is denied. "
                 "Run the same command again with --force when it starts")  # fmt: skip
    return talk.end(int(not written or bool(silent)))


def _would(talk: Dialogue, settings: Settings, *, is_asked: bool) -> int:
    for spec in settings.servers:
        words = [spec.command, *masked_arguments(spec.args)]
        talk.say(f"would start {spec.name}: {shlex.join(words)}")
    talk.say(f"would write below {settings.state_dir}")
    talk.say("nothing was started or written: pass --yes to start and write")
    return talk.end(int(not is_asked))


def proposed_workspace(given: Path | None, here: Path, home: Path) -> tuple[Path, str]:
    """Return the workspace and where it comes from, in words.

    Raises:
        ConfigurationError: no directory can be proposed.
    """
    if given is not None and not given.is_dir():
        raise ConfigurationError(f"--workspace: {given} is no directory: make it, or name another")
    here = here if given is None else Path(os.path.realpath(given))
    root = next((one for one in (here, *here.parents) if (one / ".git").exists()), None)
    if given is None and root is not None and _is_fit(root, home):
        return root, "the repository around this directory" if root != here else "this repository"
    if _is_fit(here, home):
        return here, "this directory" if given is None else "as given"
    raise ConfigurationError(
        f"{here} is too much for an agent: run init in a project, or name one with --workspace"
    )


def _is_fit(place: Path, home: Path) -> bool:
    return place != place.parent and not home.is_relative_to(place)


_NEVER: Final = "nothing to undo: `init` has changed no client's file, or everything is put back"


def put_back(talk: Dialogue, home: Path, state: Path) -> int:
    """Restore all clients' files. Return 1 if a file could not be restored.

    Raises:
        ConfigurationError: the record cannot be read, or another `init` is running.
    """
    talk.holds = "run it again to put back what is not put back yet"
    taken = _take_hooks(talk, home, state)
    if not read_undo_record(state).entries:
        if not taken:
            talk.say(_NEVER)
        talk.answer["undone"] = []
        return talk.end(0)
    with only_one(state):
        results, _ = undo(state, read_undo_record(state))
    for result in results:
        talk.say(_line(result, home))
    talk.answer["undone"] = [
        {"file": str(one.entry.file), "state": one.state, "why": one.why} for one in results
    ]
    clients = sorted({one.entry.client for one in results if one.state != "refused"})
    if clients:
        talk.say(f"Restart {', '.join(clients)}. Policy, audit log and servers stay in "
                 f"{short(state, home)}.")  # fmt: skip
    return talk.end(int(any(one.state == "refused" for one in results)))


def _take_hooks(talk: Dialogue, home: Path, state: Path) -> bool:
    """Take our hooks out of clients' files. Return whether there were any."""
    kept = [one for one in DIALECTS if (state / f"clients/hooks-{one}.json").exists()]
    if not kept:
        return False
    from ironcurtain_proxy.hooks import health, installing  # noqa: PLC0415  join all folders

    health.refuse_if_kept("take them out")
    for client in kept:
        done = installing.remove(installing.place_in(client, home, state))
        talk.say(f"{client}: its hooks are {'taken out' if done == 'none' else done}")
    return True


def _line(result: UndoneFile, home: Path) -> str:
    file = short(result.entry.file, home)
    match result.state:
        case "restored":
            return f"{file}: as it was, byte for byte"
        case "same":
            return f"{file}: was as it was already"
        case "merged":
            return (
                f"{file}: was changed since: its servers are back, and your changes are kept; "
                f"as it was before: {result.backup}"
            )
        case "refused":
            return (
                f"{file}: left as it is: {clean(result.why)}; put its servers back by hand, "
                f"from {result.backup}"
            )
        case _:
            assert_never(result.state)
