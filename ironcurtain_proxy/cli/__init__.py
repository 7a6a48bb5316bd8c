"""The command line: the choice of the command, and the reports of its errors.

`commands.txt` declares each command. Its module is imported only when it is the one: the way from
`ironcurtain-proxy serve` to the first answer must not load what other commands need.
"""

import argparse
import errno
import gc
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from io import TextIOWrapper
from types import MappingProxyType
from typing import Final, NoReturn, Protocol, cast

from ironcurtain_proxy.cli.arguments import (
    COMMANDS,
    GROUPS,
    OTHER_WORDS,
    add_command,
    commands_with,
)
from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.version import VERSION

FIRST: Final = ("init", "review", "status", "audit", "rollback", "explain", "doctor")
"""The commands that everybody needs, which the help shows."""

_ELSEWHERE: Final = MappingProxyType(
    {
        **dict.fromkeys(("approve", "deny", "pending"), "reviewing"),
        **dict.fromkeys(("bundle", "desk", "relay", "reviewers"), "fleet"),
        **dict.fromkeys(("metrics", "patterns", "report", "window"), "engine"),
        "complain": "policy",
        "completion": "config",
        "containment": "status",
        "logout": "login",
        "web": "review",
    }
)
"""The commands whose function, `run_NAME`, is in another module than that of their name."""

DESCRIPTION: Final = "A security kernel between an AI agent and its MCP servers."

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy init                          put your clients' servers behind the proxy
  ironcurtain-proxy review                        answer calls that need an approval
  ironcurtain-proxy check --config config.json    find mistakes
  ironcurtain-proxy explain filesystem/read_file --args '{"path": "~/.ssh/id_rsa"}'
  ironcurtain-proxy audit tail                    the last calls and their outcomes
"""

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
_UNWRITABLE: Final = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""The errors of a system for an output that accepts no more data."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0; 1 if it ran and failed; 2 if what it was given cannot be used.
    """
    if sys.platform in {"win32", "cygwin"}:
        # Before any folder is imported: some modules that they need do not exist there.
        sys.stderr.write("ironcurtain-proxy: Windows is not supported: run it under WSL\n")
        return EXIT_USAGE
    if sys.stdout is None:  # Python's word for a closed one
        sys.stderr.write("ironcurtain-proxy: cannot write: standard output is closed\n")
        return EXIT_FAILED
    _mend_streams()
    try:
        try:
            return _run(list(sys.argv[1:] if argv is None else argv))
        finally:
            # Here, because Python only complains when the flush at its own exit fails.
            sys.stdout.flush()
    except KeyboardInterrupt as stop:
        if stop.args:
            # What holds now, from whoever knows it.
            sys.stderr.write(f"\nironcurtain-proxy: stopped: {stop}\n")
        return EXIT_INTERRUPTED
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        # The rest of the buffer would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # as in `audit tail | head`, which is no failure
            sys.stderr.write(f"ironcurtain-proxy: cannot write: {error.strerror}\n")
        return EXIT_FAILED


def _mend_streams() -> None:
    """Open what is closed of standard input and error, and let the output escape."""
    # The next file that is opened would take the place of a closed one, and what a server writes on
    # its standard error would stand in the audit log.
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        # Escapes for what a terminal of another encoding does not show.
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(arguments: list[str]) -> int:
    if (shown := _answered_at_once(arguments)) is not None:
        sys.stdout.write(shown)
        return 0
    if not arguments or (
        arguments[0].startswith("-") and arguments[0] not in ("-h", "--help", "--version")
    ):
        # Without a command: serve, so that one line in a client's configuration is enough.
        arguments.insert(0, "serve")
    if arguments[0] == "help":
        arguments = [arguments[1], "--help"]
    name = arguments[0]
    if name not in COMMANDS:
        sys.stderr.write(f"ironcurtain-proxy: {_no_command(name)}\n")
        return EXIT_USAGE
    parser = parser_of([name])
    options, strays = parser.parse_known_args(arguments)
    if strays:
        # Said by the command's own parser: argparse would show the usage of the whole program.
        commands = next(one.choices for one in parser._actions if isinstance(one.choices, dict))  # noqa: SLF001
        commands[name].error(f"unrecognized arguments: {' '.join(strays)}")
    # Imports make no garbage: collecting it costs a tenth of a start. Frozen, they are not looked
    # through afterwards either.
    gc.disable()
    run = _run_of(name)
    gc.freeze()
    gc.enable()
    return _outcome(run, options)


