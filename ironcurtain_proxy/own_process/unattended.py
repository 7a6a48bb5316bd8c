"""The notice for the user when a call needs a reviewer and nobody reviews.

The operator reads it on standard error, the client's user as a log message of the protocol.
Replies to the agent name no command: see `agent.replies`.
"""

import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.mediation.journal import Tell
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.own_process.operator_log import say

LOGGER: Final = "ironcurtain"
"""The proxy's logger name in log messages to the client. Messages of servers never use it."""


def telling(settings: Settings, log: Callable[[Mapping[str, Json]], Awaitable[None]]) -> Tell:
    """A function that sends the notice.

    Args:
        settings: say where the questions are put.
        log: sends the `params` of a log message to the client.
    """

    async def tell() -> None:
        text = nobody_reviews(settings)
        say(text)
        await log({"level": "warning", "logger": LOGGER, "data": text})

    return tell


def nobody_reviews(settings: Settings) -> str:
    """The event and the command to run, on one line."""
    refused = "a call needs an approval and was refused, because nobody is reviewing"
    if "mailbox" not in settings.escalation.channels:
        ways = ", ".join(settings.escalation.channels) or "no way at all"
        return f"{refused}; escalation.channels asks by {ways} only: add mailbox to it"
    return f"{refused}; to review, run in a terminal: {review_command(settings)}"


def review_command(settings: Settings) -> str:
    """The command that shows this session's questions."""
    places = settings.mailboxes
    if len(places) == 1 and settings.escalation_dir is None:
        return "ironcurtain-proxy review"
    named = [part for place in places for part in ("--dir", str(place))]
    return shlex.join(["ironcurtain-proxy", "review", *named])
