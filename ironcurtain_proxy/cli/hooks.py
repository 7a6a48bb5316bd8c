"""`ironcurtain-proxy hooks`: clients' own tools under the same policy, by their hooks."""

import argparse
import os
from pathlib import Path
from typing import Final, get_args

from ironcurtain_proxy.cli.arguments import add_subcommand
from ironcurtain_proxy.cli.init import proposed_workspace
from ironcurtain_proxy.cli.output import say
from ironcurtain_proxy.config.presets.preset import PRESETS
from ironcurtain_proxy.config.reading.operator_paths import STATE_DIRECTORY
from ironcurtain_proxy.config.settings import home_directory
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.hooks.events import HookClient

DESCRIPTION: Final = """\
Put the shell, the edits and the fetches of a client under the policy: its hooks ask the kernel
before each call. Other people's hooks stay where they are, behind ours. A new session of the client
has them.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy hooks install claude    put the hooks into the client's file
  ironcurtain-proxy hooks status            which clients have them
  ironcurtain-proxy hooks remove claude     take them out again

exit status: 0; 2 if a file or an argument cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    clients = [*get_args(HookClient)]
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    install = add_subcommand(
        actions,
        "install",
        "put our hooks first in the file of a client",
        "example:\n  ironcurtain-proxy hooks install claude --workspace ~/project",
    )
    install.add_argument("client", choices=clients, metavar="CLIENT", help=", ".join(clients))
    install.add_argument("--preset", choices=PRESETS, default="coding", help="default: coding")
    install.add_argument(
        "--workspace",
        type=Path,
        metavar="DIR",
        help="where the agent may work if the client is started elsewhere (default: this project)",
    )
    remove = add_subcommand(
        actions,
        "remove",
        "take our hooks out of the file of a client",
        "example:\n  ironcurtain-proxy hooks remove claude",
    )
    remove.add_argument("client", choices=clients, metavar="CLIENT", help=", ".join(clients))
    add_subcommand(
        actions,
        "status",
        "say which clients have our hooks",
        "example:\n  ironcurtain-proxy hooks status",
    )
    serve = add_subcommand(
        actions,
        "serve",
        "serve the hooks of one client until it ends, which the first hook starts by itself",
        "example:\n  ironcurtain-proxy hooks serve claude --parent 4711",
    )
    serve.add_argument("client", choices=clients, metavar="CLIENT", help=", ".join(clients))
    serve.add_argument("--parent", required=True, type=int, metavar="PID", help="its process")


def run(options: argparse.Namespace) -> int:
    """Install, remove, look, or serve.

    Raises:
        ConfigurationError: something cannot be used.
    """
    if options.action == "serve":
        from ironcurtain_proxy.hooks.kernel import serve_door  # noqa: PLC0415  joins all folders

        return serve_door(options.client, options.parent, os.environ)
    # Joins all folders: slow to import.
    from ironcurtain_proxy.hooks import installing  # noqa: PLC0415
    from ironcurtain_proxy.hooks.dialects import DIALECTS  # noqa: PLC0415

    home = home_directory(os.environ)
    state = home / STATE_DIRECTORY
    try:
        if options.action == "status":
            for client in DIALECTS:
                _say_state(client, home, state)
        elif options.action == "remove":
            say(f"{options.client}: {installing.remove(options.client, home, state)}")
        else:
            workspace, _ = proposed_workspace(options.workspace, Path.cwd(), home)
            for name in installing.write_policy(state, str(workspace), options.preset):
                say(f"wrote {name}")
            say(f"hooks are first in {installing.install(options.client, home, state)}")
            if options.client == "codex":
                say("Codex skips hooks that you have not trusted: accept them in its /hooks first")
            say("start a new session of the client: `ironcurtain-proxy audit tail` shows its calls")
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: {error.strerror}") from error
    return 0


def _say_state(client: HookClient, home: Path, state: Path) -> None:
    from ironcurtain_proxy.hooks import installing  # noqa: PLC0415  joins all folders

    file, last = installing.file_of(client, home), installing.last_event(client, state)
    when = f"last event {last:%Y-%m-%d %H:%M} UTC" if last else "no event yet"
    say(f"{client}: {installing.state_of(client, home)}, {when} ({file})")
    if problem := installing.last_problem(client, state):
        say(f"{client}: EVERY CALL IS DENIED, its kernel does not start: {problem}")
    off = installing.switched_off_by(client, Path.cwd())
    if off is not None:
        say(f"{client}: {off} SWITCHES ALL HOOKS OFF in this project")
