"""`ironcurtain-proxy sandbox learn`: what a server's sandbox refused, and the entry that opens it.

A server chooses its own words: it may name hosts and folders in order to have them opened. So the
entry holds only what the table shows whole, only public names and folders of one program, and
nothing is written without a yes.
"""

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import orjson
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.audit.calls import recorded_calls
from ironcurtain_proxy.audit.display import Selection
from ironcurtain_proxy.audit.redaction import redact_text
from ironcurtain_proxy.cli.audit import logs_to_read
from ironcurtain_proxy.cli.audit_whole import local_time
from ironcurtain_proxy.cli.init_dialogue import clean
from ironcurtain_proxy.cli.init_wants import words_of
from ironcurtain_proxy.cli.output import complain, encodable, is_confirmed, say, say_json
from ironcurtain_proxy.config.clients.text_format import (
    JsonText,
    Move,
    NotUnderstoodError,
    moved,
    table_at,
)
from ironcurtain_proxy.config.migration import Insertion, inserted, rewrite
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.reading.document import nearest, shown
from ironcurtain_proxy.config.reading.layers import real
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.condition_reading import is_public_host
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.sandbox.denials import denied_host
from ironcurtain_proxy.sandbox.profile import SandboxProfile
from ironcurtain_proxy.sandbox.wanted import RefusedWrite, folder_for, opened_for, refused_writes

_MOST_ROWS: Final = 20
_WIDEST: Final = 100
"""The longest name that is offered: what is not shown whole is not opened."""
_MOST_LINES: Final = 500
"""Lines of a server's words that are searched for hosts."""
_BLOCKED: Final = "host "

Kind: TypeAlias = Literal["host", "write"]


def run(options: argparse.Namespace) -> int:
    """Show what was refused, and write the entry if that is wanted. Return 1 if it was not written.

    Raises:
        ConfigurationError: the server has no sandbox, or what was given cannot be used.
    """
    settings = load_settings(os.environ, options.config)
    spec = _server(settings, options.server)
    policy = load_policy(settings).policy
    alone = replace(settings, servers=(spec,))
    border = _Border(spec, str(real(settings.home)), _profile(alone, policy))
    found = [*_recorded(options, spec.name)]
    why_silent = ""
    if not options.no_start:
        attempts, why_silent = _started(alone, policy, options.seconds)
        found += attempts
    rows = _rows(found, border)
    offered = _offered(rows, options.only)
    if options.json:
        written = _write(settings, spec, offered) if options.write and offered else None
        say_json(_as_json(settings, spec, rows, offered, why_silent, written))
        return int(written is not None and written.backup is None)
    for line in _text(spec, rows, offered, why_silent):
        say(line)
    return _finish(settings, spec, offered, is_agreed=options.write) if offered else 0


def _server(settings: Settings, name: str) -> ServerSpec:
    names = [one.name for one in settings.servers]
    spec = next((one for one in settings.servers if one.name == name), None)
    if spec is None:
        near = nearest(name, names)
        meant = f": did you mean {shown(near)}?" if near else f"; there are: {', '.join(names)}"
        raise ConfigurationError(f"there is no server {shown(name)}{meant if names else ''}")
    if spec.remote is not None:
        raise ConfigurationError(
            f"{name} is reached over HTTP: no sandbox of this machine holds it"
        )
    if spec.sandbox is False:
        raise ConfigurationError(f'{name} has "sandbox": false: nothing is kept from it')
    return spec


def _profile(alone: Settings, policy: Policy) -> SandboxProfile:
    """Return the profile of the one server of these settings."""
    # Joins all folders: long to import.
    from ironcurtain_proxy.wiring.confinement import find_sandbox  # noqa: PLC0415
    from ironcurtain_proxy.wiring.confining import confinements  # noqa: PLC0415
    from ironcurtain_proxy.wiring.proxy import settled  # noqa: PLC0415

    told: list[str] = []
    sandbox = find_sandbox(replace(alone, sandbox_policy="warn"), os.environ, told.append)
    specs = settled(alone, os.environ, make=False)
    (name,) = [one.name for one in alone.servers]
    found = confinements(sandbox, specs, alone, policy, make=False).get(name)
    if found is None:
        why = "; ".join(told) or "`ironcurtain-proxy doctor` says why"
        raise ConfigurationError(f"{name} runs in no sandbox here: {why}")
    return found.profile


