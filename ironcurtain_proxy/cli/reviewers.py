"""`ironcurtain-proxy reviewers`: the persons whose signatures approve calls."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import orjson

from ironcurtain_proxy.cli.arguments import add_json, add_subcommand, whole
from ironcurtain_proxy.cli.output import complain, say, say_json
from ironcurtain_proxy.cli.reviewing import state_directory
from ironcurtain_proxy.config.policy.engine_file import is_fingerprint, read_reviewers
from ironcurtain_proxy.config.policy.managed import REVIEWERS_NAME, find_managed
from ironcurtain_proxy.config.policy.policy_file import MOST_SIGNERS
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.config.settings import home_directory
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.model.signing import RISKS, ReviewerKey, Signatories
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.private_directory import MailboxDirectory

DESCRIPTION: Final = """\
List the keys of reviewers.json, or change the file. Where it exists, an approval counts only if it
is signed by one of its keys: `ironcurtain-proxy approve ID --key FILE`. Running proxies take a
change at once.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy reviewers
  ironcurtain-proxy reviewers add ada ~/.ssh/id_ed25519.pub --risk high --path ~/work
  ironcurtain-proxy reviewers revoke SHA256:4uG0…

exit status: 0; 1 if the file has mistakes; 2 if what was given cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_json(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    example = "example:\n  ironcurtain-proxy reviewers add ada ~/.ssh/id_ed25519.pub --risk high"
    add = add_subcommand(actions, "add", "let a person approve, by a key", example)
    add.add_argument("person", metavar="PERSON", help="a name; several keys may have the same")
    add.add_argument("key", type=Path, metavar="FILE.pub", help="the public key, Ed25519")
    add.add_argument("--risk", choices=RISKS, required=True, help="the greatest that it approves")
    add.add_argument("--role", action="append", default=[], help="for rules that name signers")
    add.add_argument("--server", action="append", default=[], help="(default: all servers)")
    add.add_argument("--path", action="append", default=[], help="(default: all directories)")
    add.add_argument("--account", action="append", default=[], help="another name of the person")
    add.add_argument("--until", metavar="DATE", help="the day from which it does not count")
    add.add_argument(
        "--quorum",
        type=whole(0, MOST_SIGNERS),
        help="the persons who must sign any approval; 0: only where a rule says so",
    )
    example = "example:\n  ironcurtain-proxy reviewers revoke SHA256:4uG0…"
    revoke = add_subcommand(actions, "revoke", "let a key count for nothing, from now on", example)
    revoke.add_argument("fingerprint", metavar="SHA256:…", help="as `reviewers` lists it")


def run(options: argparse.Namespace) -> int:
    """List the keys, or change the file.

    Raises:
        ConfigurationError: the change would make a file that cannot be used.
    """
    match options.action:
        case "add":
            return _changed(lambda document: _added(document, options))
        case "revoke":
            return _changed(lambda document: _revoked(document, options.fingerprint))
        case _:
            return _listed(is_json=options.json)


def _place() -> tuple[Path, frozenset[str]]:
    """Return the file that counts, and the keys in it that the fleet has revoked.

    It is the administrator's, if there is one.
    """
    report = Report()
    managed = find_managed(report)
    report.raise_errors()
    own = state_directory() / REVIEWERS_NAME
    if managed is None:
        return own, frozenset()
    return managed.reviewers or own, managed.revoked_keys


def _read(path: Path) -> Signatories | None:
    report = Report()
    found = read_reviewers(path, home_directory(os.environ), report)
    for problem in report.problems:
        complain(str(problem))
    return found


def _listed(*, is_json: bool) -> int:
    path, revoked = _place()
    if not path.exists():
        say(f"there is no {path}: whoever answers a question may approve it")
        return 0
    found = _read(path)
    if found is None:
        return 1
    rows = [_row(key, found.without(revoked)) for key in found.keys.values()]
    if is_json:
        say_json({"quorum": found.quorum, "reviewers": rows})
        return 0
    persons = "person" if found.quorum == 1 else "persons"
    say(f"{path}: {found.quorum} {persons} must sign an approval")
    for row in rows:
        said = [f"{name} {_text(value)}" for name, value in row.items() if value]
        say(visible("  " + "; ".join(said)))
    return 0


def _row(key: ReviewerKey, found: Signatories) -> dict[str, Json]:
    return {
        "person": key.person,
        "key": key.id,
        "risk": key.risk,
        "roles": [*sorted(key.roles)],
        "servers": [*sorted(key.servers or ())],
        "paths": [str(one) for one in key.paths or ()],
        "until": None if key.until is None else key.until.date().isoformat(),
        "revoked": key.id in found.revoked,
    }


def _text(value: Json) -> str:
    if value is True:
        return ""
    return ", ".join([str(one) for one in value]) if isinstance(value, list) else str(value)


def _changed(change: Callable[[dict[str, Json]], str]) -> int:
    """Change the file, if the result can be read. `change` returns what to say of it."""
    path, _ = _place()
    if path.parent != state_directory():
        raise ConfigurationError(f"{path} is the administrator's: change it there")
    place = MailboxDirectory.open(path.parent, create=True)
    document: dict[str, Json] = {"reviewers": []}
    if path.exists():
        if _read(path) is None:
            return 1
        document = orjson.loads(path.read_bytes())
    told = change(document)
    name = f"{REVIEWERS_NAME}.new"
    place.write(name, orjson.dumps(document, option=orjson.OPT_INDENT_2))
    try:
        report = Report()
        read_reviewers(path.parent / name, home_directory(os.environ), report)
        report.raise_errors()
        (path.parent / name).replace(path)
    finally:
        place.discard(name)
    say(told)
    return 0


def _added(document: dict[str, Json], options: argparse.Namespace) -> str:
    try:
        line = options.key.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        raise ConfigurationError(f"{options.key} cannot be read") from None
    given = {
        "person": options.person,
        "key": line,
        "risk": options.risk,
        "roles": options.role,
        "servers": options.server,
        "paths": [str(Path(one).expanduser().absolute()) for one in options.path],
        "accounts": options.account,
        "validUntil": options.until,
    }
    reviewers = document["reviewers"]
    if isinstance(reviewers, list):
        reviewers.append({name: said for name, said in given.items() if said})
    if options.quorum is not None:
        document["quorum"] = options.quorum
    return f"{options.person} may approve up to {options.risk} risk"


def _revoked(document: dict[str, Json], fingerprint: str) -> str:
    if not is_fingerprint(fingerprint):
        raise ConfigurationError(f"{visible(fingerprint)} is no fingerprint SHA256:…")
    revoked = document.setdefault("revoked", [])
    if isinstance(revoked, list) and fingerprint not in revoked:
        revoked.append(fingerprint)
    return f"{fingerprint} counts for nothing from now on"
