"""The command lines that a client starts: at each event, and for each command of its shell.

The launcher is a shell's, because a hook that cannot start is skipped and the call runs: where the
interpreter is gone, the stub is gone or killed, it says so and denies by exit code 2. It costs
0.4 ms.
"""

import os
import re
import shlex
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Final

import orjson

from ironcurtain_proxy.config.reading.reading import read_text
from ironcurtain_proxy.control_places.rules import read_names
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.hooks import stub
from ironcurtain_proxy.hooks.events import GATES, HookClient, HookDialect, Refuse
from ironcurtain_proxy.mailbox.mailboxes import parent_of
from ironcurtain_proxy.model.values import Json, object_of, words
from ironcurtain_proxy.shell.statements import parse_command

INTERPRETER: Final = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
"""The interpreter of the stub. That of a virtual environment takes a third longer to start, because
it looks for its libraries first, of which the stub needs none."""
STUB: Final = Path(stub.__file__)
_LOADS: Final = (
    "import sys; sys.tracebacklimit = 0; from _frozen_importlib_external import SourceFileLoader; "
    "exec(SourceFileLoader('__main__', sys.argv.pop(1)).get_code('__main__'))"
)
"""Runs the stub by its compiled form, as an import would: to compile it took a quarter of the time
of a hook, and the interpreter keeps no compiled form of a program that it is given."""
_STARTS: Final = (INTERPRETER, "-X", "utf8", "-I", "-S", "-c", _LOADS, str(STUB))
_WORDS: Final = (
    "IronCurtain: its hook cannot run, so nothing was run. Tell the user to look at "
    "ironcurtain-proxy doctor."
)
_GATE: Final = f'"$0" "$@" && exit 0; echo "{_WORDS}" >&2; exit 2'
"""Before a call: whatever is no answer denies."""
_OTHER: Final = '"$0" "$@" || exit 0'
"""Where nothing can be denied, a failure stops nobody."""
_PROGRAM: Final = "ironcurtain-proxy"
_SERVERS: Final = re.compile("mcp[-_]?servers", re.IGNORECASE)
"""What begins the servers of a sub-agent's file, a text that is not read further."""
_IN_TIME: Final = 10
"""Seconds by which an answer comes before the client stops waiting."""
_LEVELS: Final = 8
"""The most processes above a client of which one may be looked into."""
_REACHES: Final = re.compile(
    r"\b(?:LD_(?:AUDIT|DEBUG|LIBRARY_PATH|PRELOAD|SHOW_AUXV|TRACE_LOADED_OBJECTS)"
    r"|SHELLOPTS|BASH_ENV|GCONV_PATH|LOCPATH)\b"
)
"""Variables by which a project reaches into every program that its client starts, also into our
hook: with its own library, or so that nothing is run, or something is printed before the answer."""
_STEERS: Final = re.compile(
    r"PATH|HOME|ENV|IFS|CDPATH|BASH\w+(?:%%)?|(?:CLAUDE_CODE_)?SHELL|SHELLOPTS|PS4|ZDOTDIR|LD_\w+"
    r"|XDG_CONFIG_\w+|GCONV_PATH|LOCPATH|NLSPATH|LANG(?:UAGE)?|LC_\w+|GIT_\w+|\w*PAGER|LESS\w*"
    r"|RIPGREP_CONFIG_PATH|BAT_\w+|NODE_(?:OPTIONS|PATH)|OPENSSL_(?:CONF|ENGINES|MODULES)"
    r"|(?i:npm_config_\w+)|PYTHON\w+|PERL(?:5\w+|LIB)|RUBY\w+|AWK\w*PATH"
)
"""Variables that choose the programs which a command runs that only reads, or what these run."""
_SHELLS: Final = re.compile(
    r"BASH\w+(?:%%)?|(?:CLAUDE_CODE_)?SHELL|SHELLOPTS|PS4|ZDOTDIR|LD_\w+|GCONV_PATH|LOCPATH"
)
"""Of these, what the shell itself obeys by which a client starts our prefix, outside a sandbox."""
_HELPERS: Final = words("bzip2 column gzip less lesspipe more perl tar unzip xz zstd")
"""Programs that other programs find by `PATH` and run, besides those of prompts."""
_MOVES: Final = words("cd chdir popd pushd -C")
"""What changes the directory from which a relative part of `PATH` leads."""
_SOURCED: Final = re.compile(r"\bsource (/[\w./-]+) ", re.ASCII)
_SETS_PATH: Final = re.compile(r"""\bPATH\+?=((?:\$?'[^']*'|"[^"]*"|\\.|[^\s;&|'"\\])*)""")
_COMPUTED: Final = "$"
"""Stands for a directory of `PATH` that nobody knows before the shell has computed it."""
_USUAL: Final = re.compile(
    r"LESS(?:OPEN=\|{0,2}-? ?/usr/bin/lesspipe(?:\.sh)? %s|CLOSE=/usr/bin/lesspipe %s %s)"
    r"|LESS=[-FRXMSi ]*|LESS(?:_TERMCAP_\w+|CHARSET)=.*|LESSHISTFILE=-|\w*PAGER=(?:less|cat)?"
    r"|PYTHON(?:UNBUFFERED|DONTWRITEBYTECODE|IOENCODING|UTF8|HASHSEED|FAULTHANDLER)=.*"
    r"|NODE_OPTIONS=--max[-_]old[-_]space[-_]size=\d+|XDG_CONFIG_DIRS=(?:/etc/[\w/-]*(?::|\Z))+"
    r"|GIT_(?:AUTHOR|COMMITTER|PS1|TERMINAL)_\w+=.*|GIT_EDITOR=(?:true|vim?|nano|code --wait)"
    r"|(?:LANG(?:UAGE)?|LC_\w+)=[^/]*|SHELL=(?:/usr)?/bin/(?:ba|da|z|fi)?sh",
    re.DOTALL,
)
"""What these are in many a session, or a project sets, without a program that it could choose."""
_COMMENT: Final = re.compile(
    r'("(?:\\.|[^"\\])*+(?:"|\Z))|//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)|,(?=\s*[}\]])', re.DOTALL
)
"""A text of JSON, which stays, or a comment, or a comma behind the last of a list. What does not
end goes on to the end of the file."""
DOORS: Final = "doors"
"""The directory of the sockets of kernels, in that of the proxy's own files."""
HOME: Final = "~"
"""The directory of the proxy's own files of whoever starts the hook, in an administrator's file."""


