"""A session's end of one mailbox: its questions, its answers, its user's words.

async with EscalationInbox(directory) as inbox:
    inbox.write_user_message("push my branch")
    async for pending in inbox:
        await inbox.approve(pending.id, remember=next(iter(pending.candidates), None))
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, Self

import anyio
import orjson
from msgspec.structs import replace

from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.mailbox.answering import ReviewerAnswer, answer, answer_async, read_token
from ironcurtain_proxy.mailbox.mailboxes import (
    ListenerLock,
    MailboxReader,
    OfferedCandidate,
    PendingRequest,
    listener_pid,
    utc_now,
)
from ironcurtain_proxy.mailbox.messages import Credential, is_id, timestamp
from ironcurtain_proxy.model.grant import Candidate
from ironcurtain_proxy.private_directory import MailboxDirectory, watch_directory

USER_CONTEXT: Final = "user-context.json"
TRUSTED_SOURCE: Final = "mux-trusted-input"


class NotOfferedError(IronCurtainError):
    """The thing to remember is no candidate of the request. Nothing was written."""


class EscalationInbox:
    """The session's side of one escalation directory. An async context manager and iterator."""

    def __init__(
        self,
        directory: Path | str,
        *,
        listen: bool = False,
        reviewer: str = "",
        token_file: Path | str | None = None,
    ) -> None:
        """Make the directory if it is not there.

        Args:
            directory: the proxy's `ESCALATION_DIR`, or a session's own mailbox.
            listen: say while the inbox is open that somebody listens here.
            reviewer: the name of one who is not a person; it goes into the record.
            token_file: holds that reviewer's token, for a mailbox that is that reviewer's.

        Raises:
            ConfigurationError: the directory is a link, another user's, or writable by others; or
                the token cannot be read.
        """
        self._credential = None
        if token_file is not None:
            if not reviewer:
                raise ConfigurationError("a token file needs reviewer, the name whose token it is")
            self._credential = Credential(reviewer, read_token(Path(token_file)))
        self._reader = MailboxReader(Path(directory), create=True)
        self._reviewer = reviewer
        self._listen = listen
        self._lock: ListenerLock | None = None
        self._shown: dict[str, PendingRequest] = {}
        self._closed = anyio.Event()

    async def __aenter__(self) -> Self:
        """Begin to listen, if that was asked for.

        Raises:
            ConfigurationError: another listener does already.
        """
        self._closed = anyio.Event()
        if self._listen:
            directory = self._reader.directory
            self._lock = ListenerLock.acquire(directory)
            if self._lock is None:
                raise ConfigurationError(
                    f"escalation directory {directory} has another listener, "
                    f"process {listener_pid(directory) or 'unknown'}; end that one first"
                )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening; an iteration under way ends."""
        self._closed.set()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # --- questions -------------------------------------------------------------------------------

    def pending(self) -> list[PendingRequest]:
        """Return the requests that wait for an answer now, the oldest first.

        The inbox keeps each request as it was shown: an answer names the bytes that it answers.
        """
        waiting = self._reader.pending(utc_now())
        self._shown = {one.id: self._shown.get(one.id, one) for one in waiting}
        return waiting

    async def __aiter__(self) -> AsyncIterator[PendingRequest]:
        """Yield every request once, those already there first, until the inbox is closed."""
        seen: set[str] = set()
        while not self._closed.is_set():
            for fresh in self._fresh(seen):
                yield fresh
            place = self._reader.place()
            if place is None:
                with anyio.move_on_after(1):
                    await self._closed.wait()
                continue
            stop = self._closed
            async for _ in watch_directory(place.path, stop):
                for fresh in self._fresh(seen):
                    yield fresh
                if not place.is_in_place():
                    break

    def _fresh(self, seen: set[str]) -> list[PendingRequest]:
        fresh = [one for one in self.pending() if one.id not in seen]
        seen.update(one.id for one in fresh)
        return fresh

    # --- answers ---------------------------------------------------------------------------------

    async def approve(
        self, identity: str, *, remember: Candidate | int | None = None, note: str = ""
    ) -> bool:
        """Approve a request. Return False if too late, answered already, or never asked.

        Args:
            identity: the request's whole id.
            remember: one of the request's `candidates`; None: this once. Older programs say the
                place of one, or True for the first.
            note: a note to the agent; it gets at most 1000 characters, in one line.

        Raises:
            NotTheReviewerError: somebody else was asked.
            NotOfferedError: the candidate is another request's.
        """
        return await self._answer(identity, self._approval(identity, remember, note))

    async def deny(self, identity: str, *, note: str = "") -> bool:
        """Refuse a request. False and errors: as for `approve`."""
        return await self._answer(identity, self._denial(note))

    def approve_now(
        self, identity: str, *, remember: Candidate | int | None = None, note: str = ""
    ) -> bool:
        """`approve` for programs that are not async."""
        return self._answer_now(identity, self._approval(identity, remember, note))

    def deny_now(self, identity: str, *, note: str = "") -> bool:
        """`deny` for programs that are not async."""
        return self._answer_now(identity, self._denial(note))

    def _approval(
        self, identity: str, remember: Candidate | int | None, note: str
    ) -> ReviewerAnswer:
        return replace(self._denial(note), approved=True, remember=self._place(identity, remember))

    def _place(self, identity: str, remember: Candidate | int | None) -> int | None:
        if isinstance(remember, Candidate):
            shown = self._shown_as(identity)
            if shown is None:
                return None
            if not isinstance(remember, OfferedCandidate) or remember not in shown.candidates:
                raise NotOfferedError(f"request {identity} has no such candidate to remember")
            return remember.place
        if isinstance(remember, bool):
            return 0 if remember else None
        return remember

    def _denial(self, note: str) -> ReviewerAnswer:
        return ReviewerAnswer(
            approved=False, note=note, reviewer=self._reviewer, credential=self._credential
        )

    async def _answer(self, identity: str, given: ReviewerAnswer) -> bool:
        shown, place = self._shown_as(identity), self._reader.place()
        if shown is None or place is None:
            return False
        return await answer_async(place, shown.request, given)

    def _answer_now(self, identity: str, given: ReviewerAnswer) -> bool:
        shown, place = self._shown_as(identity), self._reader.place()
        return shown is not None and place is not None and answer(place, shown.request, given)

    def _shown_as(self, identity: str) -> PendingRequest | None:
        """Return the request as it was shown; else as it is now."""
        if not is_id(identity):
            return None
        return self._shown.get(identity) or self._reader.find(identity, utc_now())

    # --- the user's words ------------------------------------------------------------------------

    def write_user_message(self, text: str, *, trusted_source: bool = False) -> None:
        """Write the user's last message, at the start of a turn. It replaces the earlier one.

        Args:
            text: the message as it is, and nothing else.
            trusted_source: it was typed into a host whose input no agent can reach; written with
                the time, as interactive sessions must.

        Raises:
            ConfigurationError: the directory cannot be used.
            OSError: the file cannot be written.
        """
        fields: dict[str, str] = {"userMessage": text}
        if trusted_source:
            now = timestamp(utc_now())
            fields |= {"timestamp": now, "source": TRUSTED_SOURCE}
        place = self._reader.place()
        if place is None:
            place = MailboxDirectory.open(self._reader.directory, create=True)
        place.write(USER_CONTEXT, orjson.dumps(fields))
