"""`ironcurtain-proxy grants`: remembered approvals, and their revocation.

Lists the grants of running sessions, as their proxies show them, and the grants that are kept in a
file. A grant that is in both is listed once.
"""

import argparse
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct, field

from ironcurtain_proxy.cli.arguments import path_of
from ironcurtain_proxy.cli.explain_overlay import (
    NamedCall,
    refuse_unknown_server,
    rehearsed,
    step_of,
)
from ironcurtain_proxy.cli.output import answer_lines, complain, counted, picked, say, say_json
from ironcurtain_proxy.cli.reviewing import state_directory
from ironcurtain_proxy.config.policy.policy_file import Basis
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, gather_policy, load_policy
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.config.settings import Settings, home_directory, load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.facts.client_tools import ServerCall
from ironcurtain_proxy.facts.commands import CommandContext, observed
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.live_catalogue import server_digest
from ironcurtain_proxy.grants.families import (
    command_candidates,
    covering,
    only_reads,
    single_families,
)
from ironcurtain_proxy.grants.format import KeptGrant
from ironcurtain_proxy.grants.kept import KEPT_NAME, GrantsFile, GrantsFileError
from ironcurtain_proxy.grants.patterns import EscalatedCall
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.mailbox.mailboxes import (
    is_alive,
    session_mailboxes,
    sessions_directory,
    utc_now,
)
from ironcurtain_proxy.mailbox.session_state import (
    GrantsAction,
    grants_owner,
    is_carried_out,
    put_command,
    read_grants,
)
from ironcurtain_proxy.model.decision import Allow
from ironcurtain_proxy.model.grant import CapabilityPattern, Grant, GrantId
from ironcurtain_proxy.model.request import AccessRequest, CommandPlace, ParsedCommand
from ironcurtain_proxy.model.values import Json, RealPath, list_of, object_of
from ironcurtain_proxy.private_directory import MailboxDirectory, UnacceptableFileError
from ironcurtain_proxy.rehearsal.memory import EscalatedStep, Memory
from ironcurtain_proxy.shell.families import sought
from ironcurtain_proxy.shell.statements import parse_command
from ironcurtain_proxy.wiring.reviewers import basis_in


# --- grants that do not count any more ------------------------------------------------------------
# Reasons why kept grants are void under the present policy and servers.
class Validity(Struct):
    """Looks at the configuration once for each workspace."""

    _known: dict[str, tuple[Settings, LoadedPolicy] | None] = field(default_factory=dict)

    def why_void(self, kept: KeptGrant) -> str | None:
        """Return why a kept grant is void, or None if nothing known here speaks against it.

        Only the server knows its tool's definition, which is compared at each call.
        """
        workspace = "" if kept.workspace is None else str(kept.workspace)
        if workspace not in self._known:
            self._known[workspace] = _present(workspace)
        found, pattern = self._known[workspace], kept.remembered.grant.pattern
        if found is None or isinstance(pattern, CapabilityPattern):
            return None
        settings, loaded = found
        spec = next((one for one in settings.servers if one.name == pattern.server), None)
        if spec is None:
            return "its server is not configured"
        if server_digest(spec, workspace or None) != kept.server_digest:
            return "its server is started in another way"
        if not kept.basis:
            return None if kept.policy_version == loaded.version else "the policy has changed"
        basis = basis_in(settings, Basis(loaded.policy, loaded.annotations))
        if basis(pattern.server, pattern.tool) != kept.basis:
            return "a rule about its tool, or what its arguments name, has changed"
        return None


def _present(workspace: str) -> tuple[Settings, LoadedPolicy] | None:
    """Return settings and policy of a workspace, or None if they say nothing about grants."""
    environ = {**os.environ, **({"ALLOWED_DIRECTORY": workspace} if workspace else {})}
    report = Report()
    try:
        settings = load_settings(environ)
        loaded = gather_policy(settings, report)
    except ConfigurationError:
        return None
    # Without a server this is not the configuration that a client's proxy has.
    return None if report.has_errors or not settings.servers else (settings, loaded)


# --- the command ----------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> int:
    """Run one action. Return 1 if there is no such grant, or it could not be revoked."""
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


