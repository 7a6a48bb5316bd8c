"""`ironcurtain-proxy grants`: remembered approvals, and their revocation.

Lists the grants of running sessions, as their proxies show them, and the grants that are kept in a
file. A grant that is in both is listed once.
"""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from ironcurtain_proxy.cli.arguments import add_json, add_subcommand, whole
from ironcurtain_proxy.cli.grants_trying import add_trying, try_families
from ironcurtain_proxy.cli.grants_void import Validity
from ironcurtain_proxy.cli.output import complain, counted, say, say_json
from ironcurtain_proxy.cli.reviewing import add_directories, state_directory
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.grants.file import KEPT_NAME, GrantsFile, GrantsFileError
from ironcurtain_proxy.grants.format import KeptGrant
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.mailbox.grants_command import (
    GrantsAction,
    grants_owner,
    is_carried_out,
    put_command,
    read_grants,
)
from ironcurtain_proxy.mailbox.processes import is_alive
from ironcurtain_proxy.mailbox.requests import session_mailboxes, sessions_directory, utc_now
from ironcurtain_proxy.model.grant import CapabilityPattern
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.private_directory import MailboxDirectory, UnacceptableFileError

DESCRIPTION: Final = """\
List, revoke or clear grants, which are remembered approvals: those of running sessions, and those
that are kept beyond their session. With --dir, only those of the sessions in that directory.
"""

