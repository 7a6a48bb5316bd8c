"""`ironcurtain-proxy bundle`: sign a fleet's policy, and take a newer one over."""

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ironcurtain_proxy.cli.arguments import add_json, add_subcommand, whole
from ironcurtain_proxy.cli.output import say, say_json
from ironcurtain_proxy.config.extras import require
from ironcurtain_proxy.config.policy.bundled import (
    bundle_fields,
    bundle_lines,
    shown_time,
)
from ironcurtain_proxy.config.policy.managed import MANAGED, find_managed
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.own_process.clocks import SystemClock
from ironcurtain_proxy.signing.keys import PublicKey, public_key, signer_of

if TYPE_CHECKING:
    from ironcurtain_proxy.bundle.repository import Repository

DESCRIPTION: Final = """\
Give many machines one policy. A bundle holds rules, a maximum, annotations, lists, pins, reviewers
and what was revoked. Two persons sign it, each with the SSH key of their own; a machine's key signs
the time at least once a day. Any host of static files can serve the repository.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy bundle sign repo --person ada.pub --person bo.pub --person cy.pub \\
                                     --machine ci.pub --key ~/.ssh/id_ed25519
  ironcurtain-proxy bundle sign repo --from policy/ --key ~/.ssh/id_ed25519
  ironcurtain-proxy bundle sign repo --key ci --hours 24       once a day, by a machine
  ironcurtain-proxy bundle update                              by a timer, as root
  ironcurtain-proxy bundle show                                what is in force here
  ironcurtain-proxy bundle show repo                           what waits for signatures

exit status: 0; 1 if an update was refused, and what was in force still is; 2 if the command or a
file cannot be used
"""

_DAY: Final = 24
_WEEK: Final = 7 * 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    commands = parser.add_subparsers(dest="bundle_command", metavar="COMMAND", required=True)
    sign = add_subcommand(
        commands,
        "sign",
        "propose a bundle or keys, and sign what waits",
        "example:\n  ironcurtain-proxy bundle sign repo --from policy/ --key ~/.ssh/id_ed25519",
    )
    sign.add_argument("repository", type=Path, metavar="REPOSITORY", help="its directory")
    sign.add_argument("--key", type=Path, metavar="FILE", help="your key; FILE.pub for ssh-agent")
    sign.add_argument(
        "--from", type=Path, dest="content", metavar="DIR", help="the files of a new bundle"
    )
    people = (("--person", "a key that signs bundles"), ("--root", "a key that signs keys"))
    for option, words in people:
        sign.add_argument(option, type=Path, action="append", default=[], metavar="PUB", help=words)
    sign.add_argument("--machine", type=Path, metavar="PUB", help="the key that signs the time")
    sign.add_argument(
        "--hours",
        type=whole(1, _WEEK),
        default=_DAY,
        metavar="N",
        help="how long a signature of the time holds (default 24)",
    )
    update = add_subcommand(
        commands,
        "update",
        "fetch the newest bundle, and put it in force",
        "example:\n  sudo ironcurtain-proxy bundle update",
    )
    show = add_subcommand(
        commands,
        "show",
        "show the bundle in force, or what waits for signatures",
        "example:\n  ironcurtain-proxy bundle show repo",
    )
    show.add_argument(
        "repository", type=Path, nargs="?", metavar="REPOSITORY", help="the directory of one"
    )
    for added in (update, show):
        added.add_argument(
            "--managed",
            type=Path,
            default=MANAGED,
            metavar="DIR",
            help=f"prepare or look at another directory than {MANAGED}, which alone counts",
        )
        add_json(added)


def run(options: argparse.Namespace) -> int:
    """Run one of the sub-commands."""
    return _COMMANDS[options.bundle_command](options)


def _sign(options: argparse.Namespace) -> int:
    require("fleet", "bundle sign")
    from ironcurtain_proxy.bundle.repository import Repository  # noqa: PLC0415  an extra's

    repository, now = Repository(options.repository), SystemClock().now()
    if bool(options.person) != bool(options.machine):
        raise ConfigurationError("--person and --machine belong together: they name all keys")
    if options.machine is not None:
        persons, roots = ([_public(one) for one in few] for few in (options.person, options.root))
        repository.begin(persons, _public(options.machine), now, roots)
    if options.content is not None:
        version = repository.propose(options.content, now)
        say(f"bundle {version} waits for signatures")
    for line in repository.changes():
        say(line)
    if options.key is not None:
        for line in repository.sign(signer_of(options.key), now, options.hours):
            say(line)
    return 0


def _public(path: Path) -> PublicKey:
    try:
        found = public_key(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    if found is None:
        raise ConfigurationError(f"{path} holds no line such as `ssh-ed25519 AAAA…`")
    return found


def _update(options: argparse.Namespace) -> int:
    require("fleet", "bundle update")
    if options.managed == MANAGED and os.geteuid() != 0:
        raise ConfigurationError(f"{MANAGED} belongs to root: run `bundle update` as root")
    from ironcurtain_proxy.bundle.update import update  # noqa: PLC0415  an extra's

    outcome = update(options.managed, SystemClock().now())
    current = outcome.current
    if options.json:
        say_json({"version": current.version, "new": outcome.is_new, "expires": current.expires})
    else:
        word = "took over" if outcome.is_new else "still in force:"
        say(f"{word} bundle {current.version}, which holds until {shown_time(current.expires)}")
    return 0


def _show(options: argparse.Namespace) -> int:
    if options.repository is not None:
        require("fleet", "bundle show")
        from ironcurtain_proxy.bundle.repository import Repository  # noqa: PLC0415  an extra's

        for line in _shown_repository(Repository(options.repository)):
            say(line)
        return 0
    report = Report()
    managed = find_managed(report, options.managed, os.geteuid())
    report.raise_errors()
    if managed is None or managed.bundle is None:
        say("this machine is not enrolled for a bundle")
        return 0
    if options.json:
        say_json(bundle_fields(managed.bundle))
        return 0
    for line in bundle_lines(managed.bundle, SystemClock().now()):
        say(line)
    for name in sorted(managed.bundle.names):
        say(f"  {name}")
    return 0


def _shown_repository(repository: "Repository") -> Iterator[str]:
    published, time = repository.published(), repository.time()
    if published is None:
        yield "no bundle is published"
    else:
        until = "nobody has signed its time" if time is None else shown_time(time.signed.expires)
        yield f"bundle {published.signed.version} is published, until {until}"
    for one in repository.waiting():
        yield f"{one.role} {one.version} waits: {one.missing} more must sign"
        for key in one.keys:
            yield f"  {'signed  ' if key in one.signed else 'not yet '} {key}"
    yield from repository.changes()


_COMMANDS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "sign": _sign,
    "update": _update,
    "show": _show,
}