class _Listed(Struct, kw_only=True):
    """One grant of running sessions or of the file."""

    id: str
    kept: KeptGrant | None = None
    shown: list[Mapping[str, Json]] = field(default_factory=list)
    """The grant's entry in each running session."""
    sessions: list[str] = field(default_factory=list)
    places: list[MailboxDirectory] = field(default_factory=list)

    def words(self) -> dict[str, Json]:
        """Return the description of the grant, without the days since its last use."""
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
            **picked(grant, "source reason"),
            "policyVersion": self.kept.policy_version,
        }

    def why_void(self, validity: Validity) -> str | None:
        """Return the reason why the grant is void, or None if nothing speaks against it."""
        return None if self.kept is None or self.sessions else validity.why_void(self.kept)

    def unused_days(self, now: datetime) -> int:
        """Return the whole days since the grant was used, or else given."""
        words = self.words()
        since = _moment(words["lastUsed"]) or _moment(words["createdAt"]) or now
        return max((now - since).days, 0)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _moment(value: Json) -> datetime | None:
    """Return the time in a proxy's text, or None if the text is no time."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return None if moment is None or moment.tzinfo is None else moment


def _found(options: argparse.Namespace, file: GrantsFile) -> list[_Listed]:
    """Return each grant once: those of running sessions first, then those only in the file."""
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
        for fields in list_of(shown.get("grants")):
            if isinstance(fields, dict):
                yield place, str(shown.get("session")), fields


def _directories(options: argparse.Namespace) -> list[Path]:
    named: list[Path] = [path.absolute() for path in options.directories]
    if named:
        return named
    said = os.environ.get("ESCALATION_DIR", "")
    first = [path_of(said)] if said else []
    return [*first, *session_mailboxes(sessions_directory(home_directory(os.environ)))]


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
    # Every id begins with the empty text: it must match none.
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


# --- grants try -----------------------------------------------------------------------------------
# `ironcurtain-proxy grants try`: the calls that a remembered approval would cover.


def try_families(options: argparse.Namespace) -> int:
    """Try one pair of commands, or the pair in each line."""
    workspace = str(options.workspace or Path.cwd())
    answer_row = partial(answer_to, workspace=workspace, config=options.config)
    if options.jsonl:
        refusal: dict[str, Json] = {"covered": False, "family": "nothing: the line cannot be read"}
        return answer_lines(answer_row, refusal)
    if options.then is None:
        complain("grants try: name APPROVED and THEN, or --jsonl")
        return 2
    answer = answer_row({"approved": options.approved, "then": options.then})
    said = "covered" if answer["covered"] else "asked"
    say(f"{said}: an approval covers {visible(str(answer['family']))}")
    return 0 if answer["covered"] else 1


def answer_to(
    row: Mapping[str, Json], workspace: str, config: Path | None = None
) -> dict[str, Json]:
    """Answer whether an approval of one command or call covers another: `covered`, `family`.

    Args:
        row: such as `{"approved": "go test ./a", "then": "go test ./b", "cwd": "sub"}`.
        workspace: the workspace, if `row` names none.
        config: the configuration file, for calls of tools.

    Raises:
        TypeError: the row is no object of texts.
        KeyError: the row names no command.
    """
    calls = [_tool_call(row[side]) for side in ("approved", "then")]
    if calls[0] is not None and calls[1] is not None:
        return _answer_of_tools(calls[0], calls[1], config)
    if calls != [None, None]:
        return {"covered": False, "family": "nothing of the other side: one is a shell command"}
    said = row.get("workspace")
    place = said if isinstance(said, str) else workspace
    cwd = row.get("cwd")
    directory = os.path.join(place, cwd) if isinstance(cwd, str) else place  # noqa: PTH118
    approved = _call(row["approved"], place, directory)
    following = _call(row["then"], place, directory)
    home = home_directory(os.environ)
    found = command_candidates(approved, RealPath.from_text(str(home)))
    pattern = next(iter(() if found is None else found.patterns), None)
    grants = [
        Grant(id=GrantId(str(n)), pattern=one, created=utc_now(), source="try", reason="")
        for n, one in enumerate(() if pattern is None else single_families(pattern))
    ]
    return {
        "covered": only_reads(following) or covering(grants, following) is not None,
        "family": "nothing" if pattern is None else pattern.description,
    }


def _call(command: Json, workspace: str, directory: str) -> EscalatedCall:
    """Return a call of a shell tool with this command."""
    if not isinstance(command, str):
        raise TypeError("a command is a text")
    real = os.path.realpath(directory)
    place = CommandPlace(
        workspace=os.path.realpath(workspace),
        directory=real,
        home=str(home_directory(os.environ)),
        # A directory that is not there is taken for a new repository: nothing could run there.
        has_repository=os.path.isdir(f"{real}/.git") or not os.path.lexists(real),  # noqa: PTH112
    )
    grounds = CommandContext(sought=sought, remotes=lambda _server: GitRemotes(os.environ))
    parsed: ParsedCommand = parse_command(command)
    return EscalatedCall(
        server="shell",
        tool="run",
        definition="try",
        request=AccessRequest(
            server="shell", tool="run", annotated=True, has_arguments=True, arguments=()
        ),
        arguments={"command": command},
        roles=(),
        command=parsed,
        place=observed(parsed, place, grounds, "shell"),
    )


_TOOL_CALL: Final = re.compile(r"([\w.-]+)/([\w.-]+)\s+(\{.*\})", re.DOTALL)


def _tool_call(said: Json) -> ServerCall | None:
    """Return the call in a text such as `files/read_file {"path": "a"}`; None: it is a command."""
    found = _TOOL_CALL.fullmatch(said.strip()) if isinstance(said, str) else None
    try:
        return found and ServerCall(found[1], found[2], object_of(orjson.loads(found[3])))
    except ValueError:
        return None


def _answer_of_tools(
    approved: ServerCall, then: ServerCall, config: Path | None
) -> dict[str, Json]:
    """Answer for calls of tools, by the servers and the policy of the configuration."""
    settings = load_settings(os.environ, config)
    loaded = load_policy(settings)
    memory, family, covered = Memory(), "nothing", False
    for call in (approved, then):
        step, needs_none = _asked(call, settings, loaded)
        if call is then:
            covered = needs_none or (step is not None and memory.spares(step))
        elif step is not None:
            family = memory.approve(step) or "nothing: no approval of such a call is remembered"
        else:
            family = f"nothing: the first call is {'allowed' if needs_none else 'denied'} anyway"
    return {"covered": covered, "family": family}


def _asked(
    call: ServerCall, settings: Settings, loaded: LoadedPolicy
) -> tuple[EscalatedStep | None, bool]:
    """Return a call that is asked about; else None, and whether it goes through."""
    refuse_unknown_server(call.server, [spec.name for spec in settings.servers])
    named = NamedCall(call.server, call.tool, settings)
    found = rehearsed(named, call.arguments, loaded, os.environ).certain
    step = step_of(found, named, call.arguments, loaded)
    return step, step is None and (isinstance(found.decision, Allow) or found.uncontained == "")