def _outcome(run: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Run a command. Return its exit status, or that of the error that it raised, which is said."""
    try:
        return run(options)
    except ConfigurationError as error:
        return _fail(error, EXIT_USAGE)
    except IronCurtainError as error:
        return _fail(error, EXIT_FAILED)
    except OSError as error:
        if error.errno == errno.ENOENT and error.filename is None:
            gone = "the current directory has been removed: change to another one"
            return _fail(IronCurtainError(gone), EXIT_USAGE)
        if error.filename is None or isinstance(error, BrokenPipeError):
            raise
        # A file or directory that the command cannot use, and of which it has no more to say.
        named = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
        code = EXIT_FAILED if error.errno in _UNWRITABLE else EXIT_USAGE
        return _fail(IronCurtainError(f"{named}: {error.strerror or error}"), code)


def _run_of(name: str) -> Callable[[argparse.Namespace], int]:
    """Return the function of a command: `run` of its module, or `run_NAME` of another."""
    word = name.replace("-", "_")
    module = import_module(f"ironcurtain_proxy.cli.{_ELSEWHERE.get(name, word)}")
    run = getattr(module, f"run_{word}" if name in _ELSEWHERE else "run")
    return cast("Callable[[argparse.Namespace], int]", run)


class _Writable(Protocol):
    def write(self, text: str, /) -> object: ...


class _Parser(argparse.ArgumentParser):
    """A parser that keeps the lines of its texts and reports write errors of its help."""

    def __init__(self, **words: object) -> None:
        keeps_lines = argparse.RawDescriptionHelpFormatter
        super().__init__(**words, formatter_class=keeps_lines)  # type: ignore[arg-type]

    def print_help(self, file: _Writable | None = None) -> None:
        """Write the help. Unlike argparse, raise if it cannot be written."""
        (file or sys.stdout).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Exit with the message, and the nearest of the words or options that there are."""
        from difflib import get_close_matches  # noqa: PLC0415  only where something is misspelled

        found = re.search(r"(?:arguments: |choice: ')(-*[\w-]+)", message)
        named = re.findall(r"[\w./-]+", message.partition("choose from ")[2])
        known = [word for word in named or _options(self) if found and word != found[1]]
        near = get_close_matches(found[1], known, n=1) if found else []
        hint = f": did you mean {near[0]}?" if near else ""
        if found and found[1] in COMMANDS:
            hint = f": the command stands first: ironcurtain-proxy {found[1]} …"
        super().error(message + hint)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the options of a parser and of its commands."""
    for action in parser._actions:  # noqa: SLF001  argparse has no other list of them
        yield from action.option_strings
        if isinstance(action.choices, dict):
            for inner in action.choices.values():
                yield from _options(inner)


def _answered_at_once(arguments: Sequence[str]) -> str | None:
    """Return the text that needs no command's module, or None if the words need one."""
    if not arguments:
        # A person in a terminal would wait in silence for messages of MCP. A client has a pipe.
        is_person = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
        return _welcome(os.environ) if is_person else None
    if arguments[0] == "--version":
        return f"ironcurtain-proxy {VERSION}\n"
    of_command = arguments[0] == "help" and arguments[1:2] and arguments[1] in COMMANDS
    is_help = arguments[0] in {"-h", "--help", "help"} and not of_command
    return _overview(is_all="--all" in arguments) if is_help else None


def _overview(*, is_all: bool) -> str:
    """Return the help: the commands that everybody needs, or all by their tasks."""
    width = max(map(len, COMMANDS)) + 2
    lines = ["usage: ironcurtain-proxy [COMMAND] [--help] ...", "", DESCRIPTION, ""]
    if is_all:
        for group, commands in GROUPS.items():
            named = [f"  {name:<{width}}{line}" for name, line in commands.items()]
            lines += [f"{group}:", *named, ""]
    else:
        lines += [*[f"  {name:<{width}}{COMMANDS[name]}" for name in FIRST], ""]
        rest = len(COMMANDS) - len(FIRST)
        lines += [f"`ironcurtain-proxy --help --all` lists the {rest} other commands.", ""]
    lines += ["options:", f"  {'--version':<{width}}print the version", "", EXAMPLES]
    return "\n".join(lines)


def _welcome(environ: Mapping[str, str]) -> str:
    """Return what a person reads who starts the proxy in a terminal without a command."""
    state = os.path.join(environ.get("HOME") or "/", ".ironcurtain")  # noqa: PTH118  pathlib is slow
    if not os.path.exists(os.path.join(state, "mcp-servers.json")):  # noqa: PTH110, PTH118  as above
        first = (
            "Nothing is set up yet. Run `ironcurtain-proxy init` in your project: it puts the\n"
            "servers of your MCP clients behind the proxy, and asks before it changes anything."
        )
    else:
        first = (
            "Your MCP clients start the proxy themselves. `ironcurtain-proxy review` asks you\n"
            "what the policy leaves open; `ironcurtain-proxy serve` speaks MCP on this terminal."
        )
    return f"{first}\n\n{_overview(is_all=False)}"


_OTHER_WORDS: Final = MappingProxyType(
    {
        **OTHER_WORDS,
        **dict.fromkeys(("uninstall", "remove"), "init --undo"),
        **dict.fromkeys(("version", "-v", "-V"), "--version"),
    }
)


def _no_command(word: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  only where something is misspelled

    near = [_OTHER_WORDS[word]] if word in _OTHER_WORDS else commands_with(word)
    near = near if len(near) == 1 else []
    # Of two words that share half of their letters, one is seldom a slip for the other.
    near = near or get_close_matches(word, COMMANDS, n=1, cutoff=0.75)
    meant = f' (did you mean "{near[0]}"?)' if near else ""
    shown = "".join([c if c.isprintable() else "?" for c in word[:80]])
    return f'"{shown}" is no command{meant}: `ironcurtain-proxy --help` lists them'


def parser_of(names: Iterable[str]) -> argparse.ArgumentParser:
    """Return the parser of some commands."""
    parser = _Parser(prog="ironcurtain-proxy", description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("--version", action="version", version=f"ironcurtain-proxy {VERSION}")
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=_Parser
    )
    for name in names:
        add_command(subparsers, name)
    return parser


def _fail(error: IronCurtainError, code: int) -> int:
    for line in str(error).splitlines():
        sys.stderr.write(f"ironcurtain-proxy: {line}\n")
    return code