# --- what was refused ----------------------------------------------------------------------------


class _Attempt(NamedTuple):
    """One thing that the server could not do."""

    wanted: str | RefusedWrite
    """A host, or a place."""
    when: str


def _recorded(options: argparse.Namespace, server: str) -> Iterator[_Attempt]:
    """Yield what the audit logs say."""
    try:
        members = logs_to_read(options.log).members()
        for call in recorded_calls(members, Selection(since=options.since, server=server)):
            blocked, result = call.fields.get("blocked"), call.fields.get("result")
            if isinstance(blocked, str) and blocked.startswith(_BLOCKED):
                yield _Attempt(blocked.removeprefix(_BLOCKED), call.entry.time)
            error = result.get("error") if isinstance(result, Mapping) else None
            for place in refused_writes(error) if isinstance(error, str) else ():
                yield _Attempt(place, call.entry.time)
    except FileNotFoundError as error:
        if options.log is not None:
            raise ConfigurationError(f"--log {options.log}: there is no such log") from error
    except OSError as error:
        raise ConfigurationError(f"an audit log cannot be read: {error}") from error


def _started(alone: Settings, policy: Policy, seconds: float | None) -> tuple[list[_Attempt], str]:
    """Return what one start says, and why the server did not answer, or "" if it did."""
    # Slow to import, as above.
    from ironcurtain_proxy.wiring.rehearsal import list_live_tools  # noqa: PLC0415

    (name,) = [one.name for one in alone.servers]
    with tempfile.TemporaryDirectory(prefix="ironcurtain-learn-") as place:
        # The log of a session goes with the session; and without a sandbox nothing is to start.
        logged = replace(alone, session_log=Path(place, "session.log"), sandbox_policy="enforce")
        live = list_live_tools(logged, policy, seconds, lambda _text: None)
        words = words_of(logged, name)
    now = SystemClock().now().isoformat(timespec="milliseconds")
    lines = [denied_host(line) for line in words.splitlines()[-_MOST_LINES:]]
    hosts = dict.fromkeys([*live.hosts.get(name, ()), *[one for one in lines if one]])
    wanted: list[str | RefusedWrite] = [*hosts, *refused_writes(words)]
    why = live.silent.get(name, "").partition(" (log: ")[0]
    if not why and name not in live.answered:
        why = "it did not answer in time"
    return [_Attempt(one, now) for one in wanted], clean(redact_text(why), 240)


# --- what may be opened --------------------------------------------------------------------------


class _Border(Struct, frozen=True):
    """What an entry of this server could open, and what no entry is offered for."""

    spec: ServerSpec
    home: str
    profile: SandboxProfile

    def judged(self, wanted: str | RefusedWrite) -> tuple[Kind, str, str]:
        """Return the kind, the host or folder, and why it is not offered, or "" if it is."""
        if isinstance(wanted, str):
            host = wanted.lower().removesuffix(".")
            return "host", host, self._why_no_host(host)
        folder = folder_for(wanted, self.home)
        if folder is None:
            return "write", wanted.path, "no folder of one program; see docs/sandbox.md"
        return "write", folder, self._why_no_folder(folder)

    def _why_no_host(self, host: str) -> str:
        sandbox = self.spec.sandbox if isinstance(self.spec.sandbox, Mapping) else {}
        if not is_public_host(host):
            return "not a public name"
        if self.profile.forbids(host) or sandbox.get("network") is False:
            return "closed by its entry"
        if self.profile.may_reach(host):
            return "open already"
        return _why_unfit(host)

    def _why_no_folder(self, folder: str) -> str:
        place = real(Path(self.home, folder.removeprefix("~/")))
        profile = self.profile
        kept = (*profile.deny_read, *profile.allow_read, *profile.allow_write, self.home)
        if profile.keeps_closed(place) or not profile.may_read(place):
            return "closed: keys, credentials or files of the proxy"
        if any(RealPath.from_text(one).is_within(place) for one in kept):
            return "holds what the sandbox closes or opens otherwise"
        sandbox = self.spec.sandbox if isinstance(self.spec.sandbox, Mapping) else {}
        files = sandbox.get("filesystem")
        named = files.get("private") if isinstance(files, Mapping) else None
        if profile.may_write(place) or (isinstance(named, list) and folder in named):
            return "open already"
        return _why_unfit(folder)


