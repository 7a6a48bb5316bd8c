"""Sessions, running and ended: settings, the state for `status`, who asks, and directories.

Clients start sessions with variables and files of their own, so the configuration of a reviewer's
terminal can be another one. A session therefore writes its settings as variables into a file of its
directory. That file is read from the reviewer's own `~/.ironcurtain` alone, where whoever can write
can change the policy itself. A mailbox that lies elsewhere names no configuration: its owner could
make a rule look narrow that opens everything.

The asker of a question is its session's client, workspace and last words of the user. All of it is
what a client says of itself, or what a program wrote down: it helps a reviewer to tell two agents
apart, and proves nothing.

The directories of sessions lie in `~/.ironcurtain/sessions`. A running proxy holds a shared lock
(flock) on its session's directory itself: no file in the directory can imitate it, and it ends with
the process. A directory is removed under an exclusive lock. All access goes through descriptors,
because servers could write in these directories and may have left links there.
"""

import errno
import fcntl
import logging
import os
import re
import shlex
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct, json, to_builtins
from msgspec.structs import replace

from ironcurtain_proxy.config.reading.layers import (
    CONFIG_NAME,
    CONFIG_VARIABLE,
    ISOLATION_VARIABLE,
    SETTING_VARIABLES,
)
from ironcurtain_proxy.config.settings import Settings, home_directory, load_settings
from ironcurtain_proxy.downstream.starting import make_private
from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.mailbox.mailboxes import (
    Mailboxes,
    MailboxReader,
    PendingRequest,
    is_alive,
    is_listened_to,
    sessions_directory,
    this_process,
    utc_now,
)
from ironcurtain_proxy.mailbox.messages import Owner
from ironcurtain_proxy.mailbox.session_state import read_user_context
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import lazy, object_of, text_of
from ironcurtain_proxy.private_directory import MailboxDirectory, UnacceptableFileError
from ironcurtain_proxy.private_files import make_private_directory, read_beginning, write_whole
from ironcurtain_proxy.strict_json import strict_json

# --- running sessions

# --- configuration


FILE_NAME: Final = "session.json"
_MOST_BYTES: Final = 1 << 18
_SESSION: Final = lazy(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)


class SessionConfiguration(Struct, frozen=True, kw_only=True):
    """The settings of a running session, as its files give them now."""

    settings: Settings
    environ: Mapping[str, str]
    policy_version: str
    """The version of the policy in force there, or empty if it is not known."""
    policy_problem: str
    """The reason why the files of the policy are not in force there, or empty if they are."""


def command_prefix(asking: SessionConfiguration, environ: Mapping[str, str]) -> str:
    """Return the words before a command that make it use the session's files.

    It is empty if none are needed.

    Args:
        asking: the session.
        environ: the variables of the terminal.
    """
    words = []
    for name in (CONFIG_VARIABLE, "GENERATED_DIR"):
        usual = str(asking.settings.state_dir / CONFIG_NAME) if name == CONFIG_VARIABLE else None
        here, there = environ.get(name) or usual, asking.environ.get(name) or usual
        if here != there:
            words.append(f"-u {name}" if there is None else shlex.quote(f"{name}={there}"))
    return f"env {' '.join(words)} " if words else ""


def variables_of(settings: Settings) -> dict[str, str]:
    """Return the variables that give another process of this user these settings.

    No secret is one.
    """
    said = {
        CONFIG_VARIABLE: settings.config_file,
        "GENERATED_DIR": settings.generated_dir,
        "TOOL_ANNOTATIONS_DIR": settings.tool_annotations_dir,
        "ALLOWED_DIRECTORY": settings.workspace,
        "CONTAINER_WORKSPACE_DIR": settings.container_workspace_dir,
        "UNKNOWN_TOOLS": settings.unknown_tools,
        ISOLATION_VARIABLE: settings.inherited.get(ISOLATION_VARIABLE),
    }
    found = {name: str(value) for name, value in said.items() if value}
    if settings.protected_paths:
        paths = [str(path) for path in settings.protected_paths]
        found["PROTECTED_PATHS"] = orjson.dumps(paths).decode()
    return found


def configuration_of(
    one: PendingRequest, sessions: Path, environ: Mapping[str, str]
) -> SessionConfiguration:
    """Return the configuration of the session that asked a question.

    Args:
        one: the question.
        sessions: the directory with one for each session of this user.
        environ: the reviewer's variables; those of the session take their place.

    Raises:
        ConfigurationError: it is not known, or cannot be used.
    """
    return _configuration(state_of(one, sessions), environ)


