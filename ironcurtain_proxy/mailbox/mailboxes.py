"""Several mailboxes read as one: named ones, and those of all sessions.

Knows which request is meant by an id, the beginning of one, or a number.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import orjson

from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.mailbox.listener_lock import ListenerLock
from ironcurtain_proxy.mailbox.requests import (
    MailboxReader,
    PendingRequest,
    by_age,
    session_mailboxes,
)
from ironcurtain_proxy.private_directory import MailboxDirectory, UnacceptableFileError
from ironcurtain_proxy.strict_json import strict_json

_NUMBERS: Final = "pending-numbers.json"
_MAX_NUMBERS_BYTES: Final = 1 << 24
_SHORTEST_PREFIX: Final = 4
_WHOLE_PREFIX: Final = 8
"""The number of characters of an id that are shown beside a call; never one."""
_NUMBER: Final = re.compile(rf"[1-9][0-9]{{0,{_WHOLE_PREFIX - 2}}}", re.ASCII)
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
        """The open requests of all mailboxes, the oldest first."""
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
        """The mailbox of a request, open; None: it no longer exists."""
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
    """The request of a reference: an id, the beginning of one, or a number of the last list.

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
    """Whether the last list showed other content under this id."""
    digests = _kept(state).get("digests")
    shown = digests.get(one.id) if isinstance(digests, dict) else None
    return shown is not None and shown != one.request.digest


def came_later(waiting: Sequence[PendingRequest], state: Path) -> list[PendingRequest]:
    """The requests that came since the last list; none where that list shows none of them."""
    shown = frozenset(_shown(state) or ())
    later = [one for one in waiting if one.id not in shown]
    return later if len(later) < len(waiting) else []


def _shown(state: Path) -> list[str] | None:
    shown = _kept(state).get("shown")
    if not isinstance(shown, list):
        return None
    return [one for one in shown if isinstance(one, str)]


def _kept(state: Path) -> Mapping[str, object]:
    try:
        place = MailboxDirectory.open(state, create=False)
        fields = strict_json(place.read(_NUMBERS, _MAX_NUMBERS_BYTES))
    except (OSError, ConfigurationError, UnacceptableFileError, orjson.JSONDecodeError):
        return {}
    return fields if isinstance(fields, dict) else {}
