"""Whether the hooks of a client work: what `status`, `doctor` and the proxy for servers say.

A hook that does not fire is skipped by its client without a word: a project's file may have
switched it off, Codex skips what nobody trusted, and a flag of the command line leaves the user's
settings out. What shows it is that the client goes on and no event comes.
"""

import logging
import os
import subprocess
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Final, Literal, TypeAlias

import orjson
from anyio import to_thread
from msgspec import Struct

from ironcurtain_proxy.config.policy.managed import KEEP_NAME, MANAGED, find_managed
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.config.settings import SESSIONS
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.hooks.dialects import DIALECTS
from ironcurtain_proxy.hooks.events import HookClient
from ironcurtain_proxy.hooks.installing import (
    WhosePrefix,
    document_of,
    is_first,
    place_in,
    plugin_of,
    prefix_of,
    was_before,
)
from ironcurtain_proxy.hooks.kernel import SHARED, directory_of, observed_in
from ironcurtain_proxy.hooks.launching import (
    DOORS,
    fired_file,
    hook_words,
    is_ours,
    problem_file,
    settings_of,
    switched_off_by,
    variables_of,
)
from ironcurtain_proxy.hooks.places import (
    client_directory,
    directory_by,
    file_in,
    kept_file,
    own_place,
)
from ironcurtain_proxy.mailbox.mailboxes import parent_of, start_of
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.private_files import make_private_directory, read_private, write_whole
from ironcurtain_proxy.sessions import running_sessions
from ironcurtain_proxy.wiring.proxy import Proxy

HookState: TypeAlias = Literal["absent", "installed", "incomplete", "switched off", "unreadable"]
"""`incomplete`: some events have no hook of ours, or it is not the first. `unreadable`: the client
leaves the whole file out."""

_log: Final = logging.getLogger(__name__)
_ACCEPTED: Final = "unhooked.json"
_MOST_BYTES: Final = 1 << 20
_LEVELS: Final = 8
_SLACK: Final = 120.0
"""Seconds by which a transcript may be newer than the last event."""
_SECONDS: Final = 20.0


def are_kept() -> bool:
    """Return whether the administrator does not let the hooks be switched off."""
    managed = find_managed(Report())
    return managed is not None and "hooks" in managed.kept


def refuse_if_kept(what: str) -> None:
    """Refuse to do what the administrator does not let users do.

    Raises:
        ConfigurationError: the hooks are kept.
    """
    if are_kept():
        raise ConfigurationError(f"{MANAGED / KEEP_NAME} keeps the hooks: nobody may {what}")


_HELD: Final[Mapping[str, str]] = {
    "ours": "its commands run in a sandbox where there is one",
    "another": "another program starts its commands, so you are asked about them",
    "none": "its commands have no sandbox, so you are asked about them",
}


class HookHealth(Struct, frozen=True, kw_only=True):
    """What is known of the hooks of one client."""

    client: HookClient
    file: Path
    state: HookState
    starts: bool
    """Whether launcher, interpreter and stub start."""
    last: datetime | None
    """When an event last came, or None if it never does."""
    events: int
    """How many have come."""
    is_observed: bool
    """Whether the hooks only record."""
    prefix: WhosePrefix
    """Whose program starts the commands of the client's shell."""
    kernels: tuple[str, ...]
    """Whether each running proxy that the client started serves its hooks, too."""
    alarms: tuple[str, ...]
    """What is wrong, the gravest first."""

    def __str__(self) -> str:
        """Return the state in a line for people."""
        when = "the client has not called them yet"
        if self.last:
            when = f"called {self.events} times, last {self.last:%F %H:%M} UTC"
        parts = [self.state, *(["only records"] if self.is_observed else [])]
        if self.state != "absent":
            parts += [_HELD[self.prefix]] if DIALECTS[self.client].prefix else []
            parts += [*([] if self.starts else ["THEY DO NOT START"]), when, *self.kernels]
        return f"{', '.join(parts)} ({self.file})"


