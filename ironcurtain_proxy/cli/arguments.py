"""The arguments that many commands share, and their sub-commands."""

import argparse
from collections.abc import Callable
from pathlib import Path


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add `--config`."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the configuration file (default: the one that `serve` finds)",
    )


def add_json(parser: argparse._ActionsContainer) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_lines(parser: argparse.ArgumentParser) -> None:
    """Add `--jsonl`, and `--workspace`, which lines may replace."""
    parser.add_argument("--jsonl", action="store_true", help="read and write JSON lines")
    parser.add_argument(
        "--workspace", type=Path, metavar="DIR", help="the workspace (default: this directory)"
    )


def add_subcommand(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    help_line: str,
    epilog: str,
) -> argparse.ArgumentParser:
    """Add a sub-command.

    Args:
        commands: the sub-commands of a command.
        name: its name.
        help_line: a command such as "list the servers", which also begins its own help.
        epilog: examples and exit status.
    """
    sentence = f"{help_line[0].upper()}{help_line[1:]}."
    return commands.add_parser(name, help=help_line, description=sentence, epilog=epilog)


def whole(least: int, most: int = 1_000_000) -> Callable[[str], int]:
    """Return the type of an argument that is a whole number, from `least` to `most`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} to {most}")
        return int(text)

    return read


def add_log(parser: argparse.ArgumentParser, default: str = "all of yours") -> None:
    """Add `--log`."""
    about = f"one audit log (default: {default})"
    parser.add_argument("--log", type=Path, metavar="PATH", help=about)
