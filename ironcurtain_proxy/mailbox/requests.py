"""The open requests of a mailbox, as seen by a reviewer.

A request of a dead proxy, or one past its deadline, is not open.
"""

from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.messages import (
    MAX_REQUEST_BYTES,
    Owner,
    Request,
    read_request,
    request_id,
    request_name,
    response_name,
)
from ironcurtain_proxy.mailbox.processes import is_alive
from ironcurtain_proxy.model.grant import Candidate
from ironcurtain_proxy.private_directory import MailboxDirectory, UnacceptableFileError
from ironcurtain_proxy.steady_clock import seconds_left as until

SESSIONS = "sessions"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedCandidate(Candidate):
    """A candidate that a request offers to remember, as its file describes it."""

    request: str
    """The id of the request, with the digest of its bytes."""
    place: int
    """The index of the candidate in the file, from 0."""


@dataclass(frozen=True, slots=True)
class PendingRequest:
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


def utc_now() -> datetime:
    """The present time, for code that is handed no clock."""
    return datetime.now(UTC)  # noqa: TID251  the session side's one clock


def sessions_directory(home: Path) -> Path:
    """The directory of the sessions' mailboxes, where no directory was named."""
    return home / ".ironcurtain" / SESSIONS


def session_mailboxes(sessions: Path) -> list[Path]:
    """The mailboxes of all sessions, running or not."""
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
        """The open directory; None while there is no usable one."""
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
        """The open requests, the oldest first."""
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
        """The open request with this full id; None: there is none."""
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
    # Where one reviewer's answers count, a response may be anybody's.
    if not request.reviewer and place.has(response_name(request.id)):
        return False
    return request.owner is None or request.owner in living


def seconds_left(request: Request, now: datetime) -> float | None:
    """Seconds until a request's deadline, below 0 after it; None: the request names none."""
    left = None if request.ends is None else until(request.ends)
    if left is not None or request.expires is None:
        return left
    return (request.expires - now).total_seconds()


def by_age(request: Request) -> tuple[bool, datetime, str]:
    """A sort key: the oldest first; requests of the original, without a time, come last."""
    if request.created is None:
        return True, datetime.max.replace(tzinfo=UTC), request.id
    return False, request.created, request.id