def health_of(client: HookClient, home: Path, state: Path, project: Path) -> HookHealth:
    """Look at the hooks of a client. Starts the stub, and for Codex asks it what it trusts.

    Raises:
        ConfigurationError: it is not known where the client's file lies.
    """
    place, alarms = place_in(client, home, state), list[str]()
    found: HookState = "absent"
    prefix: WhosePrefix = "none"
    try:
        found, prefix = state_of(client, home, state), prefix_of(client, place.file, state)
    except ConfigurationError as error:
        if kept_file(state, client).exists():
            found = "unreadable"
            alarms.append(
                f"ITS HOOKS ARE OFF, it leaves the whole file out without a word: {error}"
            )
    problem = _text(problem_file(state, client))
    if problem:
        alarms.append(f"EVERY CALL IS DENIED, its kernel does not start: {problem}")
    alarms += _of_project(client, project, home, state)
    starts = found != "absent" and _starts(client, state)
    fired, events = _look(fired_file(state, client))
    if found != "absent":
        if not starts:
            alarms.append("THE HOOK CANNOT START: install the hooks again")
        if found not in {"installed", "unreadable"}:
            alarms.append(f"its hooks are {found}: install them again")
        alarms += [alarm] if (alarm := place.dialect.alarm(place.directory, project)) else []
        if (grown := _grown_without(client, home, state)) is not None:
            alarms.append(f"{grown} GREW AND NO EVENT CAME: its session runs without our hooks")
        alarms += _elsewhere(client, home, place.file)
    return HookHealth(
        client=client,
        file=place.file,
        state=found,
        starts=starts,
        last=datetime.fromtimestamp(fired, UTC) if fired else None,
        events=events,
        is_observed=client in observed_in(state),
        prefix=prefix,
        kernels=tuple(_kernels(client, state)),
        alarms=tuple(alarms),
    )


def _kernels(client: HookClient, state: Path) -> Iterator[str]:
    for one in running_sessions(state / SESSIONS):
        whose, _, why = _text(state / SESSIONS / one.session / SHARED).partition("\n")
        if whose == client:
            how = f": they have a kernel of their own beside it: {why}"
            yield f"the proxy of process {one.state.pid}{how if why else ' serves them, too'}"


def _of_project(client: HookClient, project: Path, home: Path, state: Path) -> list[str]:
    """Return what a project's own files do to our hooks."""
    off = switched_off_by(DIALECTS[client], project, home)
    said = f"{off} SWITCHES OUR HOOKS OFF, answers before them, or cannot be read"
    found = [] if off is None else [said]
    for file in settings_of(DIALECTS[client], project, home) if DIALECTS[client].prefix else ():
        with suppress(OSError, ValueError, ConfigurationError, RecursionError):
            if prefix_of(client, file, state) == "another":
                found.append(f"{file} REPLACES OUR SHELL PREFIX in this project")
    return found


def _elsewhere(client: HookClient, home: Path, file: Path) -> Iterator[str]:
    """Say which clients that run, and which shell, look for their settings elsewhere."""
    variable, _ = DIALECTS[client].places.moved_by
    for who, here, variables in [("this shell", Path(), os.environ), *_running(client)]:
        found = file_in(client, directory_by(client, home, variables, here))
        if variables.get("HOME") == str(home) and found != file:
            named = f"by {variable}" if variables.get(variable) else f"without {variable}"
            yield f"OUR HOOKS ARE NOT IN {found}, where {who} looks for them, {named}"


