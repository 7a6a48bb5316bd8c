"""An answer on its way to the proxy, and its outcome in words."""

from msgspec import Struct

from ironcurtain_proxy.mailbox.answering import (
    NOT_COUNTED,
    ReviewerAnswer,
    answer_async,
    still_waits,
)
from ironcurtain_proxy.mailbox.display import summary
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes
from ironcurtain_proxy.mailbox.requests import PendingRequest


class SentAnswer(Struct, frozen=True):
    """The outcome of an answer, and its words."""

    told: str
    taken: bool = False
    """Whether the proxy took it."""
    waits: bool = False
    """Whether the call still waits for an answer."""


async def sent(mailboxes: Mailboxes, one: PendingRequest, given: ReviewerAnswer) -> SentAnswer:
    """Write an answer, and wait until the proxy has taken it."""
    told = summary(one)
    place = mailboxes.place_of(one)
    try:
        taken = place is not None and await answer_async(place, one.request, given)
    except OSError as error:
        return SentAnswer(f"not answered: {error.strerror}: {told}", waits=True)
    if taken:
        word = "approved" if given.approved else "denied"
        kept = " and remembered" if given.remember is not None else ""
        return SentAnswer(f"{word}{kept}: {told}", taken=True)
    waits = place is not None and still_waits(place, one.request)
    why = NOT_COUNTED if waits else "too late, no longer pending"
    return SentAnswer(f"{why}: {told}", waits=waits)
