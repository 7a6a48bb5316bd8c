"""The tools of servers, read for `init`, and the entries that start the servers from then on.

Not a command itself.
"""

import itertools
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from textwrap import wrap
from typing import Final, Literal, TypeAlias

import orjson
from msgspec import Struct

from ironcurtain_proxy.cli.init_dialogue import Dialogue, clean
from ironcurtain_proxy.cli.output import counted
from ironcurtain_proxy.config.annotating.annotate import annotate, packed, roles_in
from ironcurtain_proxy.config.annotating.texts import ReadServer, ReadTool
from ironcurtain_proxy.config.clients.plan import MovingServer, collides
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.presets import Preset
from ironcurtain_proxy.config.reading.document import shown
from ironcurtain_proxy.config.reading.layers import CONFIG_VARIABLE, SERVERS_VARIABLE
from ironcurtain_proxy.config.servers.recognition import (
    needs_of,
    read_pack,
    recognised,
    recognised_pack,
)
from ironcurtain_proxy.config.servers.servers_file import OWN_SHELL, WORKSPACE
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.downstream.starting import with_directories
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.annotation import CHANGES
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json, object_of
from ironcurtain_proxy.own_shell.tools import TOOLS
from ironcurtain_proxy.shell.launchers import launched

SECONDS: Final = 60.0
"""The limit for all servers together: the first start of `npx` or `uvx` fetches a package."""

_WIDTH: Final = 96
"""Columns of a list of tools."""
_MOST_NAMES: Final = 24
"""Tools of one kind that are named. `annotate --dry-run` shows all: a server may have hundreds."""
_PYTHON: Final = re.compile(r"(python|pypy)[0-9.]*")
_RUNS_MODULE: Final = re.compile(r"-[bBdEiIOPqRsSuvx]*[mc]")


def settings_for(
    entries: Mapping[str, Mapping[str, Json]],
    workspace: Path,
    credentials: Mapping[str, Mapping[str, str]] | None = None,
) -> Settings:
    """Return the settings for starting these servers to read their tools."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in {CONFIG_VARIABLE, "SERVER_FILTER", "GENERATED_DIR", "TOOL_ANNOTATIONS_DIR"}
    }
    environ[SERVERS_VARIABLE] = orjson.dumps({**entries}).decode()
    environ["ALLOWED_DIRECTORY"] = str(workspace)
    if credentials:
        environ["SERVER_CREDENTIALS"] = orjson.dumps({**credentials}).decode()
    return load_settings(environ)


_BARE_PATH: Final = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where a client that was started from a desktop looks for programs."""


def grounded(
    entry: Mapping[str, Json], workspace: Path, environ: Mapping[str, str]
) -> dict[str, Json]:
    """Return an entry that starts the same wherever, and by whomever, the proxy is started.

    Relative paths count from the workspace. A program that only this terminal's `PATH` leads to,
    as of nvm, asdf, volta, mise or pyenv, gets that `PATH`, without what the agent may write.

    Args:
        entry: in the proxy's form.
        workspace: the directory that relative paths are relative to.
        environ: of this terminal.
    """
    command, args, cwd = entry.get("command"), entry.get("args"), entry.get("cwd")
    if not isinstance(command, str):
        return {**entry}
    found = {**entry}
    if isinstance(cwd, str) and cwd != WORKSPACE and not cwd.startswith(("/", "~")):
        found["cwd"] = os.path.normpath(workspace / cwd)
    words = tuple([str(one) for one in args]) if isinstance(args, list) else ()
    spec = ServerSpec(name="server", annotations="server", command=command, args=words)
    if cwd is None:
        spec = with_directories(spec, workspace, workspace, make=False)
    found |= {"command": spec.command, "args": [*spec.args]}
    variables = {**object_of(entry.get("env"))}
    path = "" if "/" in command or "PATH" in variables else path_to([command], workspace, environ)
    if path:
        found["env"] = {**variables, "PATH": path}
    return found


def path_to(programs: Sequence[str], workspace: Path, environ: Mapping[str, str]) -> str:
    """Return the `PATH` that leads to what only this terminal finds, or "" if all is found bare.

    Args:
        programs: their names. One that is found nowhere counts as found.
        workspace: what lies there is left out, because the agent may write it.
        environ: of this terminal.
    """
    bare = os.pathsep.join(_BARE_PATH)
    places = _places(environ.get("PATH", ""), workspace)
    path = os.pathsep.join(dict.fromkeys([*places, *_BARE_PATH]))
    only_here = [
        one for one in programs if not shutil.which(one, path=bare) and shutil.which(one, path=path)
    ]
    return path if only_here else ""


