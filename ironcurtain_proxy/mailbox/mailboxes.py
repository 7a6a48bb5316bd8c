"""Several mailboxes read as one: named ones, and those of all sessions.

Knows which request is meant by an id, the beginning of one, or a number.
"""

import fcntl
import os
import re
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

import orjson
from msgspec import Struct

from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.mailbox.messages import (
    MAX_REQUEST_BYTES,
    Owner,
    Request,
    read_request,
    request_id,
    request_name,
    response_name,
    settled_name,
)
from ironcurtain_proxy.model.grant import Candidate
from ironcurtain_proxy.model.values import Json, lazy, object_of
from ironcurtain_proxy.private_directory import MailboxDirectory, UnacceptableFileError
from ironcurtain_proxy.private_files import is_at, locked_file
from ironcurtain_proxy.steady_clock import seconds_left as until
from ironcurtain_proxy.strict_json import strict_json

SESSIONS = "sessions"


class OfferedCandidate(Candidate, frozen=True, kw_only=True):
    """A candidate that a request offers to remember, as its file describes it."""

    request: str
    """The id of the request, with the digest of its bytes."""
    place: int
    """The index of the candidate in the file, from 0."""


class PendingRequest(Struct, frozen=True):
    """A request with its mailbox."""

    directory: Path
    request: Request

    @property
    def id(self) -> str:
        """The escalation's id."""
        return self.request.id

    @property
    def candidates(self) -> tuple[OfferedCandidate, ...]:
        """The candidates that an approval may remember."""
        whose = f"{self.request.id} {self.request.digest}"
        return tuple(
            [
                OfferedCandidate(description=words, request=whose, place=place)
                for place, words in enumerate(self.request.candidates)
            ]
        )

    @property
    def session(self) -> str:
        """The session's id as the proxy wrote it, else the directory's name."""
        return self.request.session or self.directory.name


MOST_EQUAL: Final = 20
"""The most calls that one card shows."""


def grouped(
    waiting: Sequence[PendingRequest], shown: AbstractSet[str] = frozenset()
) -> list[tuple[PendingRequest, ...]]:
    """Return requests by cards: calls of one kind, asked for the same reasons, share a card.

    They are of one kind where an approval that is remembered would cover each of them: one family
    of commands, one host, one directory. What cannot be remembered stands alone.

    Args:
        waiting: the requests, the oldest first.
        shown: the ids on the card that a person looks at, which nothing joins meanwhile.
    """
    cards: dict[tuple[object, ...], list[PendingRequest]] = {}
    for one in waiting:
        asked = one.request
        key: tuple[object, ...] = (
            *(one.directory, asked.session, asked.server, asked.tool, asked.why, asked.candidates),
            *(asked.reviewer, asked.signatures, asked.risk, one.id if not asked.candidates else ""),
        )
        key = ("shown",) if one.id in shown else key
        if len(cards.setdefault(key, [])) > MOST_EQUAL:
            key = (*key, one.id)
        cards.setdefault(key, []).append(one)
    return [tuple(card) for card in cards.values()]


def utc_now() -> datetime:
    """Return the present time, for code that is handed no clock."""
    return datetime.now(UTC)  # noqa: TID251  the session side's one clock


def sessions_directory(home: Path) -> Path:
    """Return the directory of the sessions' mailboxes, where no directory was named."""
    return home / ".ironcurtain" / SESSIONS


def session_mailboxes(sessions: Path) -> list[Path]:
    """Return the mailboxes of all sessions, running or not."""
    with suppress(OSError):
        return sorted(entry for entry in sessions.iterdir() if entry.is_dir())
    return []


