"""The tools of servers, read for `init`, and the entries that start the servers from then on.

Not a command itself.
"""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import wrap
from typing import Final

import orjson

from ironcurtain_proxy.cli.output import counted
from ironcurtain_proxy.config.annotating.annotate import annotate
from ironcurtain_proxy.config.annotating.read_tool import ReadServer, ReadTool
from ironcurtain_proxy.config.packs.pack import read_pack
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.presets.preset import Preset
from ironcurtain_proxy.config.reading.environment import CONFIG_VARIABLE, SERVERS_VARIABLE
from ironcurtain_proxy.config.reading.problems import shown
from ironcurtain_proxy.config.servers.recognition import recognised, recognised_pack
from ironcurtain_proxy.config.servers.servers_file import WORKSPACE
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.downstream.working_directory import settle
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.question import visible
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.shell.launchers import launched

SECONDS: Final = 60.0
"""The limit for all servers together: the first start of `npx` or `uvx` fetches a package."""

_WIDTH: Final = 96
"""Columns of a list of tools."""
_PYTHON: Final = re.compile(r"(python|pypy)[0-9.]*")
_RUNS_MODULE: Final = re.compile(r"-[bBdEiIOPqRsSuvx]*[mc]")


def settings_for(
    entries: Mapping[str, Mapping[str, Json]],
    workspace: Path,
    credentials: Mapping[str, Mapping[str, str]] | None = None,
) -> Settings:
    """The settings for starting these servers to read their tools."""
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
    """An entry that starts the same wherever, and by whomever, the proxy is started.

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
        spec = settle(spec, workspace, workspace, make=False)
    found |= {"command": spec.command, "args": [*spec.args]}
    env = entry.get("env")
    variables = {**env} if isinstance(env, dict) else {}
    if "/" not in command and "PATH" not in variables:
        places = _places(environ.get("PATH", ""), workspace)
        bare = os.pathsep.join(_BARE_PATH)
        path = os.pathsep.join(dict.fromkeys([*places, *_BARE_PATH]))
        if shutil.which(command, path=bare) is None and shutil.which(command, path=path):
            found["env"] = {**variables, "PATH": path}
    return found


def _places(path: str, workspace: Path) -> list[str]:
    """The directories of a `PATH`, without those that the agent may write."""
    closed = os.path.realpath(workspace)
    return [
        place
        for place in path.split(os.pathsep)
        if place.startswith("/")
        and Path(place).is_dir()
        and not Path(os.path.realpath(place)).is_relative_to(closed)
    ]


def read_servers(settings: Settings, seconds: float) -> list[ReadServer]:
    """Start the servers, list their tools and stop the servers."""
    # Joins all folders: long to import, and only this step needs them.
    from ironcurtain_proxy.wiring.live import list_live_tools  # noqa: PLC0415

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
    """Two servers may share annotations only if both are the same known server."""
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
    """The entries that start the servers behind the proxy.

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
    spec: ServerSpec,
    server: ReadServer,
    settings: Settings,
    entry: Mapping[str, Json],
    base: Path,
) -> Mapping[str, Json]:
    """The keys of an entry that depend on the working directory of the client."""
    # Relative paths in the command start at the client's directory, not at the server's new one.
    there = settle(spec, settings.state_dir, base, make=False)
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
    """The keys of an entry that keep a Python server from importing modules of its workspace.

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
        env = entry.get("env")
        return {"env": {"PYTHONSAFEPATH": "1", **(env if isinstance(env, dict) else {})}}
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
        done = subprocess.run(given, capture_output=True, timeout=SECONDS, check=False)  # noqa: S603  the operator's own program
        return done.returncode == 0
    return False


def described(servers: Sequence[ReadServer], chosen: Preset) -> Iterator[str]:
    """The tools that were read, one line for each tool, and what the preset does with it."""
    for server in servers:
        yield _heading(server)
        for tool in server.tools:
            why = f": {visible(tool.why)}" if tool.is_denied or tool.kind == "unknown" else ""
            yield f"  {visible(tool.name)}: {_meaning(tool, chosen)}{why}"
        if server.left_out:
            yield f"  {server.left_out} more cannot be described, so they are asked about or denied"


def summed_up(servers: Sequence[ReadServer], chosen: Preset) -> Iterator[str]:
    """The tools that were read, one line for each kind, and what the preset does with them."""
    for server in servers:
        yield _heading(server)
        kinds: dict[str, list[str]] = {}
        for tool in server.tools:
            kinds.setdefault(_meaning(tool, chosen), []).append(visible(tool.name))
        for meaning, names in kinds.items():
            yield from wrap(
                f"{meaning}: {', '.join(names)}",
                width=_WIDTH,
                initial_indent="  ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        if server.left_out:
            yield f"  not described, so asked about or denied: {server.left_out} more"


def _heading(server: ReadServer) -> str:
    if server.error:
        return f"{server.name}: did not answer: {visible(server.error)}"
    known = "" if server.annotations == server.name else f" (as {server.annotations})"
    return f"{server.name}{known}: {counted(len(server.tools), 'tool')}"


def _meaning(tool: ReadTool, chosen: Preset) -> str:
    if tool.is_denied:
        return "not described, so asked about or denied"
    return _of_unknown(chosen) if tool.kind == "unknown" else _MEANS[tool.kind]


def _of_unknown(chosen: Preset) -> str:
    if any(rule.about == "unknown" and rule.then == "deny" for rule in chosen.rules):
        return "denied"
    if "containment" in chosen.config:
        return "you are asked, unless a sandbox holds the call"
    return "you are asked"


_MEANS: Final[Mapping[str, str]] = {
    "files": "works on the files that it is given",
    "fetches": "fetches the URL that it is given",
    "shell": "runs a shell command",
    "looks": "reads its server's own data",
    "keeps": "changes its server's own data",
}
