"""The dialogue of `init`, the files that it writes, and what it installs. Not a command itself."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct, field

from ironcurtain_proxy.audit.commands import is_telling, is_telling_option
from ironcurtain_proxy.audit.redaction import redact_text
from ironcurtain_proxy.audit.secrets import MASK
from ironcurtain_proxy.cli.output import UNCHANGED, counted, encodable, typed_line
from ironcurtain_proxy.config.annotating.texts import ReadServer
from ironcurtain_proxy.config.clients.plan import digest
from ironcurtain_proxy.config.policy.annotations_file import ANNOTATIONS_NAME
from ironcurtain_proxy.config.policy.policy_file import POLICY_NAME
from ironcurtain_proxy.config.presets import PlannedFile, Preset, compose, planned, write
from ironcurtain_proxy.config.reading.layers import CONFIG_NAME
from ironcurtain_proxy.config.reading.reading import MAX_BYTES
from ironcurtain_proxy.config.servers.servers_file import SERVERS_NAME
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.sandbox.installed import Machine, NotInstalled, fetch_of, look_up


class Dialogue(Struct):
    """The dialogue of one run."""

    yes: bool
    """Whether `--yes` accepts each proposal without a question."""
    as_json: bool
    all_steps: bool = False
    """Whether the person has accepted all steps at once."""
    holds: str = UNCHANGED
    """What is said where the person stops the command now."""
    answer: dict[str, Json] = field(default_factory=dict)
    """The output of `--json`."""

    def say(self, line: str = "") -> None:
        """Print a line for people."""
        if not self.as_json:
            sys.stdout.write(encodable(line) + "\n")
            sys.stdout.flush()

    def ask(self, question: str, keys: Sequence[str] = ("y", "n"), *, is_step: bool = False) -> str:
        """Return the chosen key. An empty line chooses the first key, which is the proposal.

        Args:
            question: for the person.
            keys: the first letters of the answers.
            is_step: whether it is one of the steps that were shown before, and that can be
                accepted all at once.

        Raises:
            ConfigurationError: the input ended.
        """
        if self.yes or (is_step and self.all_steps):
            return keys[0]
        choice = "/".join([keys[0].upper(), *keys[1:]])
        while True:
            sys.stdout.write(f"{question} [{choice}] ")
            sys.stdout.flush()
            line = typed_line()
            if not line:
                raise ConfigurationError(
                    f"the input ended before the questions were answered: {self.holds}"
                )
            word = line.strip().lower()
            if not word:
                return keys[0]
            if word[0] in keys:
                return word[0]

    def end(self, code: int) -> int:
        """Print the JSON output if it was requested. Return the exit code."""
        if self.as_json:
            line = orjson.dumps({"ok": code == 0, **self.answer}).decode()
            sys.stdout.write(line + "\n")
        return code


def require_terminal(talk: Dialogue, command: str = "init") -> None:
    """Refuse to ask without a terminal.

    Raises:
        ConfigurationError: there is no terminal.
    """
    if talk.yes:
        return
    if talk.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError(
            f"{command} asks questions, which needs a terminal: pass --yes to accept every "
            "proposal, or --dry-run to look at them"
        )


def clean(text: str, width: int = 100) -> str:
    """Return a text from a file, on one line and not too long."""
    text = visible(text)
    return text if len(text) <= width else text[: width - 1] + "…"


_BEFORE_PAIR: Final = frozenset({"-H", "--header", "--headers", "-e", "--env"})
"""Options before a header, or a variable of a container."""
_PAIR: Final = re.compile(r"([\w.-]+)([:=] ?)(?=.)", re.ASCII)
_PLAIN: Final = frozenset(
    {"accept", "content-type", "user-agent", "node_env", "log_level", "debug"}
)
"""Headers and variables that hold no secret."""


def masked_arguments(words: Sequence[str]) -> list[str]:
    """Mask the secrets in the arguments of a command, for a screen that others may see."""
    found: list[str] = []
    before = ""
    for word in words:
        name, sign, value = word.partition("=")
        if is_telling_option(before) and not word.startswith("-"):
            found.append(MASK)
        elif before in _BEFORE_PAIR:
            found.append(_masked_pair(word))
        elif sign and name in _BEFORE_PAIR:
            found.append(f"{name}={_masked_pair(value)}")
        elif value and is_telling(name.lstrip("-")):
            found.append(f"{name}={MASK}")
        else:
            found.append(redact_text(word))
        before = word
    return found


def _masked_pair(text: str) -> str:
    """Return a header or a variable, `NAME: VALUE` or `NAME=VALUE`, with its value masked."""
    pair = _PAIR.match(text)
    if pair is None or pair[1].lower() in _PLAIN:
        return redact_text(text)
    return f"{pair[1]}{pair[2]}{MASK}"


# --- files that init writes -----------------------------------------------------------------------
# The files that `init` writes below `~/.ironcurtain`.
NAMES = (f"generated/{POLICY_NAME}", f"generated/{ANNOTATIONS_NAME}", SERVERS_NAME, CONFIG_NAME)
"""The files in the order in which they are written: without the configuration, none has an effect.
"""


def planned_files(
    state: Path,
    preset: Preset,
    servers: Sequence[ReadServer],
    entries: Mapping[str, Json],
    workspace: Path,
) -> list[PlannedFile]:
    """Return the files that `init` will write.

    Raises:
        ConfigurationError: there is too much to write, or what is there cannot be read.
    """
    documents = compose(preset, servers, str(workspace))
    if len(orjson.dumps(documents.annotations)) > MAX_BYTES // 2:
        raise ConfigurationError("the servers list so many tools that no file holds them all")
    contents = (documents.policy, documents.annotations, {**entries}, documents.config)
    try:
        return [planned(state / name, one) for name, one in zip(NAMES, contents, strict=True)]
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: cannot be read: {error.strerror}") from None


def write_files(
    files: Sequence[PlannedFile],
    say: Callable[[str], None],
    *,
    force: bool,
    own: Mapping[str, str] | None = None,
) -> bool:
    """Write the files. Return False if an existing file has other content, and nothing was written.

    Args:
        files: to be written.
        say: prints a line.
        force: whether files with other content are replaced.
        own: the SHA-256 of each file as `init` wrote it. An unchanged file may be replaced.

    Raises:
        ConfigurationError: a file cannot be written.
    """
    own = own or {}
    others = [file for file in files if file.state == "other" and not _is_own(file, own)]
    if others and not force:
        for file in others:
            say(f"{file.path}: exists with other content and is not changed")
        say("nothing was written: --force replaces these files and keeps them beside the new ones")
        return False
    kept = [file for file in files if file.state == "elsewhere" and not force]
    for file in kept:
        say(f"{file.path}: names another workspace and is not changed. For this workspace, set "
            "ALLOWED_DIRECTORY where your client starts the proxy")  # fmt: skip
    todo = [file for file in files if file not in kept and file.state != "same"]
    try:
        for file, backup in write(todo, SystemClock().now()):
            say(f"{file.path}: written" + (f"; as it was: {backup.name}" if backup else ""))
    except OSError as error:
        why = f"{error.filename}: cannot be written: {error.strerror}"
        raise ConfigurationError(f"{why}; no client's file was changed; run init again") from None
    if not todo and not kept:
        say("everything is there already")
    return True


def _is_own(file: PlannedFile, own: Mapping[str, str]) -> bool:
    known = next(
        (own[name] for name in NAMES if str(file.path).endswith(f"/{name}") and name in own), ""
    )
    return file.before is not None and digest(file.before) == known


def digests(files: Sequence[PlannedFile], before: Mapping[str, str]) -> dict[str, str]:
    """Return the SHA-256 of each file that `init` wrote, by name."""
    found = dict(before)
    for name, file in zip(NAMES, files, strict=True):
        if file.state != "elsewhere":
            found[name] = digest(file.content)
    return found


# --- what servers lack ----------------------------------------------------------------------------
# The packages of servers, installed by `init` before it starts them.
#
# What a launcher fetches anew at each start cannot run in a sandbox; what is installed can.


def install_packages(
    talk: Dialogue, settings: Settings, machine: Machine, seconds: float
) -> dict[str, tuple[str, str]]:
    """Ask, and install the packages that launchers of servers would fetch.

    A failed installation is printed, and the launcher starts the server as before. Return the
    fault and the command of each that failed, by the name of its server.

    Args:
        talk: with the person.
        settings: with the servers.
        machine: where installed programs are searched.
        seconds: the limit for a start. A command that downloads may take five times as long.
    """
    wanted = {
        fetch: spec
        for spec in settings.servers
        if isinstance(look_up(spec, machine), NotInstalled) and (fetch := fetch_of(spec))
    }
    if not wanted:
        return {}
    talk.say("These packages would be fetched at each start, which no sandbox lets a server do. "
             "Installed once,\nthe servers run in sandboxes:")  # fmt: skip
    for command in wanted:
        talk.say(f"  {clean(shlex.join(masked_arguments(command)), 300)}")
    if talk.ask(f"Install {counted(len(wanted), 'package')} first?", is_step=True) == "n":
        return {}
    talk.holds = f"{UNCHANGED} but the packages that are installed by now"
    done: list[Json] = []
    faults: dict[str, tuple[str, str]] = {}
    for command, spec in wanted.items():
        talk.say(f"installing for {clean(spec.name)} (up to {5 * seconds:g} s) …")
        shown = shlex.join(masked_arguments(command))
        if fault := _install(command, spec, machine.environ, 5 * seconds):
            talk.say("  not installed; the end says why")
            faults[spec.name] = fault, shown
        else:
            done.append(shown)
    talk.answer["installed"] = done
    return faults


def _install(
    command: tuple[str, ...], spec: ServerSpec, environ: Mapping[str, str], seconds: float
) -> str:
    """Return why a command failed, in its own words, or "" if it succeeded."""
    # `uv` lies in the same directory as the `uvx` that a client's file names.
    beside = spec.command.rpartition("/")[0]
    path = os.pathsep.join([*([beside] if beside else []), environ.get("PATH", os.defpath)])
    # The addresses of an index may stand in the server's variables.
    return _run(command, {**environ, "PATH": path, **spec.env}, seconds)


def _run(command: tuple[str, ...], environ: Mapping[str, str], seconds: float) -> str:
    """Return why a command failed, in its own words, or "" if it succeeded."""
    program = shutil.which(command[0], path=environ.get("PATH", os.defpath))
    if program is None:
        return f"{command[0]} was not found"
    # Run in an empty directory: `npx` prefers what a `node_modules` there has.
    with tempfile.TemporaryDirectory() as place:
        try:
            done = subprocess.run(  # noqa: S603  the launcher's own installer; shown, and agreed to
                (program, *command[1:]),
                cwd=place,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{seconds:g} s were too short"
        except OSError as error:
            return str(error)
    if done.returncode == 0:
        return ""
    lines = (done.stderr.strip() or done.stdout).decode(errors="replace").strip().splitlines()
    # The first line with `error` is the reason: progress comes before it, advice after it.
    reasons = [line for line in lines if "error" in line.lower()] or lines[-1:]
    return reasons[0] if reasons else f"it ended with status {done.returncode}, and said nothing"


def own_machine(settings: Settings) -> Machine:
    """Return the machine as `init` finds it."""
    # Joins all folders: long to import.
    from ironcurtain_proxy.wiring.confinement import machine_of  # noqa: PLC0415

    return machine_of(settings, os.environ)