class MailboxReader:
    """Reads one mailbox repeatedly; an unchanged request is read once."""

    def __init__(self, directory: Path, *, create: bool = False) -> None:
        """Keep the directory, which may not exist yet; `create` makes it now.

        Raises:
            ConfigurationError: with `create`: it cannot be used.
        """
        self.directory = directory
        self._place = MailboxDirectory.open(directory, create=True) if create else None
        self._read: dict[str, tuple[tuple[int, int], Request | None]] = {}

    def place(self) -> MailboxDirectory | None:
        """Return the open directory; None while there is no usable one."""
        if self._place is not None and not self._place.is_in_place():
            self._place.close()
            self._place = None
            self._read = {}
        if self._place is None:
            with suppress(OSError, ConfigurationError):
                self._place = MailboxDirectory.open(self.directory, create=False)
        return self._place

    def close(self) -> None:
        """Close the directory's descriptor. It is opened again when it is needed."""
        if self._place is not None:
            self._place.close()
            self._place = None

    @property
    def is_empty(self) -> bool:
        """Whether the last look found no request, open or not."""
        return not self._read

    def pending(self, now: datetime) -> list[PendingRequest]:
        """Return the open requests, the oldest first."""
        place = self.place()
        if place is None:
            return []
        # An ordered set: with a list, a thousand requests are a million comparisons a look.
        names: dict[str, None] = {}
        with suppress(OSError):
            names = dict.fromkeys(name for name in place.names() if request_id(name) is not None)
        self._read = {name: read for name, read in self._read.items() if name in names}
        found = [request for name in names if (request := self._request(place, name)) is not None]
        owners = {request.owner for request in found if request.owner is not None}
        living = {owner for owner in owners if is_alive(owner)}
        waiting = [request for request in found if _is_open(place, request, now, living)]
        waiting.sort(key=by_age)
        return [PendingRequest(self.directory, request) for request in waiting]

    def find(self, identity: str, now: datetime) -> PendingRequest | None:
        """Return the open request with this full id, or None if there is none."""
        place = self.place()
        request = None if place is None else self._request(place, request_name(identity))
        if place is None or request is None:
            return None
        owner = request.owner
        living = {owner} if owner is not None and is_alive(owner) else set()
        if not _is_open(place, request, now, living):
            return None
        return PendingRequest(self.directory, request)

    def _request(self, place: MailboxDirectory, name: str) -> Request | None:
        state = place.modified_ns(name)
        if state is None:
            return None
        known = self._read.get(name)
        if known is None or known[0] != state:
            request = None
            with suppress(FileNotFoundError, UnacceptableFileError):
                request = read_request(name, place.read(name, MAX_REQUEST_BYTES))
            known = (state, request)
            self._read[name] = known
        return known[1]


def _is_open(
    place: MailboxDirectory, request: Request, now: datetime, living: AbstractSet[Owner]
) -> bool:
    left = seconds_left(request, now)
    if left is not None and left <= 0:
        return False
    # Where answers need a proof of their author, a response may be anybody's.
    if not request.reviewer and not request.signatures and place.has(response_name(request.id)):
        return False
    if request.subject and place.has(settled_name(request.id)):
        return False
    return request.owner is None or request.owner in living or is_kept(request, now)


def seconds_left(request: Request, now: datetime) -> float | None:
    """Return seconds until a request's deadline, below 0 after it.

    It is None if the request names none.
    """
    left = None if request.ends is None else until(request.ends)
    if left is not None or request.expires is None:
        return left
    return (request.expires - now).total_seconds()


def is_kept(request: Request, now: datetime) -> bool:
    """Return whether a question may be answered, and adopted, although its proxy is gone."""
    left = seconds_left(request, now)
    return bool(request.subject) and (left is None or left > 0)


def by_age(request: Request) -> tuple[bool, datetime, str]:
    """Return a sort key: the oldest first; requests of the original, without a time, come last."""
    if request.created is None:
        return True, datetime.max.replace(tzinfo=UTC), request.id
    return False, request.created, request.id


def this_process() -> Owner:
    """Return the identity of this process."""
    pid = os.getpid()
    return Owner(pid, start_of(pid))


def is_alive(owner: Owner) -> bool:
    """Return whether the process still runs; if its start time is not known, the pid decides."""
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # The process exists, and belongs to somebody else.
        return True
    started = start_of(owner.pid)
    return not owner.start_time or not started or started == owner.start_time


def start_of(pid: int) -> str:
    """Return when a process started, in ticks after the start of the machine; empty if it ended."""
    return _stat(pid)[19]


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 if it has none, or has ended."""
    return int(_stat(pid)[1] or 0)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat behind the program's name; all empty without one."""
    with suppress(OSError):
        line = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
        # The name may hold blanks and parentheses.
        fields = line[line.rfind(")") + 1 :].split()
        return fields if len(fields) >= _FIELDS else [""] * _FIELDS
    return [""] * _FIELDS


_FIELDS: Final = 20


LOCK_NAME: Final = "escalation-listener.lock"
_OPEN: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ATTEMPTS: Final = 5
_PAUSE: Final = 0.005
_DIGITS: Final = 20