def hook_words(
    dialect: HookDialect, event: str, state: Path, *, observes: bool = False
) -> list[str]:
    """Return the command and its arguments, for a client that starts it without a shell.

    Args:
        dialect: of the client.
        event: of the client, or `check`, which asks nobody.
        state: the directory of the proxy's own files, or `HOME`.
        observes: whether nothing is denied.
    """
    kind = dialect.events.get(event, "check")
    seconds, denial = 0 if kind == "check" else dialect.seconds(event), ""
    if kind in GATES and not observes:
        denial = orjson.dumps(dialect.answer(event, Refuse("%s"))).decode()
        seconds -= _IN_TIME
    variable = dialect.prefix.variable if dialect.prefix else "-"
    words = [str(state), dialect.client, event, sys.executable, kind, str(seconds)]
    words += [variable, denial]
    return [*launcher(), "-c", _GATE if denial else _OTHER, *_STARTS, *words]


def launcher(shell: str = "/bin/sh") -> list[str]:
    """Return how the launcher starts. Bash obeys `SHELLOPTS=noexec`, unless it is told not to."""
    return [shell, "-p"] if os.path.realpath(shell).endswith("/bash") else [shell]


def prefix_file(state: Path, client: str) -> Path:
    """Return the program that starts the commands of a client's shell."""
    return state / f"run-{client}"


