"""A machine's end of the database: questions go out, signed answers come back.

It is a program of its own beside the proxies, as `review` is, and stands between the files of their
mailboxes and the rows. So a proxy needs no database, no library for one and no password, and a
question waits in its mailbox while the database is away: it is sent, again if need be, as soon as
the database is back. A question's row is found by its id, and its answers are read again.

Only questions that need signatures are sent. An answer is put into the mailbox as it came: the
proxy that asked checks it, and believes nothing but the key.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.fleet.database import (
    COUNTED,
    LARGEST_REQUEST,
    NOT_COUNTED,
    DatabaseError,
    FleetDatabase,
    Listener,
    SentQuestion,
    WaitingAnswer,
    channel_of,
)
from ironcurtain_proxy.mailbox.answering import Posted
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes, PendingRequest, seconds_left, utc_now
from ironcurtain_proxy.mailbox.messages import request_name, response_name
from ironcurtain_proxy.private_directory import UnacceptableFileError

LOOK_SECONDS: Final = 0.2
_TAKEN_SECONDS: Final = 0.05
"""Seconds between two looks while a proxy is about to take an answer, for which a person waits."""
_READ_SECONDS: Final = 5.0
"""Seconds after which answers are read without a notice."""
_BEAT_SECONDS: Final = 60.0
_ANEW_SECONDS: Final = 3600.0
"""Seconds after which old rows are forgotten, as they are at the start."""
_LISTEN_SECONDS: Final = 1.0
_AWAY_SECONDS: Final = 0.5
_MOST_POSTED: Final = 64
"""The most answers to one question that lie in its mailbox: forged ones must not fill a disk."""


def home_of(machine: str, directories: Iterable[Path]) -> str:
    """Return the name of a machine's mailboxes, under which their rows are found again."""
    said = (machine, os.uname().nodename, str(os.getuid()), *map(str, directories))
    return hashlib.sha256("\n".join(said).encode("utf-8", "surrogateescape")).hexdigest()[:32]


