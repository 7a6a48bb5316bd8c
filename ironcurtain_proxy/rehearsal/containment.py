"""Whether containment would settle a call on a machine with a sandbox.

The function is the one of `serve`. The assumption is a timeline that holds the workspace, and a
confined server without network that may write there and in its own `/tmp`.
"""

from dataclasses import replace

from msgspec import structs

from ironcurtain_proxy.approval.containment import Considered, why_asked, why_not_held
from ironcurtain_proxy.decision.containment import rule_for_reviewers
from ironcurtain_proxy.model.walls import Walls
from ironcurtain_proxy.rehearsal.memory import EscalatedStep
from ironcurtain_proxy.sandbox.private_tmp import PLACES


def is_contained(asked: EscalatedStep) -> bool:
    """Whether the call needs no question."""
    return why_asked(_considered(asked)) is None


def is_held(asked: EscalatedStep) -> bool:
    """Whether the sandbox would hold the local parts of the command."""
    return asked.facts.command is not None and why_not_held(_considered(asked)) is None


def _considered(asked: EscalatedStep) -> Considered:
    place = asked.facts.place
    facts = structs.replace(asked.facts, place=replace(place, writable=(*place.writable, *PLACES)))
    return Considered(
        facts=facts,
        judged=asked.judged,
        workspace=asked.workspace,
        walls=Walls(writable=(asked.workspace,), temporary=None, is_offline=True),
        for_reviewers=rule_for_reviewers(facts.request, asked.policy),
        tried="",
    )
