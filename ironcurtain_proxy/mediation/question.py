"""A call that needs an answer becomes the question that is put."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ironcurtain_proxy.grants.grant_settlement import offered, tool_candidate
from ironcurtain_proxy.grants.patterns import EscalatedCall, Places, candidates
from ironcurtain_proxy.model.call import ToolCall
from ironcurtain_proxy.model.crossing import bound_meta
from ironcurtain_proxy.model.escalation import Escalation, EscalationId, OriginReason
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.question import as_json
from ironcurtain_proxy.model.request import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What every question of a session has in common."""

    session: str
    policy: Policy
    home: RealPath | None = None
    """The user's home directory: never remembered as a whole."""
    patience: timedelta
    """How long a reviewer has."""
    ending: str = ""
    """Until when what is remembered holds, in words; empty: that is not sure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Posed:
    """What is asked about this one call."""

    id: EscalationId
    now: datetime
    """Aware, UTC."""
    call: ToolCall
    facts: Facts
    asked: EscalatedCall
    reasons: Sequence[OriginReason]
    """What is not settled yet; never empty."""
    fingerprint: str
    directories: frozenset[RealPath] | None
    """Those paths of the call that are directories; None: nothing can be remembered."""
    sandboxed: bool = False
    """Whether the server's process is confined."""


def question_about(posed: Posed, frame: Frame) -> Escalation:
    """The question, with all that a reviewer should see."""
    protected = tuple(entry.path for entry in frame.policy.protected_paths)
    places = Places(
        directories=posed.directories or frozenset(),
        home=frame.home,
        protected=protected,
        ending=frame.ending,
    )
    patterns = () if posed.directories is None else candidates(posed.asked, places)
    return Escalation(
        id=posed.id,
        session=frame.session,
        server=posed.call.server,
        tool=posed.call.tool,
        exposed_name=posed.call.exposed_name,
        arguments=posed.facts.arguments,
        request=posed.facts.request,
        ground=posed.reasons[0].ground,
        roles=posed.asked.roles,
        reasons=tuple(posed.reasons),
        context=_context(posed.facts, posed.call),
        definition=posed.asked.definition,
        command=posed.facts.command,
        place=posed.facts.place,
        branch=posed.facts.branch,
        sandboxed=posed.sandboxed,
        candidates=offered(posed.reasons, patterns, tool_candidate(posed.asked)),
        fingerprint=posed.fingerprint,
        policy_version=frame.policy.version,
        created=posed.now,
        deadline=posed.now + frame.patience,
    )


def _context(facts: Facts, call: ToolCall) -> tuple[tuple[str, str], ...]:
    """What a reviewer sees besides. An approval counts for a call with the same context alone."""
    context = facts.context
    if facts.branch is not None:
        context = (*context, ("Current branch", facts.branch))
    meta = bound_meta(call.params)
    return (*context, ("Sent besides (_meta)", as_json(meta))) if meta else context
