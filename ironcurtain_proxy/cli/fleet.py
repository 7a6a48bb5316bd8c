"""`bundle`, `reviewers`, `desk`, `relay`: one policy and one list of questions for a fleet."""

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import orjson

from ironcurtain_proxy.cli.arguments import path_of
from ironcurtain_proxy.cli.output import complain, counted, picked, say, say_answer, say_json
from ironcurtain_proxy.cli.reviewing import (
    database_of,
    mailboxes_of,
    state_directory,
)
from ironcurtain_proxy.config.extras import require
from ironcurtain_proxy.config.policy.managed import (
    MANAGED,
    REVIEWERS_NAME,
    bundle_fields,
    bundle_lines,
    find_managed,
    is_fingerprint,
    shown_time,
)
from ironcurtain_proxy.config.policy.reviewers_file import read_reviewers
from ironcurtain_proxy.config.reading.document import Report, strictly
from ironcurtain_proxy.config.reading.reading import is_there, read_text
from ironcurtain_proxy.config.settings import home_directory
from ironcurtain_proxy.downstream.process import raise_limit
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.mailbox.mailboxes import sessions_directory
from ironcurtain_proxy.model.signing import ReviewerKey, Signatories
from ironcurtain_proxy.model.values import Json, list_of, object_of, text_of
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.private_files import (
    held_lock,
    make_private_directory,
    read_private,
    write_whole,
)
from ironcurtain_proxy.signing import passkey, public_key, read_public_key, signer_of

if TYPE_CHECKING:
    from ironcurtain_proxy.bundle.repository import Repository

_LOCK_SECONDS: Final = 5.0
"""Seconds to wait for another command that changes the file of reviewers."""


# --- bundle


def run_bundle(options: argparse.Namespace) -> int:
    """Run one of the sub-commands."""
    return _COMMANDS[options.action](options)


def _sign(options: argparse.Namespace) -> int:
    require("fleet", "bundle sign")
    from ironcurtain_proxy.bundle.repository import Repository  # noqa: PLC0415  an extra's

    repository, now = Repository(options.repository), SystemClock().now()
    if bool(options.person) != bool(options.machine):
        raise ConfigurationError("--person and --machine belong together: they name all keys")
    if options.machine is not None:
        persons, roots = map(read_public_key, options.person), map(read_public_key, options.root)
        repository.begin([*persons], read_public_key(options.machine), now, [*roots])
    if options.content is not None:
        say(f"bundle {repository.propose(options.content, now)} waits for signatures")
    for line in repository.changes():
        say(line)
    if options.key is not None:
        signer, keys = signer_of(options.key), options.new_keys or options.machine is not None
        for line in repository.sign(signer, now, options.hours, keys=keys):
            say(line)
    return 0


def _update(options: argparse.Namespace) -> int:
    require("fleet", "bundle update")
    managed: Path = options.managed or MANAGED
    if managed == MANAGED and os.geteuid() != 0:
        raise ConfigurationError(f"{MANAGED} belongs to root: run `bundle update` as root")
    from ironcurtain_proxy.bundle.update import update  # noqa: PLC0415  an extra's

    outcome = update(managed, SystemClock().now())
    current = outcome.current
    fields = {"version": current.version, "new": outcome.is_new, "expires": current.expires}
    word = "took over" if outcome.is_new else "still in force:"
    line = f"{word} bundle {current.version}, which holds until {shown_time(current.expires)}"
    say_answer(options, lambda: fields, lambda: [line])
    return 0


def _show(options: argparse.Namespace) -> int:
    if options.repository is not None:
        require("fleet", "bundle show")
        from ironcurtain_proxy.bundle.repository import Repository  # noqa: PLC0415  an extra's

        repository = Repository(options.repository)
        say_answer(
            options, lambda: _repository_fields(repository), lambda: _shown_repository(repository)
        )
        return 0
    place, user = options.managed or MANAGED, os.geteuid()
    managed = strictly(lambda report: find_managed(report, place, user))
    if managed is None or managed.bundle is None:
        say("{}" if options.json else "this machine is not enrolled for a bundle")
        return 0
    held = managed.bundle
    names = [f"  {name}" for name in sorted(held.names)]
    lines = [*bundle_lines(held, SystemClock().now()), *names]
    say_answer(options, lambda: bundle_fields(held), lambda: lines)
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


def _repository_fields(repository: "Repository") -> dict[str, Json]:
    published, time = repository.published(), repository.time()
    return {
        "version": None if published is None else published.signed.version,
        "expires": None if time is None else time.signed.expires.isoformat(),
        "waiting": [
            picked(one, "role version missing keys signed") for one in repository.waiting()
        ],
        "changes": [*repository.changes()],
    }


_COMMANDS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "sign": _sign,
    "update": _update,
    "show": _show,
}


# --- reviewers


def run_reviewers(options: argparse.Namespace) -> int:
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
    managed = strictly(find_managed)
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
    if not is_there(path):
        words = f"there is no {path}: whoever answers a question may approve it"
        say('{"quorum": null, "reviewers": []}' if is_json else words)
        return 0
    found = _read(path)
    if found is None:
        return 1
    rows = [_row(key, found.without(revoked)) for key in found.keys.values()]
    if is_json:
        say_json({"quorum": found.quorum, "reviewers": rows})
        return 0
    say(f"{path}: {counted(found.quorum, 'person')} must sign an approval")
    for row in rows:
        said = [f"{name} {_text(value)}" for name, value in row.items() if value]
        say(visible("  " + "; ".join(said)))
    return 0