def prefix_text(state: Path) -> str:
    """Return that program: a client's setting names a file, and no arguments."""
    words = [*_STARTS, "run", str(state)]
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def fired_file(state: Path, client: HookClient) -> Path:
    """Return the file that says when an event of a client last came, and how many have come."""
    return state / DOORS / f"{client}.fired"


def note_event(state: Path, client: HookClient) -> None:
    """Note that an event came: the file's time says when, and its size how many came.

    Raises:
        OSError: it cannot be written.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(fired_file(state, client), flags, 0o600)
    try:
        os.write(descriptor, b".")
    finally:
        os.close(descriptor)


def problem_file(state: Path, client: HookClient) -> Path:
    """Return the file that says why the last kernel of a client could not start."""
    return state / DOORS / f"{client}.problem"


def places_of(project: Path, home: Path) -> Iterator[Path]:
    """Give a project's directory and those above it: a client may take its files from each.

    What lies in the home is the user's own, and so is what lies above it.
    """
    above = (project, *project.parents)
    yield from takewhile(lambda place: place != home, above)


def settings_of(dialect: HookDialect, project: Path, home: Path) -> Iterator[Path]:
    """Give the settings of a project: a client that starts below its root obeys those there."""
    home = Path(os.path.realpath(home))
    for place in places_of(Path(os.path.realpath(project)), home):
        yield from [place / name for name in dialect.project_files]


def switched_off_by(dialect: HookDialect, project: Path, home: Path) -> Path | None:
    """Return the file of a project that switches hooks off or overrules them, or None.

    Clients obey such a file without a word.
    """
    # What we may not read, and a directory such as an environment of Python, no client reads.
    files = [one for one in settings_of(dialect, project, home) if os.access(one, os.R_OK)]
    return next((one for one in files if _is_against_us(dialect, one)), None)


def _is_against_us(dialect: HookDialect, file: Path) -> bool:
    """Return whether a file does that, or might: its client may read what we cannot."""
    try:
        text = "" if file.is_dir() else read_text(file).removeprefix("\ufeff")
        document = _document_in(file, text)
        is_found = _REACHES.search(f"{text}{document}") is not None
        return is_found or dialect.is_off(document) or dialect.overrules(document)
    except (ConfigurationError, ValueError, AttributeError, RecursionError):
        return True


def _document_in(file: Path, text: str) -> Mapping[str, object]:
    """Return what settings say; what is known of an `.env` is its text.

    Raises:
        ValueError: they cannot be read.
        RecursionError: as above.
    """
    if file.suffix == ".toml":
        return tomllib.loads(text)
    # Gemini CLI and opencode take comments, the latter also a comma at the end.
    found = orjson.loads(_COMMENT.sub(r"\1", text)) if text and file.name != ".env" else {}
    return found if isinstance(found, dict) else {}


def variables_of(pid: int) -> dict[str, str]:
    """Return the variables that a process was started with.

    Raises:
        OSError: it has ended, or is another user's.
    """
    texts = os.fsdecode(Path(f"/proc/{pid}/environ").read_bytes()).split("\0")
    return dict(one.split("=", 1) for one in texts if "=" in one)


def seen_from(pid: int) -> int:
    """Return the nearest process from this one up that may be looked into, or 0.

    A client may hide itself from its user. What started it has its variables, or fewer, and no
    project has set them.
    """
    for _ in range(_LEVELS):
        if pid == 0:
            break  # above the first process of a container or machine
        with suppress(PermissionError):
            variables_of(pid)
            return pid
        pid = parent_of(pid)
    return 0


def steering_variables(
    dialect: HookDialect, given: Mapping[str, str], hook: int, client: int, home: Path, file: Path
) -> Mapping[str, str]:
    """Return the variables of a hook that steer commands and that its user has not set.

    A project's file has, and the client's commands get them, too.

    Args:
        dialect: of the client.
        given: the variables of the hook.
        hook: its process.
        client: the client's process: what it was started with is its user's.
        home: the user's, also where a variable names it.
        file: the user's own settings of the client.

    Raises:
        OSError: one of the two has ended.
    """
    seen = seen_from(client)
    own = variables_of(seen) if seen else {}
    known = [dialect.sets, own, dict.fromkeys(given, str(home))]
    new = [name for name in given if given[name] not in [one.get(name) for one in known]]
    here = os.path.realpath(f"/proc/{client if seen == client else hook}/cwd")
    found = _steering({name: given[name] for name in new}, own.get("PATH", ""), here)
    if found:
        with suppress(OSError, ConfigurationError, ValueError):
            chosen = object_of(object_of(orjson.loads(read_text(file))).get("env"))
            found = {name: found[name] for name in found if chosen.get(name) != found[name]}
    return found


def _steering(given: Mapping[str, str], path: str, project: str) -> dict[str, str]:
    """Return which of these variables steer commands; `path`: what `PATH` was before."""
    texts = {name: f"{name}={given[name]}" for name in given if _STEERS.fullmatch(name)}
    found = {name: given[name] for name in texts if not _USUAL.fullmatch(texts[name])}
    # Clients put their own directories into it, and only one of the project counts.
    added = {*found.get("PATH", "").split(":")} - {*path.split(":")}
    if "PATH" in found and all(_is_fixed(one, project) for one in added):
        del found["PATH"]
    return found


def runs_what_agents_write(command: str, here: str, path: str, project: str) -> bool:
    """Return whether a command may run a program that its user's `PATH` leads to in the project.

    An environment of Python that is activated leads there, and `scripts` that direnv or mise add;
    agents write files there unasked.

    Args:
        command: as the client has it.
        here: where it is to run.
        path: the `PATH` that it gets.
        project: where agents write.
    """
    places, there = _open_places(path, project), set[str]()
    if _COMPUTED in places:
        return True
    for place in places:
        try:
            there.update(os.listdir(os.path.join(here, place)))  # noqa: PTH118, PTH208  names alone
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return True  # programs run from one that an agent has made unreadable, too
    is_relative = not all(one.startswith("/") for one in places)
    if not there and not is_relative:
        return False
    parsed = parse_command(command)
    texts = [word.text for one in parsed.every_command() for word in one.words]
    if parsed.unreadable or (is_relative and not _MOVES.isdisjoint(texts)):
        return True
    return not there.isdisjoint({*texts, *_HELPERS, *read_names().acted_on.programs})


def path_before(text: str, variables: Mapping[str, str]) -> str:
    """Return where a shell may look for programs after these words of its client, all together.

    Args:
        text: what stands before the command, and names files that are read.
        variables: those of the shell, `PWD` among them.
    """
    texts, found = [text], [variables.get("PATH", "")]
    for file in _SOURCED.findall(text):
        with suppress(OSError, ConfigurationError):
            texts.append(read_text(Path(file)))
    for value in _SETS_PATH.findall("\n".join(texts)):
        plain = re.sub(r"\$?['\"]|\\", "", value)
        known = re.sub(r"\$\{?(HOME|PATH|PWD)\b\}?", lambda one: variables.get(one[1], ""), plain)
        found += [_COMPUTED if re.search(r"[$`~(]", one) else one for one in known.split(":")]
    return ":".join(dict.fromkeys(found))


def _open_places(path: str, project: str) -> tuple[str, ...]:
    """Return the directories of a `PATH` in which an agent of the project can write."""
    return tuple([one for one in path.split(os.pathsep) if not _is_fixed(one, project)])


def chooses_shell(steering: Collection[str]) -> bool:
    """Return whether what a client starts before our prefix obeys one of these variables."""
    return any(_SHELLS.fullmatch(name) for name in steering)


def variables_for_commands(dialect: HookDialect, project: Path, home: Path) -> dict[str, str]:
    """Return what steers commands of the variables that a project's files give to them alone.

    No hook has these. A file that cannot be read may set some.
    """
    found: dict[str, str] = {}
    if dialect.sets_in is not None:
        for file in settings_of(dialect, project, home):
            try:
                if file.is_file():
                    text = read_text(file).removeprefix("\ufeff")
                    given = dialect.sets_in(_document_in(file, text))
                    found |= _steering(given, "", str(file.parent.parent))
            except (OSError, ConfigurationError, ValueError, AttributeError, RecursionError):
                found |= {"PATH": f"{file}, which cannot be read"}
    return found


def server_of_our_name(dialect: HookDialect, project: Path, home: Path) -> Path | None:
    """Return a project's file that gives our name to a server which is not this proxy.

    Clients let it take the place of the user's own server of that name.
    """
    for place in places_of(project, home):
        for file, key in [
            (one, key) for name, key in dialect.server_files for one in place.glob(name)
        ]:
            with suppress(OSError, ConfigurationError):
                text = read_text(file).removeprefix("\ufeff")
                if "ironcurtain" in text.lower() and not _is_proxy(text, file, key, place):
                    return file
    return None


def _is_proxy(text: str, file: Path, key: str, project: Path) -> bool:
    """Return whether all servers of our name in a project's file start this proxy."""
    if not key:
        return _SERVERS.search(text) is None
    try:
        document = tomllib.loads(text) if file.suffix == ".toml" else orjson.loads(text)
        entries = document.get(key, {}).items()
        ours = [entry for name, entry in entries if name.lower().startswith("ironcurtain")]
        return all(_starts_proxy(entry, project) for entry in ours)
    except (ValueError, AttributeError, TypeError, RecursionError):
        return False


