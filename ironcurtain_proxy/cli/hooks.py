"""`ironcurtain-proxy hooks`: clients' own tools under the same policy, by their hooks."""

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ironcurtain_proxy.cli.init import add_policy, proposed_workspace
from ironcurtain_proxy.cli.init_dialogue import Dialogue, require_terminal
from ironcurtain_proxy.cli.output import say
from ironcurtain_proxy.config.reading.layers import STATE_DIRECTORY
from ironcurtain_proxy.config.settings import home_directory
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.hooks.dialects import DIALECTS


def run(options: argparse.Namespace) -> int:
    """Install, remove, look, or serve.

    Raises:
        ConfigurationError: something cannot be used.
    """
    if options.action == "serve":
        from ironcurtain_proxy.hooks.kernel import serve_door  # noqa: PLC0415  joins all folders

        return serve_door(options.client, options.parent, os.environ)
    home = home_directory(os.environ)
    return _ACTIONS[options.action](options, home, home / STATE_DIRECTORY)


def _install(options: argparse.Namespace, home: Path, state: Path) -> int:
    from ironcurtain_proxy.hooks import health, installing, kernel  # noqa: PLC0415  join all

    client, managed = options.client, options.managed
    if options.observe:
        health.refuse_if_kept("let them only record")
    place = installing.place_for(client, home, state, managed)
    if managed is None:
        workspace, _ = proposed_workspace(options.workspace, Path.cwd(), home)
        observed = {*kernel.observed_in(state)} - {client}
        observed |= {client} if options.observe else set()
        for name in add_policy(state, workspace, options.preset, sorted(observed)):
            say(f"wrote {name}")
    elif options.observe:
        raise ConfigurationError("--observe is each user's own choice: leave out --managed")
    say(f"hooks are first in {installing.install(place, observes=options.observe)}")
    if managed is not None:
        say("each user needs a policy: ironcurtain-proxy init, or hooks install without --managed")
    if DIALECTS[client].notice:
        say(DIALECTS[client].notice)
    say("start a new session of the client: `ironcurtain-proxy audit tail` shows its calls")
    return 0


def _remove(options: argparse.Namespace, home: Path, state: Path) -> int:
    from ironcurtain_proxy.hooks import health, installing  # noqa: PLC0415  join all folders

    if options.managed is None:
        health.refuse_if_kept("take them out")
    place = installing.place_in(options.client, home, state, options.managed)
    say(f"{options.client}: {installing.remove(place)}")
    return 0


def _accept(options: argparse.Namespace, _home: Path, state: Path) -> int:
    from ironcurtain_proxy.hooks import health  # noqa: PLC0415  joins all folders

    # The agent must not accept in its user's place.
    require_terminal(Dialogue(yes=False, as_json=False), "hooks accept")
    project = os.path.realpath(Path.cwd())
    health.accept(options.client, project, state)
    say(f"{options.client} may use MCP servers in {project}, although its hooks do not report")
    return 0


def _status(_options: argparse.Namespace, home: Path, state: Path) -> int:
    from ironcurtain_proxy.hooks import health  # noqa: PLC0415  joins all folders

    code = 0
    for client in DIALECTS:
        found = health.health_of(client, home, state, Path.cwd())
        say(f"{client}: {found}")
        for alarm in found.alarms:
            say(f"{client}: {alarm}")
            code = 1
    return code


_ACTIONS: Final[Mapping[str, Callable[[argparse.Namespace, Path, Path], int]]] = {
    "install": _install,
    "remove": _remove,
    "accept": _accept,
    "status": _status,
}
