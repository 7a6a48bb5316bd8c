"""Whether containment would settle a call, on a machine with a sandbox.

Assumed are a confined server without a network, and a timeline that holds the workspace. What the
agent has read cannot be taken back, so a question about reading stays, and so does one about a
secret.
"""

from dataclasses import replace
from typing import Final

from ironcurtain_proxy.model.decision import Escalate
from ironcurtain_proxy.rehearsal.memory import EscalatedStep
from ironcurtain_proxy.sandbox.private_tmp import PLACES
from ironcurtain_proxy.shell.capabilities import needs_of
from ironcurtain_proxy.shell.effects import effect_of

_SHOWN: Final = frozenset({"secrets.access", "data.user"})
_HELD: Final = frozenset({"reads", "local", "unknown"})


def is_contained(asked: EscalatedStep) -> bool:
    """Whether nobody would be asked."""
    decision, command = asked.judged.decision, asked.facts.command
    if command is None or asked.facts.pushes:
        return False
    if isinstance(decision, Escalate) and decision.roles:
        return False
    place = replace(asked.facts.place, writable=(*asked.facts.place.writable, *PLACES))
    found = effect_of(command, place)
    return found.effect in _HELD and _SHOWN.isdisjoint(needs_of(command, found))