def _row(key: ReviewerKey, found: Signatories) -> dict[str, Json]:
    return {
        "key": key.id,
        **picked(key, "person risk"),
        "accounts": [*sorted(key.accounts)],
        "roles": [*sorted(key.roles)],
        "servers": [*sorted(key.servers or ())],
        "paths": [str(one) for one in key.paths or ()],
        "until": None if key.until is None else key.until.date().isoformat(),
        "revoked": found.has_revoked(key),
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
    make_private_directory(path.parent)
    busy = ConfigurationError(f"{path}: another command is changing it: run this one again")
    with held_lock(path.with_suffix(".lock"), _LOCK_SECONDS, busy):
        document: dict[str, Json] = {"reviewers": []}
        if path.exists():
            if _read(path) is None:
                return 1
            document = orjson.loads(path.read_bytes())
        told = change(document)
        new, report = path.with_suffix(".new"), Report()
        write_whole(new, orjson.dumps(document, option=orjson.OPT_INDENT_2), locked=True)
        try:
            read_reviewers(new, home_directory(os.environ), report)
            report.raise_errors()
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    say(told)
    return 0


def _added(document: dict[str, Json], options: argparse.Namespace) -> str:
    given = {
        "person": options.person,
        "key": read_text(options.key).strip(),
        "risk": options.risk,
        "roles": options.role,
        "servers": options.server,
        "paths": [str(path_of(one).absolute()) for one in options.path],
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
    lines = [text_of(object_of(one).get("key")) for one in list_of(document["reviewers"])]
    keys = [key for one in lines if (key := public_key(one) or passkey(one))]
    known = {name for key in keys if fingerprint in key.names for name in key.names}
    revoked = document.setdefault("revoked", [])
    if isinstance(revoked, list):
        # All its names: with another number, or as a key of SSH, it is the same key.
        revoked += sorted({fingerprint, *known} - {*map(text_of, revoked)})
    told = f"{fingerprint} counts for nothing from now on"
    # A letter that is wrong takes nothing back, and nobody would look again.
    return told if fingerprint in known else f"{told}, and is no reviewer's key here: is it right?"


# --- desk


def run_desk(options: argparse.Namespace) -> int:
    """Serve the page until the person stops the command.

    Raises:
        ConfigurationError: an address or the secret cannot be used.
    """
    require("desk", "desk")
    # Extras, for this command alone.
    from ironcurtain_proxy.fleet.database import FleetDatabase  # noqa: PLC0415
    from ironcurtain_proxy.fleet.desk import Desk  # noqa: PLC0415
    from ironcurtain_proxy.fleet.logins import LoginProvider, Logins, Words  # noqa: PLC0415
    from ironcurtain_proxy.web.app import loopback_socket, serve_page  # noqa: PLC0415

    origin = urlsplit(options.url)
    if origin.scheme not in {"https", "http"} or not origin.netloc or origin.path not in {"", "/"}:
        raise ConfigurationError("--url must be such as https://questions.example.com")
    # As browsers name it.
    usual = ":443" if origin.scheme == "https" else ":80"
    own = f"{origin.scheme}://{origin.netloc.lower().removesuffix(usual)}"
    raise_limit()
    given = read_private(options.secret_file, 4096, "secret file")
    sees = tuple([(one[0], one[2]) for one in [one.partition("=") for one in options.groups]])
    if not all(all(one) for one in sees):
        raise ConfigurationError("--group must be such as 'pay-*=payments' or '*=security'")
    provider = LoginProvider(
        issuer=options.issuer,
        client=options.client,
        secret=given.decode("utf-8", "replace").strip(),
        callback=f"{own}/callback",
        sees=sees,
        scope=options.scope,
        claim=options.groups_claim,
    )
    database = FleetDatabase(database_of(options))
    with loopback_socket(options.port, options.listen) as listening:
        database.prepare()
        say(f"{own}/ shows the questions in {database.where}; Ctrl-C ends it")
        desk = Desk(database, Logins(Words(database), provider), own, complain)
        serve_page(desk.guarded(), listening)
    database.close()
    return 0


# --- relay


def run_relay(options: argparse.Namespace) -> int:
    """Carry questions and answers until the person stops the command."""
    url = database_of(options)
    # An extra, for this command alone.
    from ironcurtain_proxy.fleet.database import FleetDatabase  # noqa: PLC0415
    from ironcurtain_proxy.fleet.relay import Relay, home_of  # noqa: PLC0415
    from ironcurtain_proxy.own_process import machine_id  # noqa: PLC0415

    database, mailboxes = FleetDatabase(url), mailboxes_of(options)
    named = [path.absolute() for path in options.directories]
    own = named or [
        Path(os.environ.get("ESCALATION_DIR", "")),
        sessions_directory(home_directory(os.environ)),
    ]
    relay = Relay(mailboxes, database, home_of(machine_id(), own), complain)
    say(f"relaying to {database.where}; Ctrl-C ends it")
    try:
        relay.run()
    finally:
        mailboxes.stop_listening()
        database.close()
    return 0
