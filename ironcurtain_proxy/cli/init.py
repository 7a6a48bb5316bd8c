"""`ironcurtain-proxy init`: a configuration for a person's servers, by a preset."""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from ironcurtain_proxy.config.annotating.annotate import annotate
from ironcurtain_proxy.config.annotating.read_tool import ReadServer, ToolKind
from ironcurtain_proxy.config.policy.policy_files import ANNOTATIONS_NAME, POLICY_NAME
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.presets.compose import compose
from ironcurtain_proxy.config.presets.preset import PRESETS, preset
from ironcurtain_proxy.config.presets.writing import PlannedFile, planned, write
from ironcurtain_proxy.config.reading.environment import CONFIG_VARIABLE, SERVERS_VARIABLE
from ironcurtain_proxy.config.reading.layers import CONFIG_NAME
from ironcurtain_proxy.config.reading.operator_paths import STATE_DIRECTORY
from ironcurtain_proxy.config.reading.problems import Report, shown
from ironcurtain_proxy.config.reading.reading import MAX_BYTES
from ironcurtain_proxy.config.servers.client_file import ClientServers, read_client_file
from ironcurtain_proxy.config.servers.recognition import recognised
from ironcurtain_proxy.config.servers.server_choice import SERVERS_NAME
from ironcurtain_proxy.config.servers.servers_file import WORKSPACE
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.downstream.working_directory import settle
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.question import visible
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.own_process.clocks import SystemClock
from ironcurtain_proxy.sandbox.launchers import launched

DESCRIPTION: Final = """\
Write a configuration for your servers: policy, annotations of their tools, and settings, below
HOME/.ironcurtain. Each server is started once, in a sandbox where this machine has one, to read
its tools, and stopped again.

presets:
  coding      workspace read and written freely; commands contained or asked by kind; network asked
  supervised  reading in the workspace is free; everything else is asked
  read-only   reading in the workspace is free; everything else is denied, and nobody is asked
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy init --preset coding --yes --workspace ~/project --servers client.json

exit status: 0; 1 if a server did not answer, or files that are there say something else; 2 if
what was given cannot be used
"""

_SECONDS: Final = 60.0
"""For all servers together: the first start of `npx` or `uvx` fetches a package."""

_PYTHON: Final = re.compile(r"(python|pypy)[0-9.]*")
_RUNS_MODULE: Final = re.compile(r"-[bBdEiIOPqRsSuvx]*[mc]")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add("--preset", choices=PRESETS, default="coding", help="default: coding")
    add(
        "--servers",
        type=Path,
        metavar="FILE",
        required=True,
        help="a client's file with mcpServers, or a list of servers",
    )
    add("--workspace", type=Path, metavar="DIR", help="default: this directory")
    add("--home", type=Path, metavar="DIR", help="default: your home")
    add("--yes", action="store_true", help="start the servers and write the files")
    add("--force", action="store_true", help="replace what says something else, and keep a copy")
    add(
        "--seconds",
        type=float,
        default=_SECONDS,
        metavar="N",
        help="how long all servers together have to answer (default 60)",
    )


def run(options: argparse.Namespace) -> int:
    """Set up. 1 if it is not complete.

    Raises:
        ConfigurationError: what was given cannot be used.
    """
    home = (options.home or Path(os.environ.get("HOME") or "/")).expanduser().resolve()
    workspace = (options.workspace or Path.cwd()).expanduser().resolve()
    report = Report()
    client = read_client_file(options.servers.expanduser(), report)
    report.raise_errors()
    if not client.entries:
        raise ConfigurationError(f"{options.servers}: names no server that can be started here")
    # From here on everything is as it will be when this user starts the proxy.
    os.environ["HOME"] = str(home)
    settings = _settings(client, workspace)
    for note in client.notes:
        _say(f"note: {note}")
    if not options.yes:
        return _ask_for_yes(settings)
    servers = _read_servers(settings, options.seconds)
    documents = compose(preset(options.preset), servers, str(workspace))
    if len(orjson.dumps(documents.annotations)) > MAX_BYTES // 2:
        raise ConfigurationError("the servers list so many tools that no file holds them all")
    state = home / STATE_DIRECTORY
    files = (
        (state / "generated" / POLICY_NAME, documents.policy),
        (state / "generated" / ANNOTATIONS_NAME, documents.annotations),
        (state / SERVERS_NAME, _entries(client, settings, servers)),
        (state / CONFIG_NAME, documents.config),
    )
    for line in _described(servers):
        _say(line)
    try:
        written = _write([planned(path, document) for path, document in files], force=options.force)
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: cannot be written: {error.strerror}") from None
    silent = [server.name for server in servers if server.error]
    if written and silent:
        _say(f"not complete: {', '.join(silent)} did not answer; every call of it is denied. "
             "Run the same command again with --force when it starts")  # fmt: skip
    return int(not written or bool(silent))


def _settings(client: ClientServers, workspace: Path) -> Settings:
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in {CONFIG_VARIABLE, "SERVER_FILTER", "GENERATED_DIR", "TOOL_ANNOTATIONS_DIR"}
    }
    environ[SERVERS_VARIABLE] = orjson.dumps(client.entries).decode()
    environ["ALLOWED_DIRECTORY"] = str(workspace)
    return load_settings(environ)


def _ask_for_yes(settings: Settings) -> int:
    for spec in settings.servers:
        _say(f"would start {spec.name}: {' '.join([spec.command, *spec.args])}")
    _say(f"would write below {settings.state_dir}: {POLICY_NAME}, {ANNOTATIONS_NAME}, "
         f"{SERVERS_NAME}, {CONFIG_NAME}")  # fmt: skip
    _say("nothing was started or written: say --yes to do it")
    return 1