EXAMPLES: Final = """\
Grants end with their session, unless `grants.persist` keeps them. A grant is void when its tool's
definition changes. A kept grant is also void when the policy or its server's configuration changes.

examples:
  ironcurtain-proxy grants list
  ironcurtain-proxy grants list --unused 14
  ironcurtain-proxy grants revoke 3f2a
  ironcurtain-proxy grants clear
  ironcurtain-proxy grants try 'go test ./...' 'go test -v ./internal/store'

exit status: 0; 1 if the approval does not exist or was not revoked
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = add_subcommand(
        actions,
        "list",
        "list the remembered approvals",
        "example:\n  ironcurtain-proxy grants list --unused 14",
    )
    add_json(listing)
    listing.add_argument(
        "--unused",
        type=whole(0),
        metavar="DAYS",
        help="only grants that were not used for this many days",
    )
    revoking = add_subcommand(
        actions,
        "revoke",
        "revoke one remembered approval, at once",
        "example:\n  ironcurtain-proxy grants revoke 3f2a",
    )
    revoking.add_argument("id", metavar="ID", help="the id of the grant, or its beginning")
    clearing = add_subcommand(
        actions,
        "clear",
        "revoke all remembered approvals, at once",
        "example:\n  ironcurtain-proxy grants clear",
    )
    for action in (listing, revoking, clearing):
        add_directories(action)
    add_trying(actions)


def run(options: argparse.Namespace) -> int:
    """Run one action. 1 if there is no such grant, or it could not be revoked."""
    if options.action == "try":
        return try_families(options)
    file = GrantsFile(state_directory() / KEPT_NAME)
    found = _found(options, file)
    match options.action:
        case "list":
            now = utc_now()
            least = options.unused or 0
            _list([one for one in found if one.unused_days(now) >= least], now, options)
            return 0
        case "revoke":
            return _revoke(found, options.id, file)
        case _:
            return _clear(found, file, everywhere=not options.directories)


# --- what there is -------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Listed:
    """One grant of running sessions or of the file."""

    id: str
    kept: KeptGrant | None = None
    shown: list[Mapping[str, Json]] = field(default_factory=list)
    """The grant's entry in each running session."""
    sessions: list[str] = field(default_factory=list)
    places: list[MailboxDirectory] = field(default_factory=list)

    def words(self) -> dict[str, Json]:
        """The description of the grant, without the days since its last use."""
        said: dict[str, Json] = {**self._of_session(), **self._of_file()}
        uses = [one.get("uses") for one in self.shown]
        last = [one.get("lastUsed") for one in self.shown]
        if self.kept is not None:
            uses.append(self.kept.remembered.uses)
            last.append(_text(self.kept.remembered.last_used))
        return {
            "id": self.id,
            **said,
            "uses": max([one for one in uses if isinstance(one, int)], default=0),
            "lastUsed": max([one for one in last if isinstance(one, str)], default=None),
            "session": self.sessions[0] if self.sessions else None,
            "sessions": [*self.sessions],
        }

    def _of_session(self) -> dict[str, Json]:
        shown = self.shown[0] if self.shown else {}
        names = ("description", "createdAt", "expiresAt", "source")
        return {"scope": "session", **{name: shown.get(name) for name in names}}

    def _of_file(self) -> dict[str, Json]:
        if self.kept is None:
            return {}
        grant = self.kept.remembered.grant
        tool = None if isinstance(grant.pattern, CapabilityPattern) else grant.pattern
        return {
            "description": grant.pattern.description,
            "scope": self.kept.scope,
            "workspace": None if self.kept.workspace is None else str(self.kept.workspace),
            "server": None if tool is None else tool.server,
            "tool": None if tool is None else tool.tool,
            "createdAt": grant.created.isoformat(),
            "expiresAt": _text(grant.expires),
            "source": grant.source,
            "reason": grant.reason,
            "policyVersion": self.kept.policy_version,
        }

    def why_void(self, validity: Validity) -> str | None:
        """The reason why the grant is void; None: nothing speaks against it."""
        return None if self.kept is None or self.sessions else validity.why_void(self.kept)

    def unused_days(self, now: datetime) -> int:
        """Whole days since the grant was used, or else given."""
        words = self.words()
        since = _moment(words["lastUsed"]) or _moment(words["createdAt"]) or now
        return max((now - since).days, 0)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _moment(value: Json) -> datetime | None:
    """The time in a proxy's text; None: the text is no time."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return None if moment is None or moment.tzinfo is None else moment


def _found(options: argparse.Namespace, file: GrantsFile) -> list[_Listed]:
    """Each grant once: those of running sessions first, then those only in the file."""
    found: dict[str, _Listed] = {}
    for place, session, shown in _in_sessions(options):
        one = found.setdefault(str(shown.get("id")), _Listed(id=str(shown.get("id"))))
        one.places.append(place)
        one.sessions.append(session)
        one.shown.append(shown)
    for kept in _in_file(file):
        if kept.id in found:
            found[kept.id].kept = kept
        elif not options.directories:
            found[kept.id] = _Listed(id=kept.id, kept=kept)
    return list(found.values())


def _in_file(file: GrantsFile) -> list[KeptGrant]:
    try:
        snapshot = file.read()
    except GrantsFileError as error:
        complain(str(error))
        return []
    for problem in snapshot.read.problems:
        complain(f"{file.path}: {problem}")
    now = utc_now()
    return [kept for kept in snapshot.grants if _ends_after(kept, now)]


def _ends_after(kept: KeptGrant, now: datetime) -> bool:
    expires = kept.remembered.grant.expires
    return expires is not None and now < expires


def _in_sessions(
    options: argparse.Namespace,
) -> Iterator[tuple[MailboxDirectory, str, Mapping[str, Json]]]:
    for directory in _directories(options):
        try:
            place = MailboxDirectory.open(directory, create=False)
        except (OSError, ConfigurationError, UnacceptableFileError):
            continue
        owner = grants_owner(place)
        shown = read_grants(place)
        if shown is None or (owner is not None and not is_alive(owner)):
            continue
        grants = shown.get("grants")
        for fields in grants if isinstance(grants, list) else []:
            if isinstance(fields, dict):
                yield place, str(shown.get("session")), fields


def _directories(options: argparse.Namespace) -> list[Path]:
    named: list[Path] = [path.expanduser().absolute() for path in options.directories]
    if named:
        return named
    said = os.environ.get("ESCALATION_DIR", "")
    first = [Path(said).expanduser()] if said else []
    return [*first, *session_mailboxes(sessions_directory(Path.home()))]


# --- showing it ----------------------------------------------------------------------------------


def _list(found: Sequence[_Listed], now: datetime, options: argparse.Namespace) -> None:
    validity = Validity()
    if options.json:
        listed = [
            {**one.words(), "unusedDays": one.unused_days(now), "void": one.why_void(validity)}
            for one in found
        ]
        say_json(listed)
        return
    if not found:
        say("nothing is remembered" if options.unused is None else "no grant is unused for so long")
    for one in found:
        words = one.words()
        parts = [_use(words, one.unused_days(now)), _whose(words), _end(words)]
        void = one.why_void(validity)
        about = "; ".join([*parts, *([f"does not count: {void}"] if void else [])])
        say(f"{visible(one.id)[:8]}  {visible(str(words['description']))}  ({about})")


def _use(words: Mapping[str, Json], days: int) -> str:
    if not words["uses"]:
        return f"not used yet, given on {_date(words['createdAt'])}"
    times = "once" if words["uses"] == 1 else f"{words['uses']} times"
    ago = f"not used for {counted(days, 'day')}" if days else "last in the past day"
    return f"used {times}, {ago}"


def _whose(words: Mapping[str, Json]) -> str:
    match words["scope"]:
        case "user":
            return "for all projects"
        case "project":
            return f"for {visible(str(words.get('workspace')))}"
        case _:
            return f"session {visible(str(words['session']))[:8]}"


def _end(words: Mapping[str, Json]) -> str:
    if words["expiresAt"] is None:
        return "ends with its session"
    return f"expires {_date(words['expiresAt'])}"


def _date(value: Json) -> str:
    moment = _moment(value)
    return "unknown" if moment is None else moment.date().isoformat()


# --- taking it back ------------------------------------------------------------------------------


def _revoke(found: Sequence[_Listed], reference: str, file: GrantsFile) -> int:
    # Every id begins with an empty text.
    begins = reference.lower() or " "
    meant = [one for one in found if one.id.startswith((reference or " ", begins))]
    if len(meant) != 1:
        many = "no grant" if not meant else "more than one grant"
        complain(
            f"{visible(repr(reference))} is {many}: `ironcurtain-proxy grants list` shows the ids"
        )
        return 1
    (one,) = meant
    taken = [_command(place, "revoke", one.id) for place in one.places]
    if not _remove(file, meant) or not all(taken):
        return 1
    say(f"revoked {visible(one.id)[:8]}")
    return 0


def _clear(found: Sequence[_Listed], file: GrantsFile, *, everywhere: bool) -> int:
    places = {place.path: place for one in found for place in one.places}.values()
    taken = [_command(place, "clear", None) for place in places]
    if not (_empty(file) if everywhere else _remove(file, found)) or not all(taken):
        return 1
    say(f"cleared {counted(len(found), 'grant')}")
    return 0


def _remove(file: GrantsFile, those: Sequence[_Listed]) -> bool:
    """Remove grants from the file, because perhaps no proxy is running."""
    kept = frozenset(one.id for one in those if one.kept is not None)
    try:
        if kept:
            file.remove(kept)
    except GrantsFileError as error:
        complain(str(error))
        return False
    return True


def _empty(file: GrantsFile) -> bool:
    try:
        if file.stamp():
            file.update(lambda _: ())
    except GrantsFileError as error:
        complain(str(error))
        return False
    return True


def _command(place: MailboxDirectory, action: GrantsAction, identifier: str | None) -> bool:
    """Ask the proxy to revoke grants, and report success only after its confirmation."""
    if is_carried_out(place, put_command(place, action, identifier)):
        return True
    complain(f"no proxy answered in {place.path}: its session has ended, and its grants with it")
    return False