class ListenerLock:
    """A lock that this process has until `release`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._fd: int | None = descriptor

    @classmethod
    def acquire(cls, directory: Path) -> "ListenerLock | None":
        """Lock the directory; None if another listener has the lock.

        Raises:
            OSError: the directory is not there, or the file is not ours to write.
        """
        path = directory / LOCK_NAME
        for _ in range(_ATTEMPTS):
            descriptor = locked_file(path)
            if descriptor is not None:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
                return cls(path, descriptor)
            # A proxy that just looks holds it for some microseconds.
            time.sleep(_PAUSE)
        return None

    def release(self) -> None:
        """Release the lock; harmless if repeated."""
        if self._fd is None:
            return
        with suppress(OSError):
            if is_at(self._fd, self._path):
                self._path.unlink()
        os.close(self._fd)
        self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def is_listened_to(directory: Path) -> bool:
    """Return whether a living process of this user has the directory's lock. Takes microseconds."""
    try:
        descriptor = os.open(directory / LOCK_NAME, _OPEN)
    except OSError:
        return False
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return False
        # Shared: two proxies that look at once do not take each other for a listener.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def listener_pid(directory: Path) -> int | None:
    """Return the pid in the lock file, for a message to people."""
    with suppress(OSError, ValueError):
        return int((directory / LOCK_NAME).read_bytes()[:_DIGITS])
    return None


_NUMBERS: Final = "pending-numbers.json"
_MAX_NUMBERS_BYTES: Final = 1 << 24
_SHORTEST_PREFIX: Final = 4
_WHOLE_PREFIX: Final = 8
"""The number of characters of an id that are shown beside a call; never one."""
_NUMBER: Final = lazy(rf"[1-9][0-9]{{0,{_WHOLE_PREFIX - 2}}}", re.ASCII)
_SETTLED_NS: Final = 2_000_000_000
"""A file system's clock is coarse: what changed more recently may change again unnoticed."""


class NotPendingError(IronCurtainError):
    """The name does not identify exactly one open request."""


class Mailboxes:
    """The mailboxes of a reviewer."""

    def __init__(self, named: Sequence[Path], sessions: Path | None) -> None:
        """Keep the directories. Nothing is opened.

        Args:
            named: mailboxes to look into.
            sessions: the directory of all sessions' mailboxes; None: only those named.
        """
        self._named = tuple(dict.fromkeys(named))
        self._sessions = sessions
        self._readers: dict[Path, MailboxReader] = {}
        # Directories of sessions without a request, with the time of their last change: years of
        # ended sessions are not read ten times a second.
        self._quiet: dict[Path, int] = {}
        self._locks: dict[Path, ListenerLock] = {}

    def pending(self, now: datetime) -> list[PendingRequest]:
        """Return the open requests of all mailboxes, the oldest first."""
        found = () if self._sessions is None else session_mailboxes(self._sessions)
        changed = {directory: _changed(directory) for directory in found}
        lively = [one for one in found if self._quiet.get(one) != changed[one]]
        readers = {
            directory: self._readers.get(directory) or MailboxReader(directory)
            for directory in dict.fromkeys((*self._named, *lively))
        }
        for directory in self._readers.keys() - readers.keys():
            self._readers[directory].close()
        self._readers = readers
        waiting: list[PendingRequest] = []
        for reader in readers.values():
            waiting += reader.pending(now)
            if reader.is_empty:
                # There may be more sessions than descriptors.
                reader.close()
        settled = now.timestamp() * 1e9 - _SETTLED_NS
        self._quiet = {
            directory: moment
            for directory, moment in changed.items()
            if self._quiet.get(directory) == moment
            or (moment < settled and directory in readers and readers[directory].is_empty)
        }
        return sorted(waiting, key=lambda one: by_age(one.request))

    def place_of(self, one: PendingRequest) -> MailboxDirectory | None:
        """Return the mailbox of a request, open, or None if it no longer exists."""
        reader = self._readers.get(one.directory)
        return None if reader is None else reader.place()

    # --- listening -------------------------------------------------------------------------------

    def listen(self) -> None:
        """Take the locks that announce a listener. May be called repeatedly.

        A lock that another listener holds says the same, and is taken over when that one ends.

        Raises:
            ConfigurationError: a directory cannot be used.
        """
        wanted = (*self._named, *(() if self._sessions is None else (self._sessions,)))
        for directory in wanted:
            if directory not in self._locks or not directory.exists():
                self._listen_in(directory)

    def _listen_in(self, directory: Path) -> None:
        stale = self._locks.pop(directory, None)
        if stale is not None:
            stale.release()
        try:
            MailboxDirectory.open(directory, create=True).close()
            lock = ListenerLock.acquire(directory)
        except OSError as error:
            raise ConfigurationError(f"{directory} cannot be used: {error.strerror}") from None
        if lock is not None:
            self._locks[directory] = lock

    def stop_listening(self) -> None:
        """Release the locks; harmless if repeated."""
        for lock in self._locks.values():
            lock.release()
        self._locks = {}


