"""Requests that are refused by their method or shape: they name nothing that a policy decides on.

They leave a record, so that the log holds whatever was asked for. Their parameters are not
recorded: only a request that is decided on has parameters of a known meaning.
"""

from typing import Final

from ironcurtain_proxy.mediation.journal import Journal
from ironcurtain_proxy.model.decision import Deny, Ground

UNKNOWN: Final = "unknown"
"""The server of a request of the agent's."""

_METHOD_LENGTH: Final = 128


async def note_unserved(
    journal: Journal, method: str, ground: Ground, server: str = UNKNOWN
) -> None:
    """Record a request that was refused.

    Args:
        journal: of the session.
        method: untrusted; stands in the record in the place of a tool.
        ground: why.
        server: who asked, if it was a server.
    """
    named = method[:_METHOD_LENGTH]
    case = journal.open(named, {}, (server, named), decision=Deny(ground))
    await journal.guard(case, journal.refuse(case, "arguments", ground))
