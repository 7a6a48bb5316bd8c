"""An answer on its way to the proxy, and its outcome."""

from ironcurtain_proxy.mailbox.answering import (
    NOT_COUNTED,
    ReviewerAnswer,
    answer_async,
    still_waits,
)
from ironcurtain_proxy.mailbox.display import summary
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes
from ironcurtain_proxy.mailbox.requests import PendingRequest


async def sent(
    mailboxes: Mailboxes, one: PendingRequest, verdict: ReviewerAnswer
) -> tuple[str, bool]:
    """Write an answer, and wait until the proxy has taken it.

    Returns:
        What became of it, in words; and whether the call still waits for an answer.
    """
    told = summary(one)
    place = mailboxes.place_of(one)
    try:
        taken = place is not None and await answer_async(place, one.request, verdict)
    except OSError as error:
        return f"not answered: {error.strerror}: {told}", True
    if not taken:
        waits = place is not None and still_waits(place, one.request)
        return f"{NOT_COUNTED if waits else 'too late, no longer pending'}: {told}", waits
    word = "approved" if verdict.approved else "denied"
    return f"{word}{' and remembered' if verdict.remember is not None else ''}: {told}", False