def _why_unfit(name: str) -> str:
    # The session log writes a character that is not shown as an escape: that is another name.
    is_plain = visible(name) == name and "\\" not in name
    if len(name) > _WIDEST or not is_plain or redact_text(name) != name:
        return "its name cannot be shown as it is"
    return ""


class _Row(Struct, frozen=True, kw_only=True):
    """One line of the table."""

    kind: Kind
    name: str
    times: int
    last: str
    why_not: str
    """Why it is not offered, or empty if it is."""

    @property
    def shown(self) -> str:
        """The name for a screen."""
        return clean(redact_text(self.name), _WIDEST)


def _rows(attempts: Iterable[_Attempt], border: _Border) -> list[_Row]:
    """Return what was refused, each once, the latest first."""
    times: Counter[tuple[Kind, str, str]] = Counter()
    last: dict[tuple[Kind, str, str], str] = {}
    judged: dict[str | RefusedWrite, tuple[Kind, str, str]] = {}
    for wanted, when in attempts:
        key = judged.get(wanted) or judged.setdefault(wanted, border.judged(wanted))
        times[key] += 1
        last[key] = max(last.get(key, ""), when)
    return sorted(
        [
            _Row(kind=key[0], name=key[1], why_not=key[2], times=count, last=last[key])
            for key, count in times.items()
        ],
        key=lambda row: (row.last, row.times, row.name),
        reverse=True,
    )


def _offered(rows: Sequence[_Row], only: Sequence[str]) -> list[_Row]:
    """Return the rows that the entry opens: of those that are shown, or those that were named.

    Raises:
        ConfigurationError: a name is none of a row, or of one that is not offered.
    """
    if not only:
        return [row for row in rows[:_MOST_ROWS] if not row.why_not]
    named: list[_Row] = []
    for name in dict.fromkeys(only):
        row = next((one for one in rows if one.name == name), None)
        if row is None:
            raise ConfigurationError(f"--only {clean(name)}: the server was not kept from this")
        if row.why_not:
            raise ConfigurationError(f"--only {clean(name)}: is not offered: {row.why_not}")
        named.append(row)
    return named


# --- what is said --------------------------------------------------------------------------------

_HOST_MEANS: Final = (
    "a host: calls that the policy allows may then send data there without a question, and no call "
    "of\n  this server is contained, because its network is not closed. Narrower: approve the one "
    "call that\n  needs it; its host opens in a second instance, until the session ends."
)
_FOLDER_MEANS: Final = (
    "a folder: a copy that belongs to this server takes its place in the sandbox, and lasts; your "
    "own\n  folder stays as it is."
)


def _section(offered: Sequence[_Row]) -> dict[str, Json]:
    """Return the part of an entry that opens this and nothing else."""
    return opened_for(
        {},
        private=[row.name for row in offered if row.kind == "write"],
        hosts=[row.name for row in offered if row.kind == "host"],
    )


def _text(
    spec: ServerSpec, rows: Sequence[_Row], offered: Sequence[_Row], why_silent: str
) -> Iterator[str]:
    if why_silent:
        yield f"{spec.name} did not start: {why_silent}"
    if not rows:
        yield f"nothing is known that the sandbox of {spec.name} kept it from"
        return
    listed = rows[:_MOST_ROWS]
    width = max([len(row.shown) for row in listed])
    yield f"{'':<5}  {'WHAT':<{width}}  {'TIMES':>5}  {'LAST':<19}  OFFERED"
    for row in listed:
        state = f"no: {row.why_not}" if row.why_not else "yes"
        when = clean(local_time(row.last), 19)
        yield f"{row.kind:<5}  {row.shown:<{width}}  {row.times:>5}  {when:<19}  {state}"
    if len(rows) > len(listed):
        yield f"… and {len(rows) - len(listed)} more: --json shows all"
    if not offered:
        yield "\nno entry is offered"
        return
    yield f"\nThe server itself names these. This opens them, in the entry of {spec.name}:"
    yield f"  {orjson.dumps(_section(offered)).decode()[1:-1]}"
    yield from [f"- {text}" for text in _meanings(offered)]


