"""`ironcurtain-proxy completion`: a shell's completion, generated from the commands' arguments."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

DESCRIPTION: Final = """\
Print a script with which a shell completes commands, options and file names. The script never
starts the proxy. Print it again after an upgrade.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy completion bash > ~/.local/share/bash-completion/completions/ironcurtain-proxy
  ironcurtain-proxy completion zsh > ~/.zfunc/_ironcurtain-proxy      # ~/.zfunc in $fpath
  ironcurtain-proxy completion fish > ~/.config/fish/completions/ironcurtain-proxy.fish

exit status: 0; 2 for another shell
"""

SHELLS: Final = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("shell", choices=SHELLS, help="your shell")


def run(options: argparse.Namespace) -> int:
    """Print the completion script."""
    import shtab  # noqa: PLC0415  only here, and it needs every command

    from ironcurtain_proxy.cli import COMMANDS, _parser  # noqa: PLC0415  it imports this module

    parser, _ = _parser(list(COMMANDS))
    _name_files(parser, shtab.FILE, shtab.DIRECTORY)
    sys.stdout.write(shtab.complete(parser, options.shell) + "\n")
    return 0


def _name_files(
    parser: argparse.ArgumentParser, file: Mapping[str, object], directory: Mapping[str, object]
) -> None:
    """Complete arguments of type `Path` with paths."""
    for action in parser._actions:  # noqa: SLF001  as shtab itself does: there is no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  the same
            for inner in action.choices.values():
                _name_files(inner, file, directory)
        elif action.type is Path:
            action.complete = directory if action.metavar == "DIR" else file  # type: ignore[attr-defined]