def _changed(directory: Path) -> int:
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0


# --- naming one of them --------------------------------------------------------------------------


def find(reference: str, waiting: Sequence[PendingRequest], state: Path) -> PendingRequest:
    """Return the request of a reference: an id, the beginning of one, or a number of the last list.

    A number is looked up in the list that was shown: what arrived or ended since must not give it
    to another request. Digits alone are a number if the list had so many, else the beginning of an
    id; what could be both, of two requests, is neither.

    Raises:
        NotPendingError: there is none, or more than one.
    """
    long_enough = len(reference) >= _SHORTEST_PREFIX
    found = [one for one in waiting if long_enough and one.id.startswith(reference.lower())]
    if _NUMBER.fullmatch(reference) is not None:
        number = int(reference)
        shown = _shown(state)
        if not found or (shown is not None and 1 <= number <= len(shown)):
            return _only(reference, _numbered(number, waiting, shown), found)
    if not found:
        raise NotPendingError(f"no pending escalation with ID: {reference!a}")
    if len(found) > 1:
        raise NotPendingError(f"{reference!a} begins {len(found)} pending ids: write more of it")
    return found[0]


def _only(
    reference: str, numbered: PendingRequest, found: Sequence[PendingRequest]
) -> PendingRequest:
    other = next((one for one in found if one.id != numbered.id), None)
    if other is None:
        return numbered
    raise NotPendingError(
        f"{reference} is the number of {numbered.id[:_WHOLE_PREFIX]} and begins the id "
        f"{other.id[:_WHOLE_PREFIX]}: write {_WHOLE_PREFIX} characters of the id"
    )


def _numbered(
    number: int, waiting: Sequence[PendingRequest], shown: Sequence[str] | None
) -> PendingRequest:
    if shown is None and len(waiting) == number == 1:
        return waiting[0]
    if shown is None or not 1 <= number <= len(shown):
        raise NotPendingError(
            f"no number {number} was shown: run `ironcurtain-proxy pending`, or write the id"
        )
    for one in waiting:
        if one.id == shown[number - 1]:
            return one
    gone = shown[number - 1][:_WHOLE_PREFIX]
    raise NotPendingError(f"number {number} ({gone}) is no longer pending")


def keep_numbers(waiting: Sequence[PendingRequest], state: Path) -> None:
    """Store which numbers were shown for which requests. Where that fails, ids must be used."""
    digests = {one.id: one.request.digest for one in waiting}
    raw = orjson.dumps({"shown": [*digests], "digests": digests})
    with suppress(OSError, ConfigurationError):
        MailboxDirectory.open(state, create=True).write(_NUMBERS, raw)


def has_changed(one: PendingRequest, state: Path) -> bool:
    """Return whether the last list showed other content under this id."""
    shown = object_of(_kept(state).get("digests")).get(one.id)
    return shown is not None and shown != one.request.digest


def came_later(waiting: Sequence[PendingRequest], state: Path) -> list[PendingRequest]:
    """Return the requests that came since the last list.

    None where that list shows none of them.
    """
    shown = frozenset(_shown(state) or ())
    later = [one for one in waiting if one.id not in shown]
    return later if len(later) < len(waiting) else []


def _shown(state: Path) -> list[str] | None:
    shown = _kept(state).get("shown")
    if not isinstance(shown, list):
        return None
    return [one for one in shown if isinstance(one, str)]


def object_in(place: MailboxDirectory, name: str, most: int) -> Mapping[str, Json]:
    """Return the JSON object in a file of a mailbox, or an empty one if it holds none."""
    with suppress(OSError, UnacceptableFileError, orjson.JSONDecodeError):
        return object_of(strict_json(place.read(name, most)))
    return {}


def _kept(state: Path) -> Mapping[str, object]:
    try:
        place = MailboxDirectory.open(state, create=False)
    except (OSError, ConfigurationError):
        return {}
    return object_in(place, _NUMBERS, _MAX_NUMBERS_BYTES)