class Relay:
    """The questions and answers of one machine's mailboxes. One thread uses it."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        database: FleetDatabase,
        home: str,
        complain: Callable[[str], None],
    ) -> None:
        self._mailboxes = mailboxes
        self._database = database
        self._home = home
        self._complain = complain
        self._listener: Listener = database.listener(channel_of(home), alone=True)
        self._sent: frozenset[str] | None = None
        """The questions that the database has open; `None` means that it has to be asked."""
        self._waiting: dict[str, PendingRequest] = {}
        """The questions of the last look."""
        self._posted: dict[str, tuple[WaitingAnswer, Posted]] = {}
        """Answers in mailboxes that no proxy has looked at, by their hash."""
        self._outcomes: list[tuple[WaitingAnswer, str]] = []
        self._listen_at = self._read_at = self._beat_at = self._posted_at = self._anew_at = 0.0
        self._said: dict[str, str] = {}

    def run(self, is_ended: Callable[[], bool] = lambda: False) -> None:
        """Carry questions and answers until told to end. Waits for a database that is away."""
        try:
            while not is_ended():
                self._listen()
                try:
                    self.step()
                    is_new = self._posted and monotonic() < self._posted_at + _READ_SECONDS
                    if self._listener.wait(_TAKEN_SECONDS if is_new else LOOK_SECONDS):
                        # At once: a look at all mailboxes takes longer.
                        self._bring()
                    self._tell("database", "")
                except DatabaseError as error:
                    self._sent = None
                    self._tell("database", f"questions wait on this machine: {error}")
                    sleep(_AWAY_SECONDS)
        finally:
            self._listener.close()
            for _, posted in self._posted.values():
                posted.close()

    def step(self) -> None:
        """Send what is new, and bring the answers that have come.

        Raises:
            DatabaseError: the database is away. The next step does all that this one did not.
        """
        now = monotonic()
        if self._sent is None or now >= self._anew_at:
            self._anew_at = now + _ANEW_SECONDS
            # Two under one name would each end what the other one has sent.
            self._listener.wait(0.0)
            self._database.prepare()
            self._sent = self._database.known(self._home)
            self._read_at = 0.0
        waiting = {one.id: one for one in self._mailboxes.pending(utc_now()) if self._is_ours(one)}
        self._waiting = waiting
        asked = self._requests([one for name, one in waiting.items() if name not in self._sent])
        ended = self._sent - waiting.keys()
        self._look_at_posted()
        outcomes = self._outcomes
        if asked or ended or outcomes:
            self._database.exchange(self._home, asked, ended, outcomes)
            self._outcomes = self._outcomes[len(outcomes) :]
            self._sent = (self._sent - ended) | {one.id for one in asked}
        if now >= self._read_at or outcomes:
            self._read_at = now + _READ_SECONDS
            self._bring()
        if now >= self._beat_at:
            self._beat_at = now + _BEAT_SECONDS
            # A row that somebody removed is sent again at the next look.
            self._sent &= self._database.beat(self._home)

    def _is_ours(self, one: PendingRequest) -> bool:
        if one.request.signatures:
            return True
        why = "it needs no signature, and waits for an answer on this machine"
        self._tell(one.id, f"{one.id[:8]} is not sent: {why}")
        return False

    def _requests(self, waiting: Sequence[PendingRequest]) -> list[SentQuestion]:
        found = []
        for one in waiting:
            place, request = self._mailboxes.place_of(one), one.request
            try:
                raw = b"" if place is None else place.read(request_name(one.id), LARGEST_REQUEST)
            except FileNotFoundError:
                continue  # it has ended
            except (OSError, UnacceptableFileError) as error:
                self._tell(one.id, f"{one.id[:8]} is not sent: it {error}")
                continue
            if hashlib.sha256(raw).hexdigest() == request.digest:
                found.append(
                    SentQuestion(
                        id=one.id,
                        host=os.uname().nodename,
                        request=raw,
                        asked=request.created or utc_now(),
                        left=seconds_left(request, utc_now()),
                    )
                )
        return found

    def _bring(self) -> None:
        """Put answers into the mailboxes of their questions."""
        lying = Counter([answer.question for answer, _ in self._posted.values()])
        full = [name for name, count in lying.items() if count >= _MOST_POSTED]
        for answer in self._database.answers(self._home, self._posted.keys(), full):
            one = self._waiting.get(answer.question)
            place = None if one is None else self._mailboxes.place_of(one)
            lying[answer.question] += 1
            if one is None or place is None or lying[answer.question] > _MOST_POSTED:
                continue
            try:
                # A random name: another program cannot take it first.
                name = response_name(one.id, os.urandom(8).hex())
                posted = Posted(place, one.request, name, place.put(name, answer.body))
            except (OSError, ConfigurationError) as error:
                self._tell("mailbox", f"an answer cannot be written: {error}")
                continue
            self._posted[answer.hash], self._posted_at = (answer, posted), monotonic()

    def _look_at_posted(self) -> None:
        """Note which answers their proxies have taken, or removed because they do not count."""
        for name, (answer, posted) in list(self._posted.items()):
            taken = posted.outcome()
            if taken is not None:
                posted.close()
                del self._posted[name]
                self._outcomes.append((answer, COUNTED if taken else NOT_COUNTED))

    def _listen(self) -> None:
        if monotonic() >= self._listen_at:
            self._listen_at = monotonic() + _LISTEN_SECONDS
            try:
                self._mailboxes.listen()
                self._tell("listening", "")
            except ConfigurationError as error:
                self._tell("listening", f"not listening: {error}")

    def _tell(self, about: str, words: str) -> None:
        """Tell the operator what is new, once."""
        if self._said.get(about, "") != words:
            self._said[about] = words
            if len(self._said) > 10_000:  # noqa: PLR2004  ids of questions
                self._said.clear()
            self._complain(words or f"{about}: well again")
