"""The open questions of all machines, for a person: read from the database, and answered there.

What is shown is computed from the bytes of the request alone, and so is the digest that a person
signs. A row that was changed is another question, which the machine never asked.
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from ironcurtain_proxy.fleet.database import COUNTED, NOT_COUNTED, FleetDatabase, SentQuestion
from ironcurtain_proxy.mailbox.answering import SentAnswer
from ironcurtain_proxy.mailbox.display import summary, visible
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest
from ironcurtain_proxy.mailbox.messages import read_request, read_signed, request_name

_SECONDS: Final = 2.0
_STEP_SECONDS: Final = 0.02
_MOST_HOST: Final = 64


class Board:
    """The questions as they were read last."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database
        self._shown: dict[str, PendingRequest | None] = {}

    def pending(self, _now: datetime) -> list[PendingRequest]:
        """Return the open questions, the oldest first.

        Raises:
            DatabaseError: it is away.
        """
        ids, new = self._database.waiting(self._shown.keys())
        fresh = {one.id: _read(one) for one in new}
        known = self._shown | fresh
        self._shown = {name: known[name] for name in ids if name in known}
        return [one for one in self._shown.values() if one is not None]

    def answer(
        self, one: PendingRequest, body: bytes, is_ended: Callable[[], bool] = lambda: False
    ) -> SentAnswer:
        """Send a signed answer, and wait for what its machine says of it.

        Raises:
            DatabaseError: it is away, and the answer may have been sent or not.
        """
        told = summary(one)
        signed = read_signed(body)
        if isinstance(signed, str) or (signed.question, signed.digest) != (
            one.id,
            one.request.digest,
        ):
            return SentAnswer(f"not answered: the signature is for another question: {told}")
        name = self._database.put_answer(one.id, body)
        if name is None:
            return SentAnswer(f"too late, no longer pending: {told}")
        end = monotonic() + _SECONDS
        while (outcome := self._database.outcome(one.id, name)) is None:
            if monotonic() >= end or is_ended():
                where = visible(one.directory.name)
                return SentAnswer(f"signed; {where} has not looked at it yet: {told}", taken=True)
            sleep(_STEP_SECONDS)
        if outcome == COUNTED:
            word = f"signed ({one.request.signatures} needed)" if signed.approved else "denied"
            return SentAnswer(f"{word}: {told}", taken=True)
        what = "its machine does not accept it" if outcome == NOT_COUNTED else "not answered"
        return SentAnswer(f"{what} (is the key in reviewers.json?): {told}", waits=True)


def _read(one: SentQuestion) -> PendingRequest | None:
    """Return a question, or None if its bytes are no request that signatures settle."""
    request = read_request(request_name(one.id), one.request)
    if request is None or not request.signatures:
        return None
    return PendingRequest(Path("/") / one.host.replace("/", "-")[:_MOST_HOST], request)