_PLAIN_STARTS: Final = (
    *([_PROGRAM], [_PROGRAM, "serve"], ["uvx", _PROGRAM], ["pipx", "run", _PROGRAM]),
)
_PLAIN_VARIABLES: Final = re.compile(r"SERVER_FILTER|SERVER_CREDENTIALS|IRONCURTAIN_SECRET_\w+")


def _starts_proxy(entry: Mapping[str, Json], project: Path) -> bool:
    """Return whether an entry is one that `init` writes: others may choose what the proxy runs."""
    # Reads what is installed: slow to import, and only files with our name are looked at.
    from ironcurtain_proxy.config.clients.entries import own_command  # noqa: PLC0415

    command, given = entry.get("command"), entry.get("args")
    words = [*(command if isinstance(command, list) else [command])]
    words += given if isinstance(given, list) else []
    program = str(words[0])
    with suppress(ConfigurationError):
        own, args = own_command(os.environ)
        if os.path.realpath(program) == os.path.realpath(own) and words[1:] in (args, ["serve"]):
            words = [_PROGRAM]
    here = os.path.realpath(project)

    def is_plain(name: str, value: str) -> bool:
        if name == "ALLOWED_DIRECTORY":
            return Path(os.path.realpath(value)).is_relative_to(here)
        if name == "PATH":
            # It leads to the sandbox's program. What it could choose itself has its whole path.
            return program.startswith("/") and _is_fixed(value, here)
        return _PLAIN_VARIABLES.fullmatch(name) is not None

    variables = {**object_of(entry.get("env")), **object_of(entry.get("environment"))}
    return words in _PLAIN_STARTS and all(is_plain(one, str(variables[one])) for one in variables)


def _is_fixed(path: str, project: str) -> bool:
    """Return whether what a `PATH` leads to is neither the project's nor another user's."""
    places = [(one, Path(os.path.realpath(one))) for one in path.split(os.pathsep)]
    return all(
        one.startswith("/")
        and not real.is_relative_to(project)
        and (not real.exists() or real.stat().st_uid in {0, os.geteuid()})
        and (not real.exists() or not real.stat().st_mode & 0o002)
        for one, real in places
    )


def is_ours(words: Collection[str] | str) -> bool:
    """Return whether a hook of a client's file is one of ours, of whatever version."""
    text = words if isinstance(words, str) else " ".join(words)
    return f"ironcurtain_proxy/hooks/{STUB.name}" in text