def configuration_by(state: "SessionState", environ: Mapping[str, str]) -> SessionConfiguration:
    """Return the configuration of a running session; see `configuration_of`."""
    return _configuration(to_builtins(state), environ)


def _configuration(said: Mapping[str, object], environ: Mapping[str, str]) -> SessionConfiguration:
    own = {name: value for name, value in environ.items() if name not in SETTING_VARIABLES}
    theirs = _mapping(said.get("variables"))
    variables = {**own, **{name: theirs[name] for name in theirs if name in SETTING_VARIABLES}}
    # A copy: reading takes secrets out of what it is handed.
    settings = load_settings(dict(variables))
    return SessionConfiguration(
        settings=replace(settings, servers=_servers(settings, _mapping(said.get("knownAs")))),
        environ=variables,
        policy_version=str(said.get("policyVersion", "")),
        policy_problem=str(said.get("policyProblem", "")),
    )


def _servers(settings: Settings, known_as: Mapping[str, str]) -> tuple[ServerSpec, ...]:
    """Return the servers of the session.

    Those of the files, and those of its variables by name alone.
    """
    found = {spec.name: spec for spec in settings.servers}
    return tuple(
        [
            replace(
                found.get(name) or ServerSpec(name=name, command="true", annotations=annotations),
                annotations=annotations,
            )
            for name, annotations in known_as.items()
        ]
    )


def read_state(file: Path) -> bytes:
    """Return the content of a state file.

    Raises:
        OSError: it cannot be read.
    """
    return read_beginning(file, _MOST_BYTES)


def state_of(one: PendingRequest, sessions: Path) -> Mapping[str, object]:
    """Return the state file of the session that asked, checked against the question.

    Raises:
        ConfigurationError: there is none, or it is another session's.
    """
    if not _SESSION.fullmatch(one.request.session):
        raise ConfigurationError("the question names no session: its configuration is not known")
    try:
        place = MailboxDirectory.open(sessions / one.request.session, create=False)
        try:
            said = strict_json(place.read(FILE_NAME, _MOST_BYTES))
        finally:
            place.close()
    except (OSError, ValueError, UnacceptableFileError):
        raise ConfigurationError(
            "the configuration of the session that asks is not known here: it is not one of "
            f"{sessions}; run `ironcurtain-proxy explain` as the user of that session"
        ) from None
    if not isinstance(said, dict) or not _is_asking(said, one):
        raise ConfigurationError(
            "the configuration of the session that asks is not known: another process asks in "
            "its name, or it runs an earlier release"
        )
    return said


def _is_asking(said: Mapping[str, object], one: PendingRequest) -> bool:
    """Return whether the question is one of this running process, in one of its mailboxes."""
    pid, started, boxes = said.get("pid"), said.get("startTime"), said.get("mailboxes")
    if not isinstance(pid, int) or not isinstance(started, str) or not isinstance(boxes, list):
        return False
    owner, here = Owner(pid, started), os.path.realpath(one.directory)
    return (
        one.request.owner == owner
        and is_alive(owner)
        and isinstance(said.get("variables"), dict)
        and any(isinstance(box, str) and os.path.realpath(box) == here for box in boxes)
    )