def _read_servers(settings: Settings, seconds: float) -> list[ReadServer]:
    # Joins all folders: long to import, and only this step needs them.
    from ironcurtain_proxy.wiring.live import list_live_tools  # noqa: PLC0415

    policy = load_policy(settings).policy
    found = list_live_tools(settings, policy, patience=seconds)
    servers: list[ReadServer] = []
    for spec in settings.servers:
        if spec.name not in found.answered:
            why = found.silent.get(spec.name) or f"no answer within {seconds:g} seconds"
            servers.append(ReadServer(name=spec.name, annotations=spec.annotations, error=why))
            continue
        tools = [tool.raw for tool in found.definitions if tool.server == spec.name]
        servers.append(annotate(spec.name, tools, recognised(spec.command, spec.args)))
    _refuse_shared_names(servers)
    return servers


def _refuse_shared_names(servers: Sequence[ReadServer]) -> None:
    """Two servers may share annotations only if both are the same known server."""
    own = [one for one in servers if one.annotations in {one.name, f"{one.name}-server"}]
    names = Counter(one.annotations for one in own)
    for name, count in names.items():
        if count > 1:
            raise ConfigurationError(f"two servers would be annotated as {shown(name)}: rename one")


def _entries(
    client: ClientServers, settings: Settings, servers: Sequence[ReadServer]
) -> dict[str, Json]:
    """The servers as they are started from now on."""
    read = {server.name: server for server in servers}
    entries: dict[str, Json] = {}
    for spec in settings.servers:
        server = read[spec.name]
        entry: dict[str, Json] = {**client.entries[spec.name]}
        if server.annotations != spec.annotations and not server.error:
            entry["annotations"] = server.annotations
        if spec.cwd is None:
            entry.update(_place(spec, server, settings))
        entries[spec.name] = entry
    return entries


def _place(spec: ServerSpec, server: ReadServer, settings: Settings) -> Mapping[str, Json]:
    """What the client's working directory gave a server, said in its entry."""
    # Relative words of the command were meant where the client starts it, not where it will run.
    there = settle(spec, settings.state_dir, Path.cwd(), make=False)
    words: dict[str, Json] = {}
    if there.command != spec.command:
        words["command"] = there.command
    if there.args != spec.args:
        words["args"] = [*there.args]
    runs_commands = any(tool.kind == "shell" for tool in server.tools)
    if runs_commands and launched(spec.command, spec.args) is None:
        # Commands without a directory of their own work on the project. What a launcher would run
        # must not be looked for there: the agent may have written it.
        words["cwd"] = WORKSPACE
        words.update(_safe_path(spec, there.args))
    return words


def _safe_path(spec: ServerSpec, args: Sequence[str]) -> Mapping[str, Json]:
    """What keeps a server in Python from importing modules of the workspace that it runs in.

    An option where there can be one: a variable would hold for the commands that it runs, too, and
    `python -m unittest` would not find the project's own tests.
    """
    if _PYTHON.fullmatch(spec.command.rpartition("/")[2]):
        if not _imports_from_here(args):
            return {}
        path = {**os.environ, **spec.env}.get("PATH")
        program = shutil.which(spec.command, path=path)
        # Older than 3.11 it knows neither the option nor the variable.
        return {"args": ["-P", *args]} if program and _knows_safe_path(program) else {}
    if any("python" in word for word in (spec.command, *args)):
        return {"env": {"PYTHONSAFEPATH": "1", **spec.env}}
    return {}


def _imports_from_here(args: Sequence[str]) -> bool:
    """Whether Python looks for modules in its working directory: not if it is given a script."""
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
        done = subprocess.run(given, capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603  the operator's own program
        return done.returncode == 0
    return False


def _described(servers: Sequence[ReadServer]) -> Iterator[str]:
    for server in servers:
        if server.error:
            yield f"{server.name}: did not answer: {visible(server.error)}"
            continue
        known = "" if server.annotations == server.name else f" (as {server.annotations})"
        count = len(server.tools)
        yield f"{server.name}{known}: {count} tool{'' if count == 1 else 's'}"
        for tool in server.tools:
            name = visible(tool.name)
            if tool.is_denied:
                yield f"  {name}: denied: {visible(tool.why)}"
            elif tool.kind == "unknown":
                yield f"  {name}: {_MEANS['unknown']}: {visible(tool.why)}"
            else:
                yield f"  {name}: {_MEANS[tool.kind]}"
        if server.left_out:
            yield f"  {server.left_out} more cannot be written down: denied"


_MEANS: Final[Mapping[ToolKind, str]] = {
    "files": "works on the files that it is given",
    "fetches": "fetches the URL that it is given",
    "shell": "runs a shell command",
    "looks": "shows what is its server's own",
    "keeps": "changes what is its server's own",
    "unknown": "not recognised, so never free",
}


def _write(files: list[PlannedFile], *, force: bool) -> bool:
    others = [file for file in files if file.state == "other"]
    if others and not force:
        for file in others:
            _say(f"{file.path}: is there and says something else: left as it is")
        _say("nothing was written: --force replaces these files and keeps them beside the new ones")
        return False
    kept = [file for file in files if file.state == "elsewhere" and not force]
    for file in kept:
        _say(f"{file.path}: names another workspace: left as it is. For this one set "
             "ALLOWED_DIRECTORY where your client starts the proxy")  # fmt: skip
    todo = [file for file in files if file not in kept and file.state != "same"]
    for file, backup in write(todo, SystemClock().now()):
        _say(f"{file.path}: written" + (f"; as it was: {backup.name}" if backup else ""))
    if not todo and not kept:
        _say("everything is there already")
    return True


def _say(line: str) -> None:
    sys.stdout.write(line.encode("utf-8", "backslashreplace").decode() + "\n")