def _places(path: str, workspace: Path) -> list[str]:
    """Return the directories of a `PATH`, without those that the agent may write."""
    closed = os.path.realpath(workspace)
    return [
        place
        for place in path.split(os.pathsep)
        if place.startswith("/")
        and os.path.isdir(place)  # noqa: PTH112  the other one raises where we may not look
        and not Path(os.path.realpath(place)).is_relative_to(closed)
    ]


def read_servers(settings: Settings, seconds: float) -> list[ReadServer]:
    """Start the servers, list their tools and stop the servers."""
    # Joins all folders: long to import, and only this step needs them.
    from ironcurtain_proxy.wiring.rehearsal import list_live_tools  # noqa: PLC0415

    policy = load_policy(settings).policy
    # `init` names the unconfined servers before it asks; the warning would repeat them.
    found = list_live_tools(settings, policy, seconds, lambda _text: None)
    servers: list[ReadServer] = []
    for spec in settings.servers:
        if spec.name not in found.answered:
            why = found.silent.get(spec.name) or f"no answer within {seconds:g} seconds"
            servers.append(
                ReadServer(
                    name=spec.name,
                    annotations=spec.annotations,
                    error=why,
                    hosts=found.hosts.get(spec.name, ()),
                )
            )
            continue
        tools = [tool.raw for tool in found.definitions if tool.server == spec.name]
        if spec.remote is not None:
            servers.append(annotate(spec.name, tools, is_remote=True))
            continue
        packed = recognised_pack(spec.command, spec.args)
        pack = None if packed is None else read_pack(packed)
        servers.append(annotate(spec.name, tools, recognised(spec.command, spec.args), pack))
    _refuse_shared_names(servers)
    return servers


def _refuse_shared_names(servers: Sequence[ReadServer]) -> None:
    """Refuse two servers that share annotations, unless both are the same known server."""
    own = [one for one in servers if one.annotations in {one.name, f"{one.name}-server"}]
    names = Counter(one.annotations for one in own)
    for name, count in names.items():
        if count > 1:
            raise ConfigurationError(f"two servers would be annotated as {shown(name)}: rename one")


def lasting_entries(
    written: Mapping[str, Mapping[str, Json]],
    settings: Settings,
    servers: Sequence[ReadServer],
    base: Path,
) -> dict[str, Json]:
    """Return the entries that start the servers behind the proxy.

    Args:
        written: the entries of the client.
        settings: with the same servers.
        servers: with their tools.
        base: the directory that relative paths in a command are relative to.
    """
    read = {server.name: server for server in servers}
    entries: dict[str, Json] = {}
    for spec in settings.servers:
        server = read[spec.name]
        entry: dict[str, Json] = {**written[spec.name]}
        if server.annotations != spec.annotations and not server.error:
            entry["annotations"] = server.annotations
        if spec.cwd is None and spec.remote is None:
            entry.update(_place(spec, server, settings, entry, base))
        entries[spec.name] = entry
    return entries


def _place(
    spec: ServerSpec, server: ReadServer, settings: Settings, entry: Mapping[str, Json], base: Path
) -> Mapping[str, Json]:
    """Return the keys of an entry that depend on the working directory of the client."""
    # Relative paths in the command start at the client's directory, not at the server's new one.
    there = with_directories(spec, settings.state_dir, base, make=False)
    words: dict[str, Json] = {}
    if there.command != spec.command:
        words["command"] = there.command
    if there.args != spec.args:
        words["args"] = [*there.args]
    runs_commands = any(tool.kind == "shell" for tool in server.tools)
    launcher = launched(spec.command, spec.args)
    if runs_commands and (launcher is None or not launcher.is_own_code):
        # Commands that name no directory work on the project. A launcher that is not replaced by
        # its installed program does not start there.
        words["cwd"] = WORKSPACE
    if runs_commands and launcher is None:
        words.update(_safe_path(spec, there.args, entry))
    return words


def _safe_path(
    spec: ServerSpec, args: Sequence[str], entry: Mapping[str, Json]
) -> Mapping[str, Json]:
    """Return the keys that keep a Python server from importing modules of its workspace.

    An option where there can be one: a variable would hold for the commands that it runs, too, and
    `python -m unittest` would not find the project's own tests.
    """
    if _PYTHON.fullmatch(spec.command.rpartition("/")[2]):
        if not _imports_from_here(args):
            return {}
        path = {**os.environ, **spec.env}.get("PATH")
        program = shutil.which(spec.command, path=path)
        # A Python older than 3.11 knows neither the option nor the variable.
        return {"args": ["-P", *args]} if program and _knows_safe_path(program) else {}
    if any("python" in word for word in (spec.command, *args)):
        return {"env": {"PYTHONSAFEPATH": "1", **object_of(entry.get("env"))}}
    return {}


def _imports_from_here(args: Sequence[str]) -> bool:
    """Return whether Python imports from its working directory: not if it runs a script."""
    words = iter(args)
    for word in words:
        if word in {"-X", "-W"}:
            next(words, "")
        elif _RUNS_MODULE.match(word) or word == "-":
            return True
        elif not word.startswith("-"):
            return False
    return True