def _running(client: HookClient) -> Iterator[tuple[str, Path, Mapping[str, str]]]:
    """Give each process of a client that may be looked at, its directory and its variables."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if _client_of(place) == client:
                yield f"process {place.name}", place / "cwd", variables_of(int(place.name))


def state_of(client: HookClient, home: Path, state: Path) -> HookState:
    """Return whether a client's file has our hooks.

    Raises:
        ConfigurationError: the file is not what the client would read.
    """
    file = place_in(client, home, state).file
    document = document_of(file, client)
    hooks = document.get("hooks")
    if DIALECTS[client].is_off(document):
        return "switched off"
    found = hooks if isinstance(hooks, dict) else {}
    plugin = plugin_of(client, file)
    is_loaded = plugin is None or plugin.exists()
    if is_loaded and all(is_first(found.get(event)) for event in DIALECTS[client].events):
        return "installed"
    return "incomplete" if is_ours(orjson.dumps(found).decode()) else "absent"


def _starts(client: HookClient, state: Path) -> bool:
    """Return whether the very command of a hook starts; it is told to ask nobody."""
    with suppress(OSError, subprocess.SubprocessError):
        words = hook_words(DIALECTS[client], "check", state)
        done = subprocess.run(  # noqa: S603  the command that the client starts
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
        )
        return done.stdout == b"it starts\n"
    return False


def _grown_without(client: HookClient, home: Path, state: Path) -> Path | None:
    """Return a transcript that was begun with our hooks in place and grew without an event."""
    installed, _ = _look(kept_file(state, client))
    last = max(installed, _look(fired_file(state, client))[0])
    dialect, directory = DIALECTS[client], client_directory(client, home, state)
    base, pattern = own_place(dialect, home, directory, dialect.places.transcripts)
    for file in base.glob(pattern):
        if _look(file)[0] > last + _SLACK and _begun(file) > installed > 0:
            return file
    return None


def _begun(transcript: Path) -> float:
    """Return when a transcript was begun, by its first time; 0 if it has none."""
    with suppress(OSError, ValueError, IndexError):
        with transcript.open("rb") as file:
            first = file.read(1 << 16).decode("utf-8", "replace")
        written = first.split('"timestamp":', 1)[1].split('"')[1]
        return datetime.fromisoformat(written).timestamp()
    return 0.0


def _look(file: Path) -> tuple[float, int]:
    """Return when a file was changed, and its size; 0 and 0 if there is none."""
    with suppress(OSError):
        found = file.stat()
        return found.st_mtime, found.st_size
    return 0.0, 0


def _text(file: Path) -> str:
    with suppress(OSError):
        return file.read_text("utf-8", "replace").strip()
    return ""


# --- the proxy for servers, whose client may run without the hooks --------------------------------


class HookWatch:
    """Tells the proxy for servers whether the client that started it runs without its hooks.

    A hook comes before a call of a server, too, and is noted at the door of its client. So a call
    that arrives where none is noted comes from a client that skips our hooks.
    """

    def __init__(self, state: Path, pid: int) -> None:
        self._state = state
        self._client = _client_above(pid)
        self._is_settled = self._client is None
        self._must = are_kept()
        self._is_told = False

    def beside(self) -> Callable[[Proxy], Coroutine[None, None, None]] | None:
        """Return what serves the client's hooks beside its servers, or None if it has no hooks."""
        if self._client is None:
            return None
        client, pid = self._client
        if not (self._must or kept_file(self._state, client).exists()):
            return None

        async def serve(proxy: Proxy) -> None:
            # It takes a quarter of a second, for which the agent's first calls do not wait.
            sharing = await to_thread.run_sync(import_module, "ironcurtain_proxy.hooks.sharing")
            await sharing.serve_beside(client, pid, proxy)

        return serve

    def __call__(self) -> str:
        """Return why a call is refused; empty if nothing is wrong."""
        if self._is_settled or self._client is None:
            return ""
        client, pid = self._client
        kept = kept_file(self._state, client)
        # The door may be there before any hook: this proxy itself may hold it.
        has_come = _look(self._state / DOORS / f"{pid}-{start_of(pid)}.lock")[1] > 0
        # A client that was there before the hooks were has none: its next session does.
        is_asked_for = self._must or (kept.exists() and not was_before(pid, kept))
        self._is_settled = not is_asked_for or has_come
        project = str(directory_of(pid) or "")
        is_accepted = [client, project] in _accepted(self._state)
        if self._is_settled or (not self._must and is_accepted):
            return ""
        off = switched_off_by(DIALECTS[client], Path(project or "/"), self._state.parent)
        why = f"{off} switches them off, or answers before them" if off else "its hooks do not come"
        if not self._is_told:
            self._is_told = True
            remedy = "see `ironcurtain-proxy hooks status`, and start it again, or type"
            accepted = f"`ironcurtain-proxy hooks accept {client}` in its project"
            _log.warning("%s runs without its hooks: %s; %s %s", client, why, remedy, accepted)
        # The agent reads this, and the command is not the agent's to run.
        return (
            f"{client} runs without the hooks that its user installed: {why}. Its own shell and "
            "edits are not held. Ask the user to look at the hooks, and to start the client again"
        )


def hook_watch(state: Path) -> HookWatch | None:
    """Return the watch over the client of this process, or None if no client has our hooks."""
    is_needed = any(kept_file(state, one).exists() for one in DIALECTS) or are_kept()
    return HookWatch(state, os.getpid()) if is_needed else None


def _client_above(pid: int) -> tuple[HookClient, int] | None:
    """Return the client among the ancestors of a process, with its process."""
    for _ in range(_LEVELS):
        pid = parent_of(pid)
        if pid <= 0:
            break
        with suppress(OSError):
            if client := _client_of(Path(f"/proc/{pid}")):
                return client, pid
    return None


def _client_of(process: Path) -> HookClient | None:
    words = (process / "cmdline").read_text("utf-8", "replace").split("\0")[:2]
    names = [word.rpartition("/")[2] for word in words]
    for client, dialect in DIALECTS.items():
        programs = dialect.programs
        if names and (names[0] == programs[0] or names[-1] in programs):
            return client
    return None


def accept(client: HookClient, project: str, state: Path) -> None:
    """Accept that a client runs without hooks in a project.

    Raises:
        ConfigurationError: the administrator keeps the hooks.
        OSError: it cannot be written.
    """
    refuse_if_kept("let the client run without its hooks")
    file = state / "clients" / _ACCEPTED
    make_private_directory(file.parent)
    write_whole(file, orjson.dumps([*_accepted(state), [client, project]]))


def _accepted(state: Path) -> list[Json]:
    with suppress(OSError, ValueError, ConfigurationError):
        file = state / "clients" / _ACCEPTED
        found: Json = orjson.loads(read_private(file, _MOST_BYTES, "list of accepted clients"))
        return found if isinstance(found, list) else []
    return []