def _meanings(offered: Sequence[_Row]) -> list[str]:
    kinds = {row.kind for row in offered}
    return [
        *([_HOST_MEANS] if "host" in kinds else []),
        *([_FOLDER_MEANS] if "write" in kinds else []),
    ]


def _as_json(
    settings: Settings,
    spec: ServerSpec,
    rows: Sequence[_Row],
    offered: Sequence[_Row],
    why_silent: str,
    written: "_Written | None",
) -> dict[str, Json]:
    refused: list[Json] = [
        {
            "kind": row.kind,
            "name": row.shown,
            "times": row.times,
            "last": clean(row.last),
            "offered": row in offered,
            "why": row.why_not or None,
        }
        for row in rows
    ]
    backup = None if written is None else written.backup
    return {
        "server": spec.name,
        "refused": refused,
        "entry": _section(offered) if offered else None,
        "means": [" ".join(text.split()) for text in _meanings(offered)],
        "start": why_silent or None,
        "file": None if settings.servers_file is None else encodable(str(settings.servers_file)),
        "written": backup is not None,
        "backup": None if backup is None else encodable(str(backup)),
        "error": None if written is None else encodable(written.why_not) or None,
    }


# --- the entry in the operator's file ------------------------------------------------------------


class _Written(NamedTuple):
    """The result of writing the entry."""

    backup: Path | None
    """The copy of the file as it was, or None if the file has not changed."""
    why_not: str = ""


def _finish(
    settings: Settings, spec: ServerSpec, offered: Sequence[_Row], *, is_agreed: bool
) -> int:
    file = settings.servers_file
    if file is None and not is_agreed:
        say(f"Add it to the entry by hand: {_NO_FILE}")
        return 0
    if not is_agreed and not is_confirmed(f"write this into {visible(str(file))}?"):
        say("nothing was written")
        return 0
    written = _write(settings, spec, offered)
    if written.backup is None:
        complain(f"nothing was written: {written.why_not}")
        return 1
    say(f"{visible(str(file))}: written; as it was: {visible(written.backup.name)}")
    say("Sessions that start from now on take it: restart your client.")
    return 0


_NO_FILE: Final = "the servers stand in the configuration or the environment, not in a servers file"


def _write(settings: Settings, spec: ServerSpec, offered: Sequence[_Row]) -> _Written:
    file = settings.servers_file
    if file is None:
        return _Written(None, _NO_FILE)
    try:
        before = file.read_bytes()
        after = _with_opening(before, spec.name, offered)
        return _Written(rewrite(file, before, after, SystemClock().now()))
    except (NotUnderstoodError, UnicodeDecodeError) as error:
        why = str(error) if isinstance(error, NotUnderstoodError) else "is not UTF-8"
        return _Written(None, f"{file}: {why}; add the entry by hand")
    except OSError as error:
        return _Written(None, f"{file}: {error.strerror or error}")


def _with_opening(before: bytes, name: str, offered: Sequence[_Row]) -> bytes:
    """Widen the server's `sandbox` in the text of the file, and keep every other byte.

    Raises:
        NotUnderstoodError: the file has another form.
    """
    form, text = JsonText(), before.decode()
    document = form.parse(text)
    is_client = isinstance(document, dict) and "mcpServers" in document
    place = (*(("mcpServers",) if is_client else ()), name)
    entry = table_at(document, place)
    if entry is None:
        raise NotUnderstoodError("has no such server any more")
    private = [row.name for row in offered if row.kind == "write"]
    hosts = [row.name for row in offered if row.kind == "host"]
    sandbox = opened_for(entry, private, hosts)["sandbox"]
    if "sandbox" in entry and isinstance(sandbox, dict):
        move = Move(place=place, names=("sandbox",), name="sandbox", value=sandbox)
        return moved(form, text, move).encode()
    found = inserted(before, [Insertion(place, "sandbox", sandbox)])
    if found is None:
        raise NotUnderstoodError("cannot be changed without changing something else")
    return found