def _knows_safe_path(program: str) -> bool:
    with suppress(OSError, subprocess.SubprocessError):
        given = [program, "-I", "-P", "-S", "-c", ""]
        done = subprocess.run(given, capture_output=True, timeout=SECONDS, check=False)  # noqa: S603  the operator's own program
        return done.returncode == 0
    return False


def described(servers: Sequence[ReadServer], chosen: Preset) -> Iterator[str]:
    """Yield the tools that were read, one line for each tool, and what the preset does with it."""
    for server in servers:
        yield _heading(server)
        for tool in server.tools:
            why = f": {visible(tool.why)}" if tool.is_denied or tool.kind == "unknown" else ""
            yield f"  {visible(tool.name)}: {_meaning(server, tool, chosen)}{why}"
        if server.left_out:
            yield f"  {server.left_out} more cannot be described, so they are asked about or denied"


def summed_up(servers: Sequence[ReadServer], chosen: Preset) -> Iterator[str]:
    """Yield some lines for each kind of tool, with what the preset does."""
    for server in servers:
        yield _heading(server)
        kinds: dict[str, list[str]] = {}
        for tool in server.tools:
            kinds.setdefault(_meaning(server, tool, chosen), []).append(visible(tool.name))
        for meaning, names in kinds.items():
            rest = len(names) - _MOST_NAMES
            more = [f"and {rest} more"] if rest > 0 else []
            yield from wrap(
                f"{meaning}: {', '.join([*names[:_MOST_NAMES], *more])}",
                width=_WIDTH, initial_indent="  ", subsequent_indent="    ",
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
        if server.left_out:
            yield f"  not described, so asked about or denied: {server.left_out} more"


def _heading(server: ReadServer) -> str:
    if server.error:
        return f"{server.name}: did not answer: {visible(server.error)}"
    known = "" if server.annotations == server.name else f" (as {server.annotations})"
    return f"{server.name}{known}: {counted(len(server.tools), 'tool')}"


def _meaning(server: ReadServer, tool: ReadTool, chosen: Preset) -> str:
    if tool.is_denied:
        return "not described, so asked about or denied"
    return _of_unknown(server, tool, chosen) if tool.kind == "unknown" else _MEANS[tool.kind]


def _of_unknown(server: ReadServer, tool: ReadTool, chosen: Preset) -> str:
    if any(rule.about == "unknown" and rule.then == "deny" for rule in chosen.rules):
        return "denied"
    changes = any(not CHANGES.isdisjoint(roles_in(one)) for one in tool.arguments.values())
    # No sandbox with a network holds a call.
    is_held = "containment" in chosen.config and not needs_of(server.annotations).hosts
    if is_held and (changes or tool.effect not in {None, "sends"}):
        return "you are asked, unless a sandbox holds the call"
    return "you are asked"


_MEANS: Final[Mapping[str, str]] = {
    "files": "works on the files that it is given",
    "fetches": "fetches the URL that it is given",
    "shell": "runs a shell command",
    "looks": "reads its server's own data",
    "saves": "reads its server's own data, and works on a file that it is given",
    "keeps": "changes its server's own data",
}


# --- our own shell --------------------------------------------------------------------------------
# `init` offers it where a client has a server that runs commands. No client can start it: it goes
# into the proxy's own file, and the client's file only names it in the filter of the proxy's entry.
# By itself `init` takes nothing away, so a `--yes` puts it beside what is there.


OwnShellWish: TypeAlias = Literal["beside", "instead", "none"]

ENTRY: Final[Mapping[str, Json]] = {"builtin": "shell"}
_REASON: Final = (
    "Our own shell gives each command a view of the workspace, and brings in what it changed only "
    "once the command has ended and all of it was looked at."
)


class FoundShell(Struct, frozen=True):
    """A server that runs commands."""

    name: str
    """Behind the proxy."""
    does_more: bool
    """Whether it has other tools, which our own shell could not replace."""


class OwnShell(Struct, frozen=True):
    """Our own shell behind the proxy."""

    name: str
    serves: Mapping[str, tuple[str, ...]]
    """The servers that a client gets for one that it had."""
    replaced: frozenset[str]
    """The servers in whose place it stands."""
    is_new: bool

    def read(self) -> ReadServer:
        """Return its tools. They are our own, so that nothing is started to read them."""
        pack = read_pack(OWN_SHELL)
        assert pack is not None  # noqa: S101  it comes with the package
        return packed(self.name, TOOLS, pack)


def shells_read(servers: Sequence[ReadServer], names: Collection[str]) -> list[FoundShell]:
    """Return which servers of these names run commands, by the tools that they listed."""
    return [
        FoundShell(one.name, bool(one.left_out) or any(tool.kind != "shell" for tool in one.tools))
        for one in servers
        if one.name in names and any(tool.kind == "shell" for tool in one.tools)
    ]


def shells_known(moving: Sequence[MovingServer]) -> list[FoundShell]:
    """Return which servers run commands, by their packs: nothing is started to find out."""
    found: dict[str, FoundShell] = {}
    for one in moving:
        command, args = one.taken.entry.get("command"), one.taken.entry.get("args")
        words = [str(word) for word in args] if isinstance(args, list) else []
        name = recognised_pack(command, words) if isinstance(command, str) else None
        pack = None if name is None else read_pack(name)
        runs = [_runs_commands(tool.get("args")) for tool in pack.tools.values()] if pack else []
        if any(runs):
            found[one.name] = FoundShell(one.name, does_more=not all(runs))
    return [*found.values()]


def _runs_commands(arguments: Json) -> bool:
    roles = arguments.values() if isinstance(arguments, dict) else ()
    return any("command" in roles_in(one) for one in roles)


def offered(
    talk: Dialogue, wish: OwnShellWish | None, shells: Sequence[FoundShell], workspace: Path
) -> OwnShellWish:
    """Ask whether our own shell stands beside the servers that run commands, or in their place.

    Args:
        talk: with the person.
        wish: as the command line says, or None if the person is asked where there is such a server.
        shells: the servers that run commands.
        workspace: must be one that can have views.
    """
    if wish == "none" or (wish is None and not shells):
        return "none"
    if why := _why_not(workspace):
        talk.say(f"\nour own shell is left out: {clean(why, 300)}")
        talk.say("(once that is mended, `init --undo` and another `init` offer it again)")
        return "none"
    return wish or _answered(talk, shells)


def said(shells: Sequence[FoundShell]) -> str:
    """Say in words that servers run commands."""
    names = ", ".join(clean(one.name) for one in shells)
    return f"{names} {'run' if len(shells) > 1 else 'runs'} commands"


def _answered(talk: Dialogue, shells: Sequence[FoundShell]) -> OwnShellWish:
    names = ", ".join(clean(one.name) for one in shells)
    place = _replaceable(shells)
    talk.say()
    for line in wrap(f"{said(shells)}. {_REASON}", _WIDTH):
        talk.say(line)
    if not place:
        question = f"Put our own shell beside {names}? (y: beside, n: not at all)"
        return "beside" if talk.ask(question) == "y" else "none"
    instead = ", ".join(clean(name) for name in sorted(place))
    question = f"Put it beside (b), or in place of {instead} (i), or leave it out (n)?"
    match talk.ask(question, ("b", "i", "n")):
        case "b":
            return "beside"
        case "i":
            return "instead"
        case _:
            return "none"


def own_shell(
    wish: OwnShellWish,
    shells: Sequence[FoundShell],
    moved: Collection[str],
    present: Mapping[str, Mapping[str, Json]],
) -> OwnShell | None:
    """Return our own shell with a name that no other server has, or None if it is not wished.

    Args:
        wish: what was chosen.
        shells: the servers that run commands. Where there is none, every client gets our own.
        moved: the servers that move behind the proxy.
        present: the servers that are behind it already.
    """
    if wish == "none":
        return None
    replaced = _replaceable(shells) if wish == "instead" else frozenset()
    there = next((name for name, one in present.items() if one.get("builtin") == "shell"), None)
    taken = ({*moved} - replaced) | present.keys()
    numbered = (f"{OWN_SHELL}-{number}" for number in itertools.count(2))
    names = chain(("shell", OWN_SHELL), numbered)
    name = there or next(
        name for name in names if not any(collides(name, other) for other in taken)
    )
    beside = [one.name for one in shells] or sorted(moved)
    serves = {one: (name,) if one in replaced else (one, name) for one in beside}
    return OwnShell(name, serves, replaced, is_new=there is None)


def with_own_shell(
    entries: Mapping[str, Json], own: OwnShell, present: Collection[str]
) -> dict[str, Json]:
    """Return the servers behind the proxy with our own shell among them.

    What it replaces goes, unless another client uses it already.
    """
    kept = {
        name: one for name, one in entries.items() if name not in own.replaced or name in present
    }
    return kept | ({own.name: {**ENTRY}} if own.is_new else {})


def _replaceable(shells: Sequence[FoundShell]) -> frozenset[str]:
    return frozenset([one.name for one in shells if not one.does_more])


def _why_not(workspace: Path) -> str | None:
    """Return why commands could have no views of a workspace here, or None if they could."""
    # Joins all folders: long to import.
    from ironcurtain_proxy.wiring.views import why_no_own_views  # noqa: PLC0415

    return why_no_own_views(settings_for({OWN_SHELL: ENTRY}, workspace), os.environ)