def _mapping(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {str(name): text for name, text in value.items() if isinstance(text, str)}


# --- running


_log = logging.getLogger(__name__)


class SessionState(Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of a session, as its file has it."""

    pid: int
    start_time: str
    workspace: str | None
    client: str
    """The client's own name for itself; empty: not known yet."""
    policy_version: str = ""
    """The policy in force; empty: not known yet."""
    policy_problem: str = ""
    """The reason why the files of the policy are not in force, or empty if they are."""
    servers: tuple[str, ...]
    known_as: dict[str, str] = {}
    """The servers' names in policy and annotations, by the operator's name."""
    variables: dict[str, str] = {}
    """The variables that give another process the settings of the session."""
    config: str | None
    mailboxes: tuple[str, ...]


class RunningSession(Struct, frozen=True, kw_only=True):
    """One session whose process is running."""

    session: str
    state: SessionState
    open_questions: int


def note_session(settings: Settings, client: str = "", policy: str = "", problem: str = "") -> None:
    """Write the session's state file. A failure is logged and otherwise ignored.

    Args:
        settings: what the operator said.
        client: the client's own name for itself; empty: not known yet.
        policy: the version in force; empty: not known yet.
        problem: why the files of the policy are not what is in force, or empty if they are.
    """
    owner = this_process()
    directory = settings.session_dir
    state = SessionState(
        pid=owner.pid,
        start_time=owner.start_time,
        workspace=None if settings.workspace is None else str(settings.workspace),
        client=client,
        policy_version=policy,
        policy_problem=problem,
        servers=tuple([spec.name for spec in settings.servers]),
        known_as={spec.name: spec.annotations for spec in settings.servers},
        variables=variables_of(settings),
        config=None if settings.config_file is None else str(settings.config_file),
        mailboxes=tuple([str(place) for place in settings.mailboxes]),
    )
    try:
        make_private_directory(directory)
        write_whole(directory / FILE_NAME, json.encode(state))
    except (OSError, UnicodeEncodeError) as error:
        # A path that is not UTF-8 cannot be written as JSON.
        _log.warning("status does not show this session: %s", error)


def forget_session(settings: Settings) -> None:
    """Remove the state file at the end of the session."""
    with suppress(OSError):
        (settings.session_dir / FILE_NAME).unlink()


def running_sessions(sessions: Path) -> Iterator[RunningSession]:
    """Yield the sessions whose process is running.

    Args:
        sessions: the directory with one for each session.
    """
    for file in sorted(sessions.glob(f"*/{FILE_NAME}")):
        # A torn or foreign file is no session: it may hold no UTF-8, or nest without end.
        with suppress(OSError, ValueError, RecursionError):
            state = json.decode(read_state(file), type=SessionState)
            if is_alive(Owner(state.pid, state.start_time)):
                name = file.parent.name
                waiting = Mailboxes([Path(text) for text in state.mailboxes], None)
                own = [one for one in waiting.pending(utc_now()) if one.session == name]
                yield RunningSession(session=name, state=state, open_questions=len(own))


# --- asker


_MOST_WORDS: Final = 80


class Asker(Struct, frozen=True):
    """The asker of a question; an unknown part is empty. All texts can be printed safely."""

    client: str = ""
    workspace: str = ""
    """The workspace, with `~` for the home directory."""
    words: str = ""
    """The user's last message, cut."""

    def told(self) -> str:
        """Return the asker on one line: `an-agent 2.1 · ~/project · "fix the tests"`.

        It is empty if it is unknown.
        """
        words = f'"{self.words}"' if self.words else ""
        return " · ".join([part for part in (self.client, self.workspace, words) if part])


def asker_of(one: PendingRequest) -> Asker:
    """Return the asker of a question, from files beside it, else from the session's state file.

    Unreadable parts are left out.
    """
    from ironcurtain_proxy.mailbox.display import visible  # noqa: PLC0415  for those who answer

    session = _fields(one.directory / FILE_NAME)
    if not session:
        with suppress(ConfigurationError):
            session = state_of(one, sessions_directory(home_directory(os.environ)))
    workspace, home = text_of(session.get("workspace")), str(home_directory(os.environ))
    if workspace == home or workspace.startswith(f"{home}/"):
        workspace = f"~{workspace[len(home) :]}"
    words = " ".join((read_user_context(one.directory) or "").split())
    return Asker(
        client=visible(text_of(session.get("client"))),
        workspace=visible(workspace),
        words=visible(words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]}…"),
    )


def _fields(file: Path) -> Mapping[str, object]:
    with suppress(OSError, ValueError, IronCurtainError):
        return object_of(strict_json(read_state(file)))
    return {}


# --- directories

_DAY: Final = 86_400
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ATTEMPTS: Final = 50
_PAUSE: Final = 0.01
_SECONDS: Final = 60.0
"""The time limit for removing one directory. The next start continues with the rest."""
_REMOVED: Final = ".removed-"


class SessionLock:
    """A lock that keeps a directory from removal until `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._end = weakref.finalize(self, os.close, descriptor)

    @classmethod
    def of(cls, directory: Path) -> "SessionLock | None":
        """Create a directory if needed, and lock it, or None if it cannot be created or locked."""
        for _ in range(_ATTEMPTS):
            try:
                make_private(directory)
                hold = cls(os.open(directory, _DIRECTORY))
                fcntl.flock(hold.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                # It may have been removed between the look and the lock.
                if os.path.samestat(directory.lstat(), os.fstat(hold.descriptor)):
                    return hold
            except (BlockingIOError, FileNotFoundError):
                time.sleep(_PAUSE)
            except OSError:
                return None
        return None

    def release(self) -> None:
        """Release the lock. Harmless if repeated."""
        self._end()


def hold_session(settings: Settings) -> tuple[SessionLock, ...]:
    """Lock a session's directory, and its mailbox if that lies in another session's."""
    sessions = settings.sessions_dir
    wanted = {settings.session_dir}
    if settings.mailbox_dir.parent == sessions:
        wanted.add(settings.mailbox_dir)
    return tuple([hold for directory in wanted if (hold := SessionLock.of(directory)) is not None])


def remove_old_sessions_later(settings: Settings) -> None:
    """Remove the directories of old sessions in a background thread."""
    days, sessions = settings.session_retention_days, settings.sessions_dir
    if days:
        with suppress(RuntimeError):
            threading.Thread(
                target=remove_old_sessions,
                args=(sessions, utc_now().timestamp() - days * _DAY),
                name="old sessions",
                daemon=True,
            ).start()


def remove_old_sessions(sessions: Path, before: float) -> None:
    """Remove the directories of sessions without any change since a time.

    Args: sessions: the directory that holds one directory for each session. before: a time
    stamp. Directories of running sessions, of sessions with a listener, and of those with a
    question that a running process waits for, are kept at any age.
    """
    with suppress(OSError), _opened(str(sessions)) as place:
        for name in os.listdir(place):  # noqa: PTH208  a descriptor, not a path
            # The remains of an interrupted removal belong to no session, at any age.
            date = float("inf") if name.startswith(_REMOVED) else before
            with suppress(OSError), _opened(name, place) as directory:
                if _is_old(directory, place, date) and not _is_waited_for(sessions / name):
                    _remove(name, place, directory, date)


def remove_session(directory: Path, hold: SessionLock) -> None:
    """Remove a locked directory, unless another process holds a lock on it, too."""
    with suppress(OSError), _opened(str(directory.parent)) as place:
        _remove(directory.name, place, hold.descriptor, float("inf"))


def _is_old(directory: int, place: int, before: float) -> bool:
    found = os.fstat(directory)
    above = os.fstat(place)
    # A directory of another user or file system is no session's directory.
    if (found.st_uid, found.st_dev) != (os.geteuid(), above.st_dev) or found.st_mtime > before:
        return False
    with os.scandir(directory) as entries:
        return all(entry.stat(follow_symlinks=False).st_mtime <= before for entry in entries)


def _is_waited_for(directory: Path) -> bool:
    if is_listened_to(directory):
        return True
    reader = MailboxReader(directory)
    try:
        return any(found.request.owner is not None for found in reader.pending(utc_now()))
    finally:
        reader.close()


def _remove(name: str, place: int, directory: int, before: float) -> None:
    """Lock a directory and remove it.

    Raises:
        OSError: it is locked, or something in it cannot be removed.
    """
    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if not _is_old(directory, place, before):
        return
    if not os.path.samestat(
        os.stat(name, dir_fd=place, follow_symlinks=False), os.fstat(directory)
    ):
        return
    gone = name
    if not name.startswith(_REMOVED):
        # A rename is atomic: a proxy of the same name finds all of the directory or nothing.
        gone = f"{_REMOVED}{os.urandom(8).hex()}"
        os.rename(name, gone, src_dir_fd=place, dst_dir_fd=place)
    _empty(directory)
    os.rmdir(gone, dir_fd=place)


def _empty(directory: int) -> None:
    """Remove everything in a directory.

    Nested directories are first moved up, because they may be nested deeper than the call stack
    allows.
    """
    end = time.monotonic() + _SECONDS
    device = os.fstat(directory).st_dev
    while names := os.listdir(directory):
        for name in names:
            if time.monotonic() > end:
                raise TimeoutError
            if not _unlinked(name, directory):
                _flatten(name, directory, device)


def _flatten(name: str, top: int, device: int) -> None:
    _open_up(name, top)
    with _opened(name, top) as inner:
        if os.fstat(inner).st_dev != device:
            raise OSError(errno.EXDEV, "something is mounted there")
        for child in os.listdir(inner):  # noqa: PTH208  a descriptor, not a path
            if not _unlinked(child, inner):
                # Without write permission a directory cannot be moved.
                _open_up(child, inner)
                os.rename(child, os.urandom(16).hex(), src_dir_fd=inner, dst_dir_fd=top)
    os.rmdir(name, dir_fd=top)


def _unlinked(name: str, parent: int) -> bool:
    """Remove a file, or False if it is a directory."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        return False
    return True


@contextmanager
def _opened(name: str, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_up(name: str, parent: int) -> None:
    """Give the owner all rights to a directory, whatever mode a server left."""
    if sys.platform != "linux":
        return
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=parent)
    try:
        # An O_PATH descriptor cannot change the directory, but its /proc path can.
        Path(f"/proc/self/fd/{descriptor}").chmod(0o700)
    finally:
        os.close(descriptor)
