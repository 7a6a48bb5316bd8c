"""The command line: which command is meant, and what its faults look like.

Each command is a module with `add_arguments` and `run`, imported only when it is the one: the way
from `ironcurtain-proxy serve` to the first answer must not load what other commands need.
"""

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Final, Protocol, cast

from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.version import VERSION

GROUPS: Final = MappingProxyType(
    {
        "set up": {
            "init": "put the servers of your MCP clients behind the proxy",
            "annotate": "say what a server's tools take and do, and write it down",
            "doctor": "say what is missing on this machine, and how to get it",
            "check": "read all configuration and show every problem at once",
            "status": "show what decides, who is asked and what is confined",
            "config": "bring an older configuration file up to date",
            "completion": "print the completion of bash, zsh or fish",
            "login": "log in to a server that is reached over HTTP",
            "logout": "forget the login to a server",
            "serve": "serve MCP on stdin and stdout (the default), or over HTTP",
        },
        "watch": {
            "audit": "read, follow and verify the audit log",
            "report": "write a page with plots: calls, questions, refusals",
            "containment": "show where containment has ended, and resume it",
        },
        "decide": {
            "review": "answer calls that wait for an approval, on a live screen",
            "web": "answer calls, and look at the record, in a browser",
            "pending": "list the calls that wait for an approval",
            "approve": "approve a call that waits",
            "deny": "refuse a call that waits, with a word to the agent",
            "grants": "list, revoke or clear remembered approvals",
            "pins": "show, accept or reset what servers say of themselves",
            "rollback": "undo the changes of a call, or all changes since it",
        },
        "prove": {
            "policy": "show, change, test and replay the policy",
            "explain": "show step by step why a call is allowed, escalated or denied",
            "decide": "decide calls from JSON lines, without any server",
            "shell": "show what a shell command can do, and what an approval of it covers",
            "rehearse": "count the questions that recorded sessions would have met",
            "auto-approve": "measure the auto-approver on labelled scenarios",
        },
        "engine": {
            "metrics": "show the auto-confirm engine's metrics",
            "patterns": "propose, list, promote or disable approval patterns",
            "window": "open or close a testing window or a deployment",
        },
    }
)
"""The commands as people look for them, each with its line of help."""

COMMANDS: Final = MappingProxyType(
    {name: line for group in GROUPS.values() for name, line in group.items()}
)
"""Each command with its line of help; the module of the same name, `_` for `-`, carries it out."""

DESCRIPTION: Final = "A security kernel between an AI agent and its MCP servers."

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy init                          put your clients' servers behind the proxy
  ironcurtain-proxy review                        answer what the policy leaves open
  ironcurtain-proxy check --config config.json    is everything right?
  ironcurtain-proxy explain filesystem/read_file --args '{"path": "~/.ssh/id_rsa"}'
  ironcurtain-proxy audit tail                    what was called, and what became of it
"""

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2


class Command(Protocol):
    """What a module of a command offers."""

    DESCRIPTION: str
    EXAMPLES: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        ...

    def run(self, options: argparse.Namespace) -> int:
        """Carry it out. Returns the exit code."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0; 1 if it ran and failed; 2 if what it was given cannot be used.
    """
    if sys.platform in {"win32", "cygwin"}:
        # Before any folder is imported: some modules that they need do not exist there.
        sys.stderr.write("ironcurtain-proxy: Windows is not supported: run it under WSL\n")
        return EXIT_USAGE
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or (
        arguments[0].startswith("-") and arguments[0] not in ("-h", "--help", "--version")
    ):
        # Without a command: serve, so that one line in a client's configuration is enough.
        arguments.insert(0, "serve")
    name = arguments[0]
    if (shown := _answered_at_once(name)) is not None:
        sys.stdout.write(shown)
        return 0
    if name not in COMMANDS:
        sys.stderr.write(f"ironcurtain-proxy: {_no_command(name)}\n")
        return EXIT_USAGE
    return _carry_out(name, arguments)


def _carry_out(name: str, arguments: Sequence[str]) -> int:
    gc.disable()  # modules hold no garbage: to look for it costs a twentieth of a start
    parser, commands = _parser([name])
    gc.enable()
    options = parser.parse_args(arguments)
    try:
        return commands[options.command].run(options)
    except ConfigurationError as error:
        return _fail(error, EXIT_USAGE)
    except IronCurtainError as error:
        return _fail(error, EXIT_FAILED)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has gone, as in `audit tail | head`. Python would complain once
        # more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED


def _answered_at_once(word: str) -> str | None:
    """What is printed without importing any command."""
    if word == "--version":
        return f"ironcurtain-proxy {VERSION}\n"
    return _overview() if word in {"-h", "--help"} else None


def _overview() -> str:
    width = max(map(len, COMMANDS)) + 2
    lines = ["usage: ironcurtain-proxy [COMMAND] [--help] ...", "", DESCRIPTION]
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:", *[f"  {name:<{width}}{line}" for name, line in commands.items()]]
    lines += ["", "options:", f"  {'--version':<{width}}print the version", "", EXAMPLES]
    return "\n".join(lines)


def _no_command(word: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  only where something is misspelled

    near = get_close_matches(word, COMMANDS, n=1)
    meant = f' (did you mean "{near[0]}"?)' if near else ""
    shown = "".join([c if c.isprintable() else "?" for c in word[:80]])
    return f'"{shown}" is no command{meant}: `ironcurtain-proxy --help` lists them'


def _parser(names: list[str]) -> tuple[argparse.ArgumentParser, dict[str, Command]]:
    parser = argparse.ArgumentParser(
        prog="ironcurtain-proxy",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ironcurtain-proxy {VERSION}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands: dict[str, Command] = {}
    for name in names:
        module = cast("Command", import_module(f"ironcurtain_proxy.cli.{name.replace('-', '_')}"))
        added = subparsers.add_parser(
            name,
            help=COMMANDS[name],
            description=module.DESCRIPTION,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(added)
        commands[name] = module
    return parser, commands


def _fail(error: IronCurtainError, code: int) -> int:
    for line in str(error).splitlines():
        sys.stderr.write(f"ironcurtain-proxy: {line}\n")
    return code
